"""The page in a real browser."""

import csv
import os
import re
import shlex
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from attrs import astuple

from agentjobs_async import JobRef
from agentjobs_async.batch import BatchItem, Journal, State
from agentjobs_async.report.figures import Figures
from tests.aged import aged_journal
from tests.browser import Visit, expect, visit
from tests.report.served import served
from tests.report.stage import HOSTILE, HOSTILE_KEYS, OUTCOMES, fail_hostile, report_of, run_some

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

IN_ORDER = [
    f"page-{index + 1}"
    for index, _ in sorted(enumerate((*OUTCOMES, "planned")), key=lambda each: list(State).index(State(each[1])))
]
"""The keys as the page shows them: by the order of states, and within one as the journal has them."""

# Notes where the first row is, when the page says that it is ready.
NOTING = """
    window.topOfRows = () => document.querySelector('#rows .row').getBoundingClientRect().top;
    window.noted = new Promise((note) => {
        new MutationObserver(() => {
            if (document.documentElement.dataset.ready !== 'true') return;
            note(topOfRows());
        }).observe(document, { subtree: true, attributeFilter: ['data-ready'] });
    });
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a real run, whose path is not UTF-8."""
    journal = tmp_path_factory.mktemp("report") / os.fsdecode(b"run\xff.db")
    await run_some(journal)
    return await write(journal)


async def write(journal: Path, **options: Any) -> Path:
    page = journal.with_suffix(".html")
    page.write_text(await report_of(journal, **options), encoding="utf-8")
    return page


@asynccontextmanager
async def opened(browser: "Browser", page: Path, **options: Any) -> AsyncIterator[Visit]:
    """Open a page, and wait until its script has read the rows."""
    async with visit(browser, page.as_uri(), **options) as visited:
        await visited.page.wait_for_selector("html[data-ready]", state="attached")
        yield visited


async def keys_shown(visited: Visit) -> list[str]:
    return await visited.page.locator("#rows .cell.key").all_text_contents()


async def open_row(visited: Visit, index: int) -> None:
    """Click where the panel does not cover the row."""
    await visited.page.locator("#rows .row").nth(index).click(position={"x": 20, "y": 10})


async def test_all_items(browser: "Browser", written: Path) -> None:
    """The table has every item, the tiles say how they ended, and nothing is fetched."""
    async with opened(browser, written) as visited:
        assert await keys_shown(visited) == IN_ORDER
        assert await visited.texts("#rows .row:first-child .prompt") == ["Document the page 4"]
        states = Counter(OUTCOMES)
        assert await visited.texts('[data-tile="unknown"] .value') == [str(states["unknown"])]
        assert await visited.texts('[data-tile="completed"] .value') == [str(states["completed"])]
        assert visited.requests == [written.as_uri()]


@pytest.mark.parametrize(("width", "height", "lowest"), [(1280, 900, 450), (390, 844, 560)])
async def test_rows_stay_where_they_are(
    browser: "Browser", tmp_path: Path, width: int, height: int, lowest: int
) -> None:
    """The first row is high on a screen when the page, of a file or live, is ready, and does not move."""
    journal = tmp_path / "run.db"
    await aged_journal(journal, [], ages=[3600.0] * 20)
    file = await write(journal)
    async with served(journal) as live:
        for address in (file.as_uri(), live.address):
            async with visit(browser, "about:blank", viewport={"width": width, "height": height}) as visited:
                await visited.page.clock.install()
                await visited.page.add_init_script(NOTING)
                await visited.page.goto(address)
                top = await visited.page.evaluate("noted")
                assert top < lowest
                await visited.page.clock.fast_forward(1000)  # more than the delay of later drawings
                assert await visited.page.evaluate("topOfRows()") == top


async def test_tiles_with_and_without_scripts(browser: "Browser", written: Path) -> None:
    """The script shows the same tiles as stand in plain HTML, with the unknown first."""
    async with visit(browser, written.as_uri(), java_script_enabled=False) as plain:
        before = await plain.texts(".tile span")
        assert not await plain.page.is_visible("#search")
    async with opened(browser, written) as visited:
        assert await visited.texts(".tile span") == before
    assert before[0] == "unknown"


