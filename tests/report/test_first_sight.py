"""What a reader sees at first: how the journal stands, why items have no result, and the words of each row."""

import csv
from http import HTTPStatus
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from agentjobs_async.batch import BatchItem, Journal
from tests.aged import aged_journal
from tests.browser import expect, visit
from tests.report.served import served
from tests.report.stage import fail_all, report_of, run_some
from tests.report.test_page import csv_of, keys_shown, opened, write

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

LONG_KEY = "docs/handbook/chapters/getting-started/with-a-first-batch/page-7.md"
STANDING = "#standing .stands"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a real run, which left one item planned."""
    path = tmp_path_factory.mktemp("sight") / "run.db"
    await run_some(path)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def written(template: Path) -> Path:
    """The page of the real run."""
    return await write(template)


async def test_verdict_first(browser: "Browser", written: Path) -> None:
    """Above all figures stands how the journal stands, with the command to continue, which a button copies."""
    async with opened(browser, written, permissions=["clipboard-read", "clipboard-write"]) as visited:
        page = visited.page
        await expect(page.locator(STANDING)).to_contain_text("1 planned; 3 need you")
        tops = [await page.locator(each).bounding_box() for each in (STANDING, "#outcomes", "#reasons", "#table")]
        heights = [box["y"] for box in tops if box is not None]
        assert len(heights) == 4
        assert heights == sorted(heights)
        await page.click("#standing .copy")
        await expect(page.locator("#standing .copy")).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == (
            f"agentjobs resume {written.with_suffix('.db')} --emulator"
        )
    async with visit(browser, written.as_uri(), java_script_enabled=False) as plain:
        await expect(plain.page.locator("#standing code")).to_contain_text("agentjobs resume")
        await expect(plain.page.locator("#standing .copy")).to_be_hidden()


async def test_live_verdict(browser: "Browser", tmp_path: Path) -> None:
    """A live page has the sentence of a report, and changes it as the journal's owner comes and goes."""
    path = tmp_path / "run.db"
    await aged_journal(path, [3600.0] * 9, ages=[60.0])
    async with served(path) as page, visit(browser, page.address) as visited:
        stands = visited.page.locator(STANDING)
        await expect(stands).to_contain_text("1 active, polled by nobody")
        async with Journal.open(path):
            await expect(stands).to_have_text("Running: ends in about 59 min")
            await expect(visited.page.locator("#standing .command")).to_have_count(0)
            assert "Running: ends in about 59 min" in await report_of(path)
        await expect(stands).to_contain_text("1 active, polled by nobody")
        await expect(visited.page.locator("#standing code")).to_have_text(f"agentjobs resume {path}")


async def test_reasons_filter(browser: "Browser", written: Path) -> None:
    """Each reason is a button with the number of its items, by pointer and keyboard; rows need not repeat it then."""
    async with opened(browser, written) as visited:
        page = visited.page
        assert sorted(await visited.texts("#reasons button")) == [
            *("1 \u00d7 HTTP 422", "1 \u00d7 HTTP 500 after the prompt was sent"),
            *("1 \u00d7 the agent failed", "1 \u00d7 the job was archived"),
        ]
        button = page.locator("#reasons button", has_text="HTTP 422")
        await expect(page.locator("#rows .row", has_text="HTTP 422")).to_have_count(1)
        await button.click()
        await expect(button).to_have_attribute("aria-pressed", "true")
        assert await keys_shown(visited) == ["page-6"]
        assert await visited.texts("#rows .detail") == [HTTPStatus(422).phrase]
        await button.press("Enter")
        assert len(await keys_shown(visited)) == 9
        await page.locator("#reasons button", has_text="the agent failed").press("Space")
        assert await keys_shown(visited) == ["page-3"]
        await page.click("#clear")
        assert len(await keys_shown(visited)) == 9


