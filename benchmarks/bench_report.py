"""Measure a report of 100,000 items: its size, how it is written, and how quickly a browser shows and searches it.

python benchmarks/bench_report.py [ITEMS]
"""

import asyncio
import os
import random
import resource
import sqlite3
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from agentjobs_async.batch import Journal
from agentjobs_async.report import write_report
from tests.browser import launched, visit

ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
RUNS = 5
GOALS = {"MiB of the page": 3, "s to write": 10, "MiB of memory": 200, "s until usable": 2, "s for a search": 0.2}
COLUMNS = (
    "number, key, prompt, project_id, state, job_id, pr_link, error, sent_at, updated_at, planned_at, claimed_at, "
    "created_at, seen_at, ended_at, polls, tries, changed_at"
)
SEARCH = """(text) => new Promise((done) => {
    const input = document.getElementById('search');
    const started = performance.now();
    input.value = text;
    input.dispatchEvent(new Event('input'));
    requestAnimationFrame(() => setTimeout(() => done((performance.now() - started) / 1000)));
})"""


def rows() -> Iterator[tuple[object, ...]]:
    """Return rows as a run leaves them: 60 jobs at once, job ids of 48 random bits, times to a microsecond."""
    chance, now = random.Random(7), time.time() - 86_400  # noqa: S311 - the same rows each time
    free = [now] * 60
    for number in range(1, ITEMS + 1):
        place = min(range(60), key=free.__getitem__)
        sent = free[place] + chance.random() / 2
        created, seconds = sent + 0.08 + chance.random() / 5, chance.lognormvariate(4.2, 0.7)
        ended = free[place] = created + seconds
        state = chance.choices(("completed", "failed", "unknown", "rejected"), (93, 5, 1, 1))[0]
        has_job, has_ended = state in {"completed", "failed"}, state != "unknown"
        yield (
            *(number, f"page-{number}", f"Document the page {number}: keep the style of the others, run the linters."),
            *(
                ("docs", "billing", "search")[number % 3],
                state,
                f"job_{chance.getrandbits(48):012x}" if has_job else None,
            ),
            f"https://code.example/acme/docs/pull/{1000 + number}" if state == "completed" else None,
            None if state == "completed" else "the agent failed: its tests do not pass",
            *(sent, ended, now, sent, created if has_job else None, ended if has_job else None),
            *(ended if has_ended else None, round(seconds / 7) + 1, 1, ended),
        )


async def written(folder: Path) -> dict[str, float]:
    """Write the page, and return what it cost."""
    async with Journal.open(folder / "run.db"):
        pass
    with closing(sqlite3.connect(folder / "run.db")) as database:
        marks = ",".join("?" * len(COLUMNS.split(",")))
        database.executemany(f"INSERT INTO agentjobs_entries ({COLUMNS}) VALUES ({marks})", rows())  # noqa: S608 - our own names
        database.commit()
    started, page = time.perf_counter(), folder / "report.html"
    async with Journal.open(folder / "run.db", read_only=True) as journal:
        with page.open("w", encoding="utf-8") as stream:
            await write_report(journal, stream)
    seconds, memory = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"MiB of the page": page.stat().st_size / 2**20, "s to write": seconds, "MiB of memory": memory}


async def shown(page: Path) -> dict[str, float]:
    """Open the page and search it several times; return the medians, and the requests that left it."""
    usable, searches, requests = [], [], 0
    async with launched() as browser:
        for run in range(RUNS):
            async with visit(browser, page.as_uri(), viewport={"width": 1280, "height": 900}) as seen:
                await seen.page.wait_for_selector("html[data-ready]", state="attached")
                usable.append(await seen.page.evaluate("performance.now() / 1000"))
                await seen.page.wait_for_timeout(1000)
                searches.append(await seen.page.evaluate(SEARCH, f"page-{run}77"))
                requests += len(seen.requests) - 1
    found = {"s until usable": statistics.median(usable), "s for a search": statistics.median(searches)}
    return {**found, "requests that left the page": requests}


async def main() -> None:
    """Print each figure beside its goal."""
    with TemporaryDirectory() as folder:
        figures = await written(Path(folder)) | await shown(Path(folder) / "report.html")
    print(f"{ITEMS:,} items, {os.cpu_count()} cores, median of {RUNS} visits")
    for name, figure in figures.items():
        print(f"{figure:10.2f}  {name} (goal: at most {GOALS.get(name, 0)})")


if __name__ == "__main__":
    asyncio.run(main())