async def test_extreme_shares(browser: "Browser", tmp_path: Path) -> None:
    """One item among very many is not 0.0 % of them, nor are the others all, with and without scripts."""
    await aged_journal(tmp_path / "run.db", [], ages=[60.0])
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem(f"k{number}", "p", "docs") for number in range(1000)])
    page = await write(tmp_path / "run.db")
    for scripts in (True, False):
        async with visit(browser, page.as_uri(), java_script_enabled=scripts) as visited:
            for state, share in (("active", "< 0.1 %"), ("planned", "> 99.9 %"), ("failed", "0.0 %")):
                await expect(visited.page.locator(f'[data-tile="{state}"] .note')).to_have_text(share)


# Shows a tile of each state, all figures, and large numbers. Returns what is beside the grid, cut, or breaks in a
# name or before a unit, how many columns the states have, and how wide the page is.
LARGE_FIGURES = Figures(Counter(dict.fromkeys(State, 100_000)), [3599.2], [3599.2])
LARGE_TILES = """(figures) => {
    showTiles(tilesOf(figures), '');
    const isOnOneLine = (node, start, end) => {
        const range = document.createRange();
        range.setStart(node, start);
        range.setEnd(node, end);
        return range.getClientRects().length <= 1; // 0: a phone shows no notes
    };
    const wrong = [];
    let columns;
    for (const list of document.querySelectorAll('.tiles')) {
        const boxes = [...list.children].map((tile) => tile.getBoundingClientRect());
        const lefts = [...new Set(boxes.map((box) => Math.round(box.left)))];
        columns ??= lefts.length;
        boxes.forEach((box, index) => {
            if (Math.round(box.left) !== lefts[index % lefts.length]) wrong.push(`${index} is beside its column`);
            if (Math.abs(box.width - boxes[0].width) > 1) wrong.push(`${index} is not as wide as the first`);
        });
        for (const span of list.querySelectorAll('span')) {
            const { textContent: words, firstChild: text } = span;
            if (span.scrollWidth > span.clientWidth) wrong.push(`cut: ${words}`);
            const parts = words.matchAll(span.className === 'note' ? /[\\d.,]+\\s(s|min|h|%)/g : /.+/g);
            for (const { index, 0: part } of parts) {
                if (!isOnOneLine(text, index, index + part.length)) wrong.push(`broken: ${part}`);
            }
        }
    }
    for (const each of document.querySelectorAll('#rows .row, .toolbar')) {
        if (each.scrollWidth > each.clientWidth) wrong.push(`cut: ${each.className}`);
    }
    return [wrong, columns, document.documentElement.scrollWidth];
}"""


@pytest.mark.parametrize(("width", "columns"), [(320, 3), (390, 3), (768, 7), (1280, 9), (1920, 9)])
async def test_tiles_keep_their_grid(browser: "Browser", written: Path, width: int, columns: int) -> None:
    """Tiles are as wide as each other, in columns, at every width; no number or row is cut, no name or unit breaks."""
    async with opened(browser, written, viewport={"width": width, "height": 900}) as visited:
        await visited.page.click("#show-charts")
        assert await visited.page.evaluate(LARGE_TILES, LARGE_FIGURES.document()) == [[], columns, width]


async def test_search(browser: "Browser", written: Path) -> None:
    """A search finds keys, prompts and errors, in any case, and can be cleared."""
    async with opened(browser, written) as visited:
        await visited.page.fill("#search", "THE PAGE 7")
        assert await keys_shown(visited) == ["page-7"]
        assert await visited.texts("#count") == ["1 of 9"]
        await visited.page.fill("#search", "422")
        assert await keys_shown(visited) == ["page-6"]
        await visited.page.fill("#search", "nothing like it")
        assert await visited.texts("#empty") == ["No item matches."]
        await visited.page.click("#clear")
        assert len(await keys_shown(visited)) == 9