async def test_words_of_a_row(browser: "Browser", written: Path) -> None:
    """What a row shows is found by the search and is in the file, which is the one that a report writes."""
    async with opened(browser, written) as visited:
        rows = {row["key"]: row for row in csv.DictReader(StringIO(await csv_of(visited)))}
        report = csv.DictReader(StringIO(await report_of(written.with_suffix(".db"), format="csv")))
        assert rows == {row["key"]: row for row in report}
        assert [rows[key]["error"] for key in ("page-3", "page-7")] == ["the agent failed", "the job was archived"]
        name = rows["page-1"]["pull_request"]
        assert name.startswith("acme/billing#job_")
        assert await visited.texts("#rows .row:has-text('page-1') a") == [name]
        for key, row in rows.items():
            state, detail = (f"#rows .row:has-text('{key}') {cell}" for cell in (".state", ".detail"))
            shown = [key, *await visited.texts(state), *await visited.texts(detail), row["error"]]
            for words in filter(None, shown):
                assert any(words in cell for cell in row.values())
                await visited.page.fill("#search", words)
                assert key in await keys_shown(visited)
                await visited.page.fill("#search", "")


async def test_times_are_relative(browser: "Browser", tmp_path: Path) -> None:
    """A time is told as people say it, with the time in UTC as its title; a panel, seen on phones too, shows both."""
    path = tmp_path / "run.db"
    await aged_journal(path, [60.0])
    async with opened(browser, await write(path)) as visited:
        started = visited.page.locator("#rows .begun time")
        await expect(started).to_have_text("4\u00a0h ago")
        title = await started.get_attribute("title")
        assert title is not None
        assert title.endswith(" UTC")
        await visited.page.click("#rows .row")
        await expect(visited.page.locator("#panel dl")).to_contain_text(f"Job created4\u00a0h ago {title}")


@pytest.mark.parametrize("width", [390, 1280])
async def test_long_keys_and_one_project(browser: "Browser", tmp_path: Path, width: int) -> None:
    """A key that is a path keeps its last part in sight, and a project that all items have takes no room."""
    path = tmp_path / "run.db"
    async with Journal.open(path) as journal:
        await journal.add([BatchItem(LONG_KEY, "p", "docs"), BatchItem("b", "p", "docs")])
        page = await write(path)
        await journal.add([BatchItem("c", "p", "billing")])
    viewport = {"width": width, "height": 800}
    async with opened(browser, page, viewport=viewport) as visited:
        assert (await keys_shown(visited))[0] == LONG_KEY
        cut = "parts => parts.map((part) => part.scrollWidth > part.clientWidth)"
        assert await visited.page.locator("#rows .path span").evaluate_all(cut) == [True, False]
        assert await visited.page.locator("#rows .key").first.evaluate("key => key.scrollWidth <= key.clientWidth")
        assert not await visited.page.is_visible(".head .project")
        columns = await visited.page.locator("#rows .row").first.evaluate(
            "row => getComputedStyle(row).gridTemplateColumns"
        )
        assert len(columns.split()) == (6 if width == 1280 else 2)
    async with opened(browser, await write(path), viewport=viewport) as visited:
        assert await visited.page.is_visible(".head .project") is (width == 1280)


async def test_commands_break_at_spaces(browser: "Browser", tmp_path: Path) -> None:
    """Each word of a command stands on one line on a phone, and is copied whole."""
    path = tmp_path / "run.db"
    await fail_all(path, [BatchItem(LONG_KEY, "p")])
    async with opened(browser, await write(path), viewport={"width": 390, "height": 844}) as visited:
        await visited.page.click("#rows .row")
        words = visited.page.locator("#panel .command >> nth=0 >> .word")
        assert await words.evaluate_all("words => words.map((word) => word.getClientRects().length)") == [1] * 5
        assert await visited.texts("#panel code >> nth=0") == [f"agentjobs retry --journal {path} {LONG_KEY}"]
        assert await visited.page.evaluate("document.documentElement.scrollWidth") == 390


