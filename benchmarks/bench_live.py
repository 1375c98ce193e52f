"""Measure the live page of 100,000 items: its first paint, its cost while nothing changes, how soon a change shows.

python benchmarks/bench_live.py [ITEMS]
"""

import asyncio
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from aiohttp import ClientSession
from playwright.async_api import Browser

from agentjobs_async.batch import Journal
from benchmarks.bench_report import COLUMNS, ITEMS, rows
from tests.browser import launched, visit

RUNS = 5
PAGES = 50
QUIET_SECONDS = 20.0
GOALS = {
    "s until the figures of a new page": 2,
    "s until its table": 2,
    "s until the table while all is being read": 2,
    "% of a core, 1 page, nothing changes": 5,
    "% of a core, 50 pages, nothing changes": 5,
    "s until a change shows": 1,
    "s until the process has ended": 1,
}


async def make(path: Path) -> None:
    """Make the journal."""
    async with Journal.open(path):
        pass
    with closing(sqlite3.connect(path)) as database:
        marks = ",".join("?" * len(COLUMNS.split(",")))
        database.executemany(f"INSERT INTO agentjobs_entries ({COLUMNS}) VALUES ({marks})", rows())  # noqa: S608 - the names of columns are those above
        # All in the past, as in a journal that has ended.
        database.execute("UPDATE agentjobs_entries SET updated_at = planned_at + number * 0.8")
        database.commit()


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(process: int) -> int:
    """Return the most memory that a process has had."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


async def painted(browser: Browser, address: str, patience: float = 30) -> tuple[float, float]:
    """Return the seconds until the first paint, and until the table shows its rows."""
    started = time.perf_counter()
    async with visit(browser, address) as visited:
        await visited.page.locator("#rows .row").first.wait_for(timeout=1000 * patience)
        table = time.perf_counter() - started
        paint = await visited.page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
        )
        return paint, table


async def quiet(process: int, address: str, pages: int) -> float:
    """Return the share of a core that the server takes while nothing changes, in percent."""
    async with ClientSession() as client:
        lines = (await (await client.get(f"{address}rows")).text()).splitlines()
        position = lines[-1].rpartition(': "')[2].rstrip('"}')
        streams = [await client.get(f"{address}events", headers={"Last-Event-ID": position}) for _ in range(pages)]
        await asyncio.sleep(5)  # the last write is settled
        before = cpu_seconds(process)
        await asyncio.sleep(QUIET_SECONDS)
        taken = cpu_seconds(process) - before
        for stream in streams:
            stream.close()
    return 100 * taken / QUIET_SECONDS


async def changed(browser: Browser, address: str, path: Path) -> list[float]:
    """Return the seconds from the commit of a change to its row on a page, some times."""
    found = []
    async with visit(browser, address) as visited:
        await visited.page.locator("#rows .row").first.wait_for()
        await asyncio.sleep(3)
        for number in range(RUNS):
            with closing(sqlite3.connect(path)) as database:
                text = f"changed {number}"
                database.execute(
                    "UPDATE agentjobs_entries SET error = ?, updated_at = ? WHERE number = 1", (text, time.time())
                )
                database.commit()
            started = time.perf_counter()
            await visited.page.locator("#rows .row", has_text=text).wait_for()
            found.append(time.perf_counter() - started)
            await asyncio.sleep(1.37)
    return found


async def main() -> None:
    """Measure, and print what was found beside the goals."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        await make(path)
        command = [sys.executable, "-m", "agentjobs_async", "serve", str(path), "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220, S603 - our own program
        address = (process.stdout or sys.stdin).readline().strip()
        measured: dict[str, float] = {}
        async with launched() as browser:
            paint, table = await painted(browser, address, patience=120)
            print(f"opened while the journal is read: figures after {paint:.2f} s")
            measured["s until the table while all is being read"] = table
            runs = [await painted(browser, address) for _ in range(RUNS)]
            measured["s until the figures of a new page"] = statistics.median(paint for paint, _ in runs)
            measured["s until its table"] = statistics.median(table for _, table in runs)
            for pages in (1, PAGES):
                word = f"{pages} page{'' if pages == 1 else 's'}"
                measured[f"% of a core, {word}, nothing changes"] = await quiet(process.pid, address, pages)
            measured["s until a change shows"] = statistics.median(await changed(browser, address, path))
        memory = peak_bytes(process.pid)
        async with ClientSession() as client, client.get(f"{address}events", headers={"Last-Event-ID": "x"}):
            ended = time.perf_counter()
            process.send_signal(signal.SIGINT)
            await asyncio.to_thread(process.wait)
            measured["s until the process has ended"] = time.perf_counter() - ended
    for name, value in measured.items():
        print(f"{name:>42}: {value:.2f} (goal {GOALS[name]})")
    print(f"{'MiB of memory at most':>42}: {memory / 2**20:.0f} ({ITEMS:,} items)")


if __name__ == "__main__":
    asyncio.run(main())