async def test_long_prompts(browser: "Browser", tmp_path: Path) -> None:
    """However many and long they are, prompts are whole: in a search, in the panel, and in the page's file."""
    prompts = [f"begin {'long ' * 10_000} end {index}" for index in range(400)]
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem(f"k{index}", prompt, "docs") for index, prompt in enumerate(prompts)])
    async with opened(browser, await write(tmp_path / "run.db")) as visited:
        await visited.page.fill("#search", " end 7")
        await expect(visited.page.locator("#count")).to_have_text("11 of 400")
        await open_row(visited, 0)
        assert await visited.page.locator("#panel pre.prompt").text_content() == prompts[7]
        rows = [*csv.DictReader(StringIO(await csv_of(visited)))]
        assert [row["prompt"] for row in rows] == [prompt for prompt in prompts if " end 7" in prompt]


async def test_browser_that_is_too_old(browser: "Browser", written: Path) -> None:
    """A browser that can't unpack the rows says so in one sentence, and shows what stands in plain HTML."""
    async with visit(browser, "about:blank") as visited:
        await visited.page.add_init_script("delete globalThis.DecompressionStream")
        await visited.page.goto(written.as_uri())
        words = "This browser can't unpack this page's table of all items: open the page in a newer one."
        await expect(visited.page.get_by_role("alert")).to_have_text(words)
        assert await visited.texts("#plain .key") == ["page-4", "page-3"]
        assert await visited.page.is_visible('[data-tile="unknown"]')
        assert not await visited.page.is_visible("#search")
    async with visit(browser, written.as_uri(), java_script_enabled=False) as plain:
        assert not await plain.page.is_visible("#old")


async def test_filters(browser: "Browser", written: Path) -> None:
    """States and projects filter the table; so does a tile."""
    async with opened(browser, written) as visited:
        await visited.page.select_option("#state", "completed")
        assert await keys_shown(visited) == ["page-1", "page-2", "page-5", "page-8"]
        await visited.page.select_option("#project", label="docs")
        assert await keys_shown(visited) == ["page-2", "page-8"]
        await visited.page.click("#clear")
        await visited.page.click('[data-tile="failed"] button')
        assert await keys_shown(visited) == ["page-3"]


async def test_the_choice_of_projects(browser: "Browser", tmp_path: Path) -> None:
    """Each project is a choice, which shows its items alone."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem("a", "p", "docs"), BatchItem("b", "p", "billing")])
    async with opened(browser, await write(tmp_path / "run.db")) as visited:
        assert await visited.texts("#project option") == ["All projects", "billing", "docs"]
        assert len(await keys_shown(visited)) == 2
        await visited.page.select_option("#project", label="docs")
        assert await keys_shown(visited) == ["a"]


async def test_sorting(browser: "Browser", written: Path) -> None:
    """A column's title sorts by it, then backwards, then by the state."""
    async with opened(browser, written) as visited:
        title = visited.page.locator('[data-column="key"] button')
        forwards = [f"page-{number}" for number in range(1, 10)]
        for expected in (forwards, forwards[::-1], IN_ORDER):
            await title.click()
            assert await keys_shown(visited) == expected


async def test_open_a_row_and_copy_its_command(browser: "Browser", written: Path) -> None:
    """A row opens to its prompt, error, pull request and commands; these can be copied; a link sends no referrer."""
    async with opened(browser, written, permissions=["clipboard-read", "clipboard-write"]) as visited:
        await visited.page.click("#rows .row >> nth=0")
        panel = await visited.page.inner_text("#panel")
        assert "Document the page 4" in panel
        assert "HTTP 500" in panel
        await visited.page.click("#panel .copy >> nth=1")
        read = await visited.page.wait_for_function("navigator.clipboard.readText()")  # the page copies when it may
        copied = await read.json_value()
        journal = rf"${written.parent}/run\xff.db"  # as bash reads it: $'...'
        assert shlex.split(copied) == ["agentjobs", "resolve", "--journal", journal, "--send-again", "page-4"]
        await visited.page.keyboard.press("Escape")
        assert not await visited.page.is_visible("#panel")
        link = visited.page.locator("#rows .row a").first
        assert (await link.get_attribute("href") or "").startswith("https://code.example/acme/")
        assert await link.get_attribute("rel") == "noopener noreferrer nofollow"


