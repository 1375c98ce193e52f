"""Draw the picture of a report: plots/report.png, of a real run on the emulator, in an installed browser.

python benchmarks/picture_report.py
"""

import asyncio
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from agentjobs_async.batch import BatchItem, Journal, run_batch
from agentjobs_async.report import write_report
from agentjobs_async.testing import Emulator, Fault, JobScript
from tests.browser import launched, visit

PICTURE = Path(__file__).parent / "plots" / "report.png"
ITEMS, ACTIVE = 240, 24
TASKS = ("Document the endpoint", "Fix the broken links of page", "Raise the test coverage of module")
PROJECTS = ("docs", "billing", "search")


async def run(journal: Journal) -> None:
    """Run items of several seconds; some fail, some are refused, some are unknown."""
    chance = random.Random(1)  # noqa: S311 - the same picture each time
    items = [BatchItem(f"page-{n}", f"{TASKS[n % 3]} {n}", PROJECTS[n % 3]) for n in range(1, ITEMS + 1)]
    async with Emulator() as emulator:
        for item in items:
            outcome = chance.choices(("completed", "failed", "archived", "500", "422"), (88, 6, 2, 1.5, 2))[0]
            if outcome.isdigit():
                await emulator.inject(Fault.parse(outcome), prompt=item.prompt)
            else:
                script = JobScript(duration=chance.lognormvariate(0.6, 0.6), outcome=outcome)
                emulator.script(script, prompt=item.prompt)
        settings = {"journal": journal, "max_active": ACTIVE, "unknown_for": 0}
        async with emulator.session() as session, run_batch(session, items, **settings) as results:
            async for _ in results:
                pass


async def main() -> None:
    """Run, report and draw."""
    with TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        async with Journal.open(Path(folder) / "run.db") as journal:
            await run(journal)
            with page.open("w", encoding="utf-8") as stream:
                await write_report(journal, stream)
        page.write_text(page.read_text(encoding="utf-8").replace(f"{folder}/", ""), encoding="utf-8")
        async with (
            launched() as browser,
            visit(browser, page.as_uri(), viewport={"width": 1280, "height": 960}) as seen,
        ):
            await seen.page.wait_for_selector("html[data-ready]", state="attached")
            await seen.page.wait_for_timeout(500)
            await seen.page.screenshot(path=PICTURE)


asyncio.run(main())