async def test_where_to_look_first(browser: "Browser", written: Path) -> None:
    """The panel of an unknown item says first where to look for its job, then the three choices."""
    async with opened(browser, written) as visited:
        await visited.page.click("#rows .row >> nth=0")
        titles = await visited.texts("#panel h3")
        assert titles.index("First") + 1 == titles.index("Then one of these, in a terminal")
        await expect(visited.page.locator("#panel .look p")).to_contain_text(
            "Look in project docs, for a job created about"
        )
        await expect(visited.page.locator("#panel .command")).to_have_count(3)
        await visited.page.click("#rows .row >> nth=1")
        await expect(visited.page.locator("#panel .look")).to_have_count(0)


async def test_archived_items_are_left_out(browser: "Browser", template: Path) -> None:
    """The button counts the agents that it would start: archived items are among them where they alone are chosen."""
    async with served(template, allow_actions=True) as page, visit(browser, page.address) as visited:
        button = visited.page.locator("#actions [data-action=retry]")
        await expect(button).to_have_text("Start 2 agents")
        await visited.page.select_option("#state", "archived")
        await expect(button).to_have_text("Start 1 agent")
        await visited.page.select_option("#state", "")
        await visited.page.fill("#search", "page-7")
        await expect(button).to_be_hidden()
        await visited.page.fill("#search", "")
        await visited.page.locator("#reasons button", has_text="the job was archived").click()
        await expect(button).to_have_text("Start 1 agent")


# Returns the heights of the bars of the histogram, and what stands beside its counts.
BARS = """() => [
    [...document.querySelectorAll('#histogram rect')].map((bar) => Math.round(bar.getBoundingClientRect().height)),
    [...document.querySelectorAll('#histogram .count')].map((count) => count.textContent),
]"""


async def test_bars_that_would_hide(browser: "Browser", tmp_path: Path) -> None:
    """The counts of durations have a logarithmic scale where the lowest bar would hide beside the highest one."""
    await aged_journal(tmp_path / "few.db", [60.0] * 20 + [1200.0])
    await aged_journal(tmp_path / "many.db", [60.0] * 60 + [1200.0])
    for name, counts, is_logarithmic in (
        ("few", ["0", "5", "10", "15", "20"], False),
        ("many", ["0", "1", "10", "100"], True),
    ):
        async with opened(browser, await write(tmp_path / f"{name}.db")) as visited:
            await visited.page.click("#show-charts")
            await expect(visited.page.locator("#duration-hint")).to_contain_text("logarithmic")
            bars, shown = await visited.page.evaluate(BARS)
            assert shown == counts
            assert (bars[-1] > bars[0] / 10) is is_logarithmic


HATCHED = """() => {
    const { moveTo } = CanvasRenderingContext2D.prototype;
    let lines = 0;
    CanvasRenderingContext2D.prototype.moveTo = function (...at) {
        lines += 1;
        moveTo.apply(this, at);
    };
    report.drawCharts();
    CanvasRenderingContext2D.prototype.moveTo = moveTo;
    return lines;
}"""


async def test_what_nobody_saw_is_hatched(browser: "Browser", tmp_path: Path) -> None:
    """The chart hatches the time in which active jobs were not polled, and says what that means; else it does not."""
    for seconds, is_hatched in ((1800.0, True), (0.0, False)):
        path = tmp_path / f"{seconds:.0f}.db"
        await aged_journal(path, [60.0], ages=[3600.0], unseen_seconds=seconds)
        async with opened(browser, await write(path)) as visited:
            await visited.page.click("#show-charts")
            legend = await visited.texts("#legend li")
            assert ("nobody looked at the jobs" in legend) is is_hatched
            assert (await visited.page.evaluate(HATCHED) > 200) is is_hatched  # in both


async def test_no_jargon(browser: "Browser", written: Path) -> None:
    """The figures have the words that everybody knows."""
    async with opened(browser, written) as visited:
        await visited.page.click("#show-charts")
        assert await visited.texts("#figures .name") == ["duration", "polled every", "throughput"]