async def test_token_of_a_job(browser: "Browser", written: Path) -> None:
    """The token in a command is the one that `JobRef.to_token` gives, whatever the ids."""
    refs = [JobRef("docs", "job_1"), JobRef("a b~", "x/\u00e9'()*!-_.%\U0001f680")]
    async with opened(browser, written) as visited:
        for ref in refs:
            assert await visited.page.evaluate("ids => jobToken(...ids)", [*astuple(ref)]) == ref.to_token()


async def test_keyboard(browser: "Browser", written: Path) -> None:
    """The keyboard reaches the search, the rows and the panel."""
    async with opened(browser, written) as visited:
        keyboard = visited.page.keyboard
        await keyboard.press("/")
        await keyboard.type("page")
        for key in ("ArrowDown", "ArrowDown", "Enter"):
            await keyboard.press(key)
        assert await visited.texts("#panel h2") == [IN_ORDER[1]]
        await keyboard.press("ArrowDown")
        assert await visited.texts("#panel h2") == [IN_ORDER[2]]
        await visited.page.focus("#panel .copy >> nth=0")
        await keyboard.press("Escape")
        assert not await visited.page.is_visible("#panel")
        await keyboard.press("ArrowDown")  # the keyboard is on the row again
        await keyboard.press("Enter")
        assert await visited.texts("#panel h2") == [IN_ORDER[3]]


async def test_next_row_begins_at_its_top(browser: "Browser", tmp_path: Path) -> None:
    """A row opens at the beginning of its panel and of its prompt, wherever those of the last one were scrolled to."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem(f"k{number}", "line\n" * 200, "docs") for number in range(4)])
    async with opened(browser, await write(tmp_path / "run.db"), viewport={"width": 1280, "height": 400}) as visited:
        for index in range(4):
            await open_row(visited, index)
            panel, prompt = visited.page.locator("#panel"), visited.page.locator("#panel pre.prompt")
            for part in (panel, prompt):
                assert await part.evaluate("part => part.scrollTop") == 0
                assert await part.evaluate("part => { part.scrollTop = 90; return part.scrollTop; }") == 90
            if index == 1:
                await visited.page.keyboard.press("Escape")
            if index == 2:
                await prompt.focus()
                await visited.page.evaluate("report.open(report.table.indexes[3])")  # as where it was tried again
                await expect(panel).to_be_focused()
                await visited.page.evaluate("report.open(report.table.indexes[2])")


async def csv_of(visited: Visit) -> str:
    async with visited.page.expect_download() as download:
        await visited.page.click("#csv")
    return Path(await (await download.value).path()).read_text(encoding="utf-8")  # noqa: ASYNC240 - a test's own file


async def test_csv_of_the_rows_shown(browser: "Browser", written: Path) -> None:
    """The file has the rows that the filter leaves."""
    async with opened(browser, written) as visited:
        await visited.page.select_option("#state", "failed")
        rows = [*csv.DictReader(StringIO(await csv_of(visited)))]
    assert [(row["key"], row["state"], row["prompt"]) for row in rows] == [("page-3", "failed", "Document the page 3")]


async def test_csv_is_that_of_a_report(browser: "Browser", tmp_path: Path) -> None:
    """The page's table is the one that a report writes, contexts, extras and what looks like a formula included."""
    contexts: list[dict[str, Any] | None] = [
        None,
        {"key": "=1+1", "context.key": "own", "size": -5, "to": ["a", {"b": None}]},
        {"size": "-7 m"},
    ]
    extras: list[dict[str, Any] | None] = [{"branch": "=main", "size": 2}, {"size": 3, "key": [1]}, None]
    async with Journal.open(tmp_path / "run.db", clock=lambda: 1e9 + 0.1236) as journal:
        fields = enumerate(zip(contexts, extras, strict=True))
        await journal.add([BatchItem(f"k{index}", "-p", "docs", *each) for index, each in fields])
    for prompts in (True, False):
        async with opened(browser, await write(tmp_path / "run.db", prompts=prompts)) as visited:
            assert await csv_of(visited) == await report_of(tmp_path / "run.db", format="csv", prompts=prompts)


