"""The page for people who do not see it well, or use it without a mouse: what axe-core finds in it."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

from agentjobs_async.batch import Journal
from tests.browser import visit
from tests.report.served import served
from tests.report.stage import report_of, run_some

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

FIGURES: Final = "#show-charts"
PANELS: Final = ("#rows .row:has(a) .state", "#rows .row:first-child .state")  # of a completed and of an unknown item
CLICKS: Final = {
    "run.html": (FIGURES, *PANELS),
    "empty.html": (FIGURES,),
    "run": (FIGURES, *PANELS, "#panel [data-action=abandon]"),
    "empty": (FIGURES,),
}
"""What is clicked, one after another, in a report, and in a live page; each opens something."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def addresses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, str]]:
    """The addresses of the pages of a real run, and of those of an empty journal."""
    folder = tmp_path_factory.mktemp("accessible")
    await run_some(folder / "run.db")
    async with Journal.open(folder / "empty.db"):
        pass
    found = {}
    for name in ("run", "empty"):
        page = folder / f"{name}.html"
        page.write_text(await report_of(folder / f"{name}.db"), encoding="utf-8")
        found[page.name] = page.as_uri()
    async with served(folder / "run.db", allow_actions=True) as run, served(folder / "empty.db") as empty:
        yield {**found, "run": run.address, "empty": empty.address}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", CLICKS)
async def test_no_fault(browser: "Browser", addresses: dict[str, str], name: str, width: int, scheme: str) -> None:
    """Nothing is found in a page, with its figures, panels and questions open, and no text is too faint."""
    size = {"width": width, "height": 900}
    async with visit(browser, addresses[name], color_scheme=scheme, viewport=size) as visited:
        await visited.page.wait_for_selector("html[data-ready]", state="attached")
        assert await visited.faults() == []
        for selector in CLICKS[name]:
            if selector in PANELS:
                await visited.page.keyboard.press("Escape")  # on a phone, a panel covers the rows
            await visited.page.locator(selector).first.click()
            assert await visited.faults() == []
