"""How quickly does a browser show the report of 100,000 items, as a file and as the live page?

Of the file: its size, the CPU time to write it, the time until it can be used in a browser, and the longest one from a
letter in the search to the rows that have the text, the first letter half a second later. Of the live page: the time until
its first rows, opened while the journal is still being read and later, and from the commit of a change to its row on the
page. Each is the median of five visits, but for the first.

docs/reports.md quotes the size, the search and the live page.

    pip install -e '.[test,browser,cli]'
    python benchmarks/bench_report.py
"""

import asyncio
import random
import signal
import sqlite3
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from measuring import arguments, parsed, print_table
from playwright.async_api import Browser

from agentjobs_async.batch import Journal
from agentjobs_async.report import write_report

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.browser import launched, visit

VISITS = 5
WORDS, VOCABULARY = 12, 10_000  # of a prompt, and of all
COLUMNS = (
    "number, key, prompt, project_id, state, job_id, pr_link, error, sent_at, updated_at, planned_at, counted_at, "
    "created_at, seen_at, ended_at, polls, tries, changed_at"
)


def rows(count: int) -> Iterator[tuple[object, ...]]:
    """Return rows as a run leaves them: 60 jobs at once, job ids of 48 random bits, times to a microsecond.

    Their prompts have nothing in common but single words.
    """
    chance = random.Random(7)  # noqa: S311 - the same rows each time
    words = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 10))) for _ in range(VOCABULARY)]
    planned = time.time() - 10 * 86_400
    free = [planned] * 60
    for number in range(1, count + 1):
        slot = min(range(60), key=free.__getitem__)
        sent = free[slot] + chance.random() / 2
        created, seconds = sent + 0.08 + chance.random() / 5, chance.lognormvariate(4.2, 0.7)
        ended = free[slot] = created + seconds
        state = chance.choices(("completed", "failed", "unknown", "rejected"), (93, 5, 1, 1))[0]
        has_job = state in {"completed", "failed"}
        prompt = " ".join(chance.sample(words, WORDS))
        yield (
            *(number, f"page-{number}", prompt, ("docs", "billing", "search")[number % 3], state),
            f"job_{chance.getrandbits(48):012x}" if has_job else None,
            f"https://code.example/acme/docs/pull/{1000 + number}" if state == "completed" else None,
            None if state == "completed" else "the agent failed: its tests do not pass",
            *(sent, ended, planned, sent, created if has_job else None, ended if has_job else None),
            *(None if state == "unknown" else ended, round(seconds / 7) + 1, 1, ended),
        )


async def make(path: Path, count: int) -> None:
    """Make the journal, by SQL: a run would take a day."""
    async with Journal.open(path):
        pass
    placeholders = ",".join("?" * len(COLUMNS.split(",")))
    with closing(sqlite3.connect(path)) as database:
        database.executemany(f"INSERT INTO agentjobs_items ({COLUMNS}) VALUES ({placeholders})", rows(count))  # noqa: S608 - our own names
        database.commit()


# Types a text into the search; returns the seconds that its slowest letter took to be drawn.
SEARCH = """async (text) => {
    const search = document.getElementById('search');
    const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    let slowest = 0;
    for (let length = 1; length <= text.length; length += 1) {
        const started = performance.now();
        search.value = text.slice(0, length);
        search.dispatchEvent(new Event('input', { bubbles: true }));
        await drawn();
        slowest = Math.max(slowest, performance.now() - started);
    }
    return slowest / 1000;
}"""


async def of_file(browser: Browser, path: Path) -> dict[str, str]:
    """Write the page, and open it."""
    page, started, usable, searched = path.with_suffix(".html"), time.process_time(), [], []
    async with Journal.open(path, read_only=True) as journal:
        with page.open("w", encoding="utf-8") as stream:
            await write_report(journal, stream)
    seconds = time.process_time() - started
    for _ in range(VISITS):
        async with visit(browser, page.as_uri(), viewport={"width": 1280, "height": 900}) as seen:
            await seen.page.wait_for_selector("html[data-ready]", state="attached")
            usable.append(await seen.page.evaluate("performance.now() / 1000"))
            await asyncio.sleep(0.5)
            searched.append(await seen.page.evaluate(SEARCH, "page-77"))
    return {
        "the file": f"{page.stat().st_size / 2**20:.1f} MiB",
        "written with": f"{seconds:.2f} s of CPU",
        "usable in a browser after": f"{median(usable):.2f} s",
        "searched within": f"{median(searched):.2f} s",
    }


@contextmanager
def served(path: Path) -> Iterator[str]:
    """Serve the live page in a process of its own; return its address."""
    command = [sys.executable, "-m", "agentjobs_async", "serve", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own program
        assert process.stdout is not None  # noqa: S101 - a pipe, as above
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)


async def first_row(browser: Browser, address: str) -> float:
    """Return the seconds from opening the page until its table has a row."""
    started = time.perf_counter()
    async with visit(browser, address) as seen:
        await seen.page.locator("#rows .row").first.wait_for()
    return time.perf_counter() - started


async def changes(browser: Browser, address: str, path: Path) -> list[float]:
    """Return the seconds from the commit of a change to its row on a page, some times."""
    found = []
    async with visit(browser, address) as seen:
        await seen.page.locator("#rows .row").first.wait_for()
        await asyncio.sleep(3)
        for number in range(VISITS):
            now, text = time.time(), f"changed {number}"
            first = "SELECT min(number) FROM agentjobs_items WHERE state = 'unknown'"  # the page begins with it
            change = f"UPDATE agentjobs_items SET error = ?, updated_at = ?, changed_at = ? WHERE number = ({first})"  # noqa: S608 - our own names
            with closing(sqlite3.connect(path)) as database:
                database.execute(change, (text, now, now))
                database.commit()
            started = time.perf_counter()
            await seen.page.locator("#rows .row", has_text=text).wait_for()
            found.append(time.perf_counter() - started)
            await asyncio.sleep(1.37)
    return found


async def main() -> None:
    """Measure, print."""
    parser = arguments(__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    options = parsed(parser, items=2_000)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        await make(path, options.items)
        async with launched() as browser:
            figures = await of_file(browser, path)
            with served(path) as address:
                figures["live: first rows while the journal is read"] = f"{await first_row(browser, address):.2f} s"
                later = [await first_row(browser, address) for _ in range(VISITS)]
                figures["live: first rows of a further page"] = f"{median(later):.2f} s"
                figures["live: a change shows after"] = f"{median(await changes(browser, address, path)):.2f} s"
    print_table(f"A report of {options.items:,} items", ["", "figure"], [list(row) for row in figures.items()])


if __name__ == "__main__":
    asyncio.run(main())