async def test_colours(browser: "Browser", written: Path) -> None:
    """The page is as light or as dark as its reader's system, until the reader turns it."""
    brightness = "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    for scheme in ("light", "dark"):
        async with opened(browser, written, color_scheme=scheme) as visited:
            assert (await visited.page.evaluate(brightness) > 128) is (scheme == "light")
            await visited.page.click("#theme")
            assert (await visited.page.evaluate(brightness) > 128) is (scheme == "dark")


async def test_narrow_screen(browser: "Browser", written: Path) -> None:
    """A phone shows the page without scrolling sideways, with the panel over it."""
    async with opened(browser, written, viewport={"width": 390, "height": 844}) as visited:
        assert await visited.page.evaluate("document.documentElement.scrollWidth") == 390
        await visited.page.click("#rows .row >> nth=2")
        box = await visited.page.locator("#panel").bounding_box()
        assert box is not None
        assert (box["x"], box["width"]) == (0, 390)


async def test_long_path_on_a_phone(browser: "Browser", tmp_path: Path) -> None:
    """The path in the title of a page, of a file or live, breaks at its slashes."""
    journal = tmp_path / "all-the-batches-of-a-team" / "documentation-of-pages.db"
    journal.parent.mkdir()
    async with Journal.open(journal):
        pass
    file = await write(journal)
    async with served(journal) as live:
        for address in (file.as_uri(), live.address):
            async with visit(browser, address, viewport={"width": 390, "height": 844}) as visited:
                await visited.page.wait_for_selector("html[data-ready]", state="attached")
                title = visited.page.locator("h1")
                await expect(title).to_have_text(str(journal))
                heights = await title.evaluate("title => [...title.children].map((part) => part.offsetHeight)")
                assert len(heights) == len(journal.parts)
                assert await title.evaluate("title => title.offsetHeight") > heights[0] == min(heights) == max(heights)


async def test_rows_out_of_sight(browser: "Browser", tmp_path: Path) -> None:
    """Rows are drawn as they come into sight, and as many as 2,000 are printed, in sight or not."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem(f"k{number}", "p", "docs") for number in range(3000)])
    async with opened(browser, await write(tmp_path / "run.db")) as visited:
        await visited.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        await visited.page.wait_for_selector("#rows .row[data-position='2999']")
        assert await visited.page.locator("#rows .row").count() < 100
        await visited.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert len(await keys_shown(visited)) == 2000


THOUSANDS_AT_ONCE = """() => {
    const { store } = report;
    const jobs = Array.from({ length: 5003 }, (_, index) => index); // 5,000 that ended, then three
    jobs.forEach((index) => store.indexOf(index + 1));
    store.state = jobs.map(() => 'completed');
    store.created_at = jobs.map((index) => (index < 5000 ? 1000 : 200_000));
    store.ended_at = jobs.map((index) => (index < 5000 ? 100_000 + index : 900_000));
    report.shown = jobs;
}"""

# Draws the charts; returns the texts that are drawn beside their axes.
AXES = """() => {
    const drawn = [];
    const { prototype } = CanvasRenderingContext2D;
    const { fillText } = prototype;
    prototype.fillText = function (text, ...rest) {
        drawn.push(text);
        fillText.call(this, text, ...rest);
    };
    report.drawCharts();
    prototype.fillText = fillText;
    return drawn;
}"""


@pytest.mark.parametrize("width", [390, 1280])
async def test_thousands_of_jobs_at_once(browser: "Browser", written: Path, width: int) -> None:
    """The chart fits the page with 5,000 concurrent jobs, in few elements; zoomed, it is of the jobs that it shows."""
    async with opened(browser, written, viewport={"width": width, "height": 900}) as visited:
        page = visited.page
        await page.click("#show-charts")
        await page.evaluate(THOUSANDS_AT_ONCE)
        texts = await page.evaluate(AXES)
        assert texts[:7] == ["0", "1,000", "2,000", "3,000", "4,000", "5,000", "UTC"]
        assert await page.evaluate("document.documentElement.scrollWidth") == width
        boxes = [await page.locator(chart).bounding_box() for chart in ("#active", "#timeline", "#histogram")]
        assert all(box and box["height"] <= 520 and box["x"] + box["width"] <= width for box in boxes)
        assert await page.locator("#charts *").count() < 200
        await page.evaluate("report.timeline.zoom([500_000, 800_000])")
        texts = await page.evaluate(AXES)
        assert texts[:5] == ["0", "1", "2", "3", "UTC"]
        box = await page.locator("#timeline").bounding_box()
        assert box is not None
        assert box["height"] == 3 * 14


WEEKS = 21 * 86_400


async def hours_shown(visited: Visit) -> float:
    """Return the hours from the start to the end of the chart of jobs over time."""
    return float(await visited.page.evaluate("(report.timeline.span[1] - report.timeline.span[0]) / 3_600_000"))


async def test_busy_span(browser: "Browser", tmp_path: Path) -> None:
    """The chart shows the hour of a batch of which one job ended weeks later; a button the weeks, as they grow."""
    await aged_journal(tmp_path / "run.db", [*range(600, 3601, 300), WEEKS])
    async with opened(browser, await write(tmp_path / "run.db")) as visited:
        await visited.page.click("#show-charts")
        button = visited.page.locator("#zoom-out")
        for words, least, most in (("Whole span", 1, 1.1), ("Busy span", 504, 504), ("Whole span", 1, 1.1)):
            await expect(button).to_have_text(words)
            assert least <= await hours_shown(visited) <= most
            await button.click()
        assert "UTC" in await visited.page.inner_text("#time-hint")
        later = "end => { report.store.ended_at[report.store.key.indexOf('item-12')] += end; report.drawCharts(); }"
        await visited.page.evaluate(later, WEEKS * 1000)  # as on a live page
        assert await hours_shown(visited) == 1008


async def test_report_made_weeks_later(browser: "Browser", tmp_path: Path) -> None:
    """Jobs that nobody polls any more are shown as active until they were last seen, others until now."""
    path = tmp_path / "run.db"
    await aged_journal(path, [], ages=[WEEKS - second for second in range(0, 1800, 60)], unseen_seconds=WEEKS - 3600)
    async with opened(browser, await write(path)) as visited:
        await visited.page.click("#show-charts")
        assert 0.99 < await hours_shown(visited) < 1.01
        assert not await visited.page.is_visible("#zoom-out")
    await aged_journal(tmp_path / "now.db", [], ages=[7200.0, 3600.0], unseen_seconds=1800.0)
    async with opened(browser, await write(tmp_path / "now.db")) as visited:
        await visited.page.click("#show-charts")
        assert 1.99 < await hours_shown(visited) < 2.01


async def test_time_axis(browser: "Browser", written: Path) -> None:
    """The axis names UTC, and has round times, with the date at midnight, however long a span it shows."""
    async with opened(browser, written) as visited:
        await visited.page.click("#show-charts")
        await visited.page.evaluate("report.store.created_at.fill(0); report.store.ended_at.fill(2e12)")
        start = 1_795_046_400_000 - 3_723_456  # before midnight
        for seconds, pattern in (
            (1, r"\d\d:\d\d:\d\d\.\d00"),
            (40, r"\d\d:\d\d:\d[05]"),
            (3000, r"\d\d:\d[05]"),
            (36_000, r"\d\d:00|11-19"),
            (864_000, r"\d\d-\d\d"),
        ):
            await visited.page.evaluate("span => report.timeline.zoom(span)", [start, start + seconds * 1000])
            texts = await visited.page.evaluate(AXES)
            times = texts[texts.index("UTC") + 1 :]
            assert len(times) >= 3
            assert [time for time in times if not re.fullmatch(pattern, time)] == []


async def test_words_for_emptiness(browser: "Browser", written: Path, tmp_path: Path) -> None:
    """An empty chart says whether it is of a filter, and of what; a job that took no time has ended."""
    histogram = "#histogram .none"
    async with Journal.open(tmp_path / "run.db"):
        pass
    async with opened(browser, await write(tmp_path / "run.db")) as visited:
        await visited.page.click("#show-charts")
        assert await visited.page.evaluate(AXES) == ["no job has been created"]
        await expect(visited.page.locator(histogram)).to_have_text("no job has ended")
    async with opened(browser, written) as visited:
        await visited.page.click("#show-charts")
        await visited.page.select_option("#state", "planned")
        assert await visited.page.evaluate(AXES) == ["no job of this filter has been created"]
        await expect(visited.page.locator(histogram)).to_have_text("no job of this filter has ended")
        await visited.page.select_option("#state", "failed")
        await visited.page.evaluate("report.timeline.zoom([0, 1000])")
        assert await visited.page.evaluate(AXES) == ["no job of this filter in this span"]
        await visited.page.evaluate("report.store.ended_at = [...report.store.created_at]")
        await visited.page.evaluate("report.drawCharts()")
        await expect(visited.page.locator("#histogram rect")).to_have_count(1)


async def test_drag_that_ends_outside(browser: "Browser", written: Path) -> None:
    """A drag over the chart zooms where it ends, beside the chart, too; the next click leaves the zoom as it is."""
    async with opened(browser, written) as visited:
        await visited.page.click("#show-charts")
        mouse, range_now = visited.page.mouse, "JSON.stringify(report.timeline.range)"
        box = await visited.page.locator("#active").bounding_box()
        assert box is not None
        await mouse.move(box["x"] + 150, box["y"] + 60)
        await mouse.down()
        await mouse.move(box["x"] + 300, box["y"] - 60)
        await mouse.up()
        zoomed = await visited.page.evaluate(range_now)
        assert zoomed != "null"
        await mouse.click(box["x"] + 400, box["y"] + 60)
        assert await visited.page.evaluate(range_now) == zoomed


async def test_hostile_items(browser: "Browser", tmp_path: Path) -> None:
    """Hostile prompts, keys and errors are shown as text: nothing runs, nothing is fetched, and a shell is safe."""
    await fail_hostile(tmp_path / "run.db")
    page = await write(tmp_path / "run.db")
    async with opened(browser, page) as visited:
        keys = await keys_shown(visited)
        assert keys[-len(HOSTILE_KEYS) :] == [key.replace("\u202e", "\\u202e") for key in HOSTILE_KEYS]
        for index in range(len(keys)):
            await open_row(visited, index)
            assert await visited.page.locator("#panel pre.prompt *").count() == 0
        prompt = await visited.page.inner_text("#panel pre.prompt")
        assert prompt == "Document it"
        await open_row(visited, 0)
        assert await visited.page.inner_text("#panel pre.prompt") == HOSTILE[0]
        await open_row(visited, 9)
        assert await visited.page.inner_text("#panel pre.prompt") == HOSTILE[9]
        await open_row(visited, 10)
        assert await visited.page.locator("#panel pre.prompt").text_content() == HOSTILE[10]
        csv.field_size_limit(max(csv.field_size_limit(), len(HOSTILE[10])))
        rows = [*csv.DictReader(StringIO(await csv_of(visited)))]
        assert rows[5]["prompt"].startswith("'=HYPERLINK")
        assert any(row["key"] == "'=1+1" for row in rows)
        assert visited.requests[0] == page.as_uri()
        assert all(address.startswith(("file:", "blob:")) for address in visited.requests)


async def test_nothing_yet(browser: "Browser", tmp_path: Path) -> None:
    """The page of an empty journal says what to do next."""
    async with Journal.open(tmp_path / "run.db"):
        pass
    async with opened(browser, await write(tmp_path / "run.db")) as visited:
        command = f"agentjobs run --file prompts.jsonl --journal {tmp_path}/run.db"
        assert await visited.texts("#empty") == [f"Plan some: {command} Copy"]
