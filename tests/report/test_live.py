"""The live page in a real browser."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from agentjobs_async import JournalError
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.report import board
from agentjobs_async.report.document import Document
from agentjobs_async.report.live import status
from agentjobs_async.report.serving import running
from tests.aged import aged_journal
from tests.browser import Visit, expect, visit
from tests.report.served import Served, served
from tests.report.stage import OUTCOMES, rows_of, run_some

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Route

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a real run."""
    path = tmp_path_factory.mktemp("live") / "run.db"
    await run_some(path)
    return path


@asynccontextmanager
async def opened(browser: "Browser", page: Served, *, token: bool = False, **options: Any) -> AsyncIterator[Visit]:
    """Open a page, with its token or without, and wait until it is live."""
    address = f"{page.address}#token={page.token}" if token else page.address
    async with visit(browser, address, **options) as visited:
        await expect(visited.page.locator("#live")).to_have_text("connected")
        yield visited


async def plan(path: Path) -> None:
    """Plan one more item, as another process does."""
    async with Journal.open(path) as journal:
        await journal.add([BatchItem("late-1", "Document it", "docs")])


def row(page: "Page", text: str) -> Any:
    return page.locator("#rows .row", has_text=text)


async def test_live_update(browser: "Browser", run: Path) -> None:
    """A change of another process is shown in the table, the figures and the filter, and nothing is fetched for it."""
    async with served(run) as page, opened(browser, page) as visited:
        await expect(visited.page.locator("#rows .row")).to_have_count(len(OUTCOMES) + 1)
        await expect(visited.page.locator("h1")).to_have_text(str(run))
        await visited.page.fill("#search", "late")
        await expect(visited.page.locator("#rows .row")).to_have_count(0)
        await plan(run)
        await expect(row(visited.page, "late-1")).to_have_count(1)
        assert await visited.texts("#count") == [f"1 of {len(OUTCOMES) + 2}"]
        await expect(visited.page.locator('[data-tile="planned"] .value')).to_have_text("2")
        assert [url.removeprefix(page.address) for url in visited.requests] == ["", "rows", "events"]
        assert await visited.page.locator("#actions button").count() == 0


NOTING_WORKERS = """
new MutationObserver(() => {
  if (document.getElementById('live')?.textContent !== 'connected') return;
  window.workersWereShown ??= !document.getElementById('workers').hidden;
}).observe(document, { subtree: true, childList: true, characterData: true });
"""


async def test_live_once_the_workers_are_shown(browser: "Browser", run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page calls itself live when its workers are shown, not before: they move the rows down."""

    async def workers(_journal: Journal) -> list[dict[str, Any]]:
        return [{"name": "worker-1", "active": 1, "heard": 0, "dead": False}]

    monkeypatch.setattr(status, "_shown_workers", workers)
    async with served(run) as page, visit(browser, "about:blank") as visited:
        await visited.page.add_init_script(NOTING_WORKERS)
        await visited.page.goto(page.address)
        await expect(visited.page.locator("#live")).to_have_text("connected")
        assert await visited.page.evaluate("workersWereShown") is True


async def test_action_with_the_token(browser: "Browser", run: Path) -> None:
    """With the token, a click tries an item again, and its panel shows the new try; the token leaves the address."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        assert visited.page.url == page.address
        await row(visited.page, f"page-{OUTCOMES.index('failed') + 1}").click(position={"x": 20, "y": 10})
        await visited.page.click("#panel [data-action=retry]")
        await expect(visited.page.locator("#panel .badge")).to_have_text("planned")
        await expect(visited.page.locator("#notice")).to_have_text(f"1 item {AGAIN}.")
        assert await visited.texts("#panel [data-action]") == ["Withdraw"]


async def test_withdraw(browser: "Browser", run: Path) -> None:
    """What is planned is withdrawn, one item or all that the filter shows; a retry by name plans one again."""
    async with Journal.open(run) as journal:
        await journal.add([BatchItem(f"later-{number}", "Later", "docs") for number in range(5)])
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        button, notice = visited.page.locator("#actions [data-action=withdraw]"), visited.page.locator("#notice")
        await visited.page.fill("#search", "later-")
        await expect(button).to_have_text("Withdraw (5)")
        await row(visited.page, "later-0").click(position={"x": 20, "y": 10})
        await visited.page.click("#panel [data-action=withdraw]")
        await expect(visited.page.locator("#panel .badge")).to_have_text("abandoned")
        await expect(notice).to_have_text("1 item withdrawn, and not sent.")
        assert await visited.texts("#panel [data-action]") == ["Try again"]
        await expect(button).to_have_text("Withdraw (4)")
        await button.click()
        await expect(visited.page.locator("dialog p")).to_have_text("Withdraw: 4 items?")
        await visited.page.click(".sure")
        await expect(notice).to_have_text("4 items withdrawn, and not sent.")
        await expect(visited.page.locator("#actions [data-action=retry]")).to_be_hidden()  # never among many
        await visited.page.click("#panel [data-action=retry]")
        await visited.page.click(".sure")
        await expect(visited.page.locator("#panel .badge")).to_have_text("planned")
    found = {row.key: str(row.state) for row in await rows_of(run) if row.key.startswith("later-")}
    wanted = dict.fromkeys((f"later-{number}" for number in range(1, 5)), "abandoned")
    assert found == {"later-0": "planned", **wanted}


async def test_action_on_all_shown(browser: "Browser", run: Path) -> None:
    """What the filter leaves is changed once it is confirmed, and nothing else."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        button = visited.page.locator("#actions [data-action=retry]")
        await expect(button).to_have_text("Start 2 agents")
        await visited.page.select_option("#state", "rejected")
        await expect(button).to_have_text("Start 1 agent")
        await button.click()
        await expect(visited.page.locator("dialog p")).to_have_text("Start 1 agent?")
        await visited.page.click(".sure")
        await expect(visited.page.locator("#rows .row")).to_have_count(0)
        await expect(visited.page.locator("#search")).to_be_focused()  # the button is gone
        await expect(visited.page.locator("#total")).to_have_text(f"{len(OUTCOMES) + 1} items")
        await visited.page.click("#clear")
        await expect(button).to_have_text("Start 1 agent")


async def test_a_chosen_reason_stays(browser: "Browser", run: Path) -> None:
    """A reason that no item has any more stays a button while it is chosen: on a phone, only that shows all again."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        reason = visited.page.locator("#reasons button", has_text="the agent failed")
        await reason.click()
        await visited.page.click("#actions [data-action=retry]")
        await visited.page.click(".sure")
        await expect(visited.page.locator("#outcomes [data-tile=failed] .value")).to_have_text("0")
        await expect(visited.page.locator("#rows .row")).to_have_count(0)
        await expect(reason).to_have_attribute("aria-pressed", "true")
        await reason.click()
        await expect(visited.page.locator("#rows .row")).not_to_have_count(0)
        await expect(reason).to_have_count(0)


async def test_dangerous_buttons_look_dangerous(browser: "Browser", run: Path) -> None:
    """The panel shows what happened, then the prompt, then what to do; what may do harm has the colour of failures."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        await row(visited.page, "unknown").first.click(position={"x": 20, "y": 10})
        titles = ["Reason", "Prompt", "First", "Do it here", "Then one of these, in a terminal"]
        assert await visited.texts("#panel h3") == titles
        colours = {
            name: await visited.page.locator(f"{bar} [data-action={name}]").evaluate(
                "made => getComputedStyle(made).color"
            )
            for bar, name in (("#panel", "send_again"), ("#panel", "abandon"), ("#actions", "retry"))
        }
        failure = await visited.page.locator("#panel pre.error").evaluate("made => getComputedStyle(made).color")
        assert [colour == failure for colour in colours.values()] == [True, True, False]


async def test_no_question_while_a_request_runs(browser: "Browser", run: Path) -> None:
    """A button whose request runs asks nothing: the answer would be lost. A fault lets it ask again."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        answer = asyncio.Event()

        async def fail(route: "Route") -> None:
            await answer.wait()
            await route.fulfill(status=502, body="Try it later.")

        await visited.page.route("**/actions", fail)
        button, question = visited.page.locator("#actions [data-action=retry]"), visited.page.locator("dialog")
        await button.click()
        await visited.page.click(".sure")
        await expect(button).to_be_disabled()
        await button.click(force=True)
        assert not await question.is_visible()
        answer.set()
        await expect(visited.page.locator("#notice")).to_have_text("Try it later.")
        await button.click()
        await expect(question).to_be_visible()
        visited.errors.clear()  # the browser's own line on the 502


async def test_action_is_done_once(browser: "Browser", run: Path) -> None:
    """A row's button does nothing more once its action is done, also before the page is drawn anew."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        await row(visited.page, "failed").first.click(position={"x": 20, "y": 10})
        button, notice = visited.page.locator("#panel [data-action=retry]"), visited.page.locator("#notice")
        await visited.page.evaluate("live.delayedUntil = Infinity")
        await button.dispatch_event("click")
        await expect(notice).to_contain_text("1 item planned again")
        await button.dispatch_event("click")
        await visited.page.evaluate("live.delayedUntil = 0")
        await expect(visited.page.locator("#panel .badge")).to_have_text("planned")
        await expect(notice).to_contain_text("1 item planned again")
        assert sum(url.endswith("actions") for url in visited.requests) == 1


async def test_item_that_is_unknown_again(browser: "Browser", run: Path) -> None:
    """An item that was sent again, and became unknown again between two redraws, can be sent once more."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        await row(visited.page, "unknown").first.click(position={"x": 20, "y": 10})
        button = visited.page.locator("#panel [data-action=send_again]")
        done = {"done": 1, "refused": 0, "reasons": []}
        await visited.page.route("**/actions", lambda route: route.fulfill(json=done))
        await button.click()
        await visited.page.click(".sure")
        await expect(visited.page.locator("#notice")).to_contain_text("1 item planned again")
        await expect(button).to_be_disabled()
        await visited.page.evaluate("report.store.tries[report.panel.index] += 1; report.refresh()")
        await expect(button).to_be_enabled()


@pytest.mark.parametrize("size", [(1280, 900), (390, 844), (320, 568)])
async def test_double_clicks_confirm_nothing(browser: "Browser", run: Path, size: tuple[int, int]) -> None:
    """The question stands in the other half of the window than its button: a double click sends nothing again."""
    viewport = dict(zip(("width", "height"), size, strict=True))
    async with (
        served(run, allow_actions=True) as page,
        opened(browser, page, token=True, viewport=viewport) as visited,
    ):
        question, panel = visited.page.locator("dialog"), visited.page.locator("#panel")
        for bar in ("#actions", "#panel"):
            if bar == "#panel":
                await row(visited.page, "unknown").first.click(position={"x": 20, "y": 10})
            button = visited.page.locator(f"{bar} [data-action=send_again]")
            for edge in ("start", "end"):
                await button.evaluate("(made, block) => made.scrollIntoView({ block })", edge)
                await button.dblclick()
                await expect(question).to_be_visible()
                clicked, asked = [await each.bounding_box() for each in (button, question)]
                assert clicked is not None
                assert asked is not None
                is_above = clicked["y"] < size[1] / 2
                assert asked["y"] > size[1] / 2 if is_above else asked["y"] + asked["height"] < size[1] / 2
                await visited.page.keyboard.press("Enter")  # No has the focus
                await expect(question).to_be_hidden()
        assert [url for url in visited.requests if url.endswith("actions")] == []
        await button.click()
        await visited.page.click(".sure")
        await expect(panel.locator(".badge")).to_have_text("planned")
        await expect(panel).to_be_focused()


async def test_escape_is_no(browser: "Browser", run: Path) -> None:
    """Escape answers a question with No, and sends nothing; the panel stays open, and the next Escape closes it."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        keyboard, question = visited.page.keyboard, visited.page.locator("dialog")
        await visited.page.click("#actions [data-action=send_again]")
        await expect(question).to_be_visible()
        await keyboard.press("Escape")
        await expect(question).to_be_hidden()
        await expect(visited.page.locator("#actions [data-action=send_again]")).to_be_focused()
        await row(visited.page, "unknown").first.click(position={"x": 20, "y": 10})
        await visited.page.click("#panel [data-action=abandon]")
        await keyboard.press("Escape")
        await expect(question).to_be_hidden()
        await expect(visited.page.locator("#panel [data-action=abandon]")).to_be_focused()
        await keyboard.press("Escape")
        assert not await visited.page.is_visible("#panel")
        await expect(row(visited.page, "unknown").first).to_be_focused()
        assert [url for url in visited.requests if url.endswith("actions")] == []


AGAIN = "planned again, for a worker or agentjobs resume"
ACT_ON_MANY = """async (failing) => {
    const sizes = [];
    let shown;
    const page = {
        buttons: [],
        send: async ({ journal, rows: { failed = [], rejected = [] } }) => {
            sizes.push([failed.length, rejected.length]);
            if (sizes.length - 1 === failing) return { ok: false, status: 502, text: async () => '' };
            const outcome = { done: failed.length + rejected.length - 1, refused: 1, reasons: ['1 is planned'] };
            return { ok: true, json: async () => outcome };
        },
        say: (text, isGood) => { shown = [text, isGood]; },
    };
    const rows = Array.from({ length: 100_001 }, (_, number) => [number, number < 60_000 ? 'failed' : 'rejected', 1]);
    await Actions.prototype.act.call(page, 'retry', { journal: 'x', rows }, {});
    return [sizes, ...shown];
}"""


async def test_action_on_very_many(browser: "Browser", run: Path) -> None:
    """An action for more rows than one request may name is sent in parts; their outcomes are shown together."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        for failing, parts, shown in (
            (-1, [[50_000, 0], [10_000, 40_000], [0, 1]], "99,998 items {again}. 3 items refused: 1 is planned"),
            (
                *(1, [[50_000, 0], [10_000, 40_000]]),
                "49,999 items {again}. 1 item refused: 1 is planned The server answered with status 502.",
            ),
            (0, [[50_000, 0]], "The server answered with status 502."),
        ):
            assert await visited.page.evaluate(ACT_ON_MANY, failing) == [parts, shown.format(again=AGAIN), failing < 0]


async def test_resolve(browser: "Browser", run: Path) -> None:
    """An unknown item is given the job that was found; typing is not disturbed by changes of other items."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        await row(visited.page, "unknown").first.click(position={"x": 20, "y": 10})
        await visited.page.locator(".found input").press_sequentially("job_")
        await plan(run)
        await expect(row(visited.page, "late-1")).to_have_count(1)
        await visited.page.keyboard.type("found")
        await visited.page.keyboard.press("Enter")
        await expect(visited.page.locator("#panel .badge")).to_have_text("active")
        await expect(visited.page.locator("#panel dl")).to_contain_text("job_found")


MOVING = """state => {
    const { store } = report;
    const now = performance.now();
    store.state[store.key.indexOf('page-1')] = state; // was completed
    store.error[store.key.indexOf('page-7')] = state; // was archived
    live.workers = [{ name: state, active: 1, heard: 0, dead: false }];
    report.apply({});
    live.redraw();
    live.tick();
    return now;
}"""


async def move(page: "Page", state: str) -> float:
    """Have a page drawn anew in which a tile, a worker and a row at the top are new; return its time before."""
    started: float = await page.evaluate(MOVING, state)
    return started


async def drawn(page: "Page", since: float) -> None:
    """Wait until a page has been drawn since a time of it."""
    await page.wait_for_function("since => live.drawn > since", arg=since)


async def test_redraws_move_nothing_clicked(browser: "Browser", run: Path) -> None:
    """What is clicked while something new would move it is clicked: the page is drawn anew once the button is up."""
    async with served(run) as page, opened(browser, page) as visited:
        await visited.page.click("#show-charts")
        for state, target, clicked in (
            ("sending", row(visited.page, "page-5"), '#panel h2:text-is("page-5")'),
            ("active", visited.page.locator("#close"), "body:not(.with-panel)"),
            (
                "abandoned",
                visited.page.locator('[data-tile="archived"]'),
                "#rows:has(:text-is('page-7')):not(:has(:text-is('page-5')))",
            ),
            ("planned", visited.page.locator("#clear"), "#rows :text-is('page-5')"),
        ):
            await target.hover(position={"x": 20, "y": 10})
            before = await target.bounding_box()
            await visited.page.mouse.down()
            moved = await move(visited.page, state)
            assert await target.bounding_box() == before
            await visited.page.mouse.up()
            await visited.page.wait_for_selector(clicked, state="attached")
            await drawn(visited.page, moved)
            await expect(visited.page.locator("#workers .name")).to_have_text(state)


async def test_redraws_leave_the_focus(browser: "Browser", run: Path) -> None:
    """A redraw leaves the focus where it is, with what is typed and selected, though what has it moves."""
    async with served(run) as page, opened(browser, page) as visited:
        search = visited.page.locator("#search")
        await search.press_sequentially("page")
        await search.evaluate("search => search.setSelectionRange(1, 3)")
        link = row(visited.page, "page-5").locator("a")
        for state, target in (
            ("sending", row(visited.page, "page-1").locator("a")),  # it goes up by itself
            ("completed", search),
            ("active", visited.page.locator('[data-state="archived"]')),
            ("abandoned", link),
            ("planned", row(visited.page, "page-5")),
            ("failed", visited.page.locator("#state")),
        ):
            await target.focus()
            await drawn(visited.page, await move(visited.page, state))
            await expect(target).to_be_focused()
        assert await search.evaluate("search => [search.value, search.selectionStart, search.selectionEnd]") == [
            "page",
            1,
            3,
        ]
        await link.focus()
        await visited.page.evaluate("scrollTo(0, 10_000); report.table.draw(0, 0)")  # as if it were out of sight
        await expect(link).to_be_focused()


async def test_escape_gives_the_focus_back(browser: "Browser", run: Path) -> None:
    """Escape closes the panel, and the row that it is of has the focus; a search keeps it, and its text."""
    async with served(run) as page, opened(browser, page) as visited:
        search = visited.page.locator("#search")
        await search.fill("page")
        await row(visited.page, "page-1").click(position={"x": 20, "y": 10})
        await visited.page.focus("#close")
        await drawn(visited.page, await move(visited.page, "sending"))
        await visited.page.keyboard.press("Escape")
        await expect(row(visited.page, "page-1")).to_be_focused()
        await visited.page.keyboard.press("Enter")
        await search.focus()
        await visited.page.keyboard.press("Escape")
        assert not await visited.page.is_visible("#panel")
        await expect(search).to_be_focused()
        await expect(search).to_have_value("page")


async def test_redraws_leave_an_open_panel(browser: "Browser", run: Path) -> None:
    """A change of the row in an open panel leaves half-done clicks, awaited confirmations and typed text."""
    async with served(run, allow_actions=True) as page, opened(browser, page, token=True) as visited:
        await row(visited.page, "unknown").first.click(position={"x": 20, "y": 10})
        button = visited.page.locator("#panel [data-action=abandon]")
        await button.hover()
        await visited.page.mouse.down()
        await poll_once_more(visited.page, 1)
        await visited.page.mouse.up()
        await expect(visited.page.locator("dialog")).to_be_visible()
        await poll_once_more(visited.page, 2)
        await visited.page.keyboard.press("Enter")
        await expect(button).to_be_focused()
        await visited.page.locator(".found input").press_sequentially("job_")
        await poll_once_more(visited.page, 3)
        await visited.page.keyboard.type("found")
        await expect(visited.page.locator(".found input")).to_have_value("job_found")
        await visited.page.evaluate("getSelection().selectAllChildren(document.querySelector('#panel dd'))")
        selected = await visited.page.evaluate("getSelection().toString()")
        await poll_once_more(visited.page, 4)
        assert selected
        assert await visited.page.evaluate("getSelection().toString()") == selected


async def poll_once_more(page: "Page", polls: int) -> None:
    """Change the number of polls of the row in the panel, and draw the page anew."""
    await page.evaluate("polls => { report.store.polls[report.panel.index] = polls; report.refresh(); }", polls)
    await expect(page.locator("#panel dl")).to_contain_text(f"Polls{polls}")


async def test_action_without_the_token(browser: "Browser", run: Path) -> None:
    """Without the token, the page shows everything, and an action says what it needs."""
    async with served(run, allow_actions=True) as page, opened(browser, page) as visited:
        await row(visited.page, "failed").first.click(position={"x": 20, "y": 10})
        await visited.page.click("#panel [data-action=retry]")
        await expect(visited.page.locator("#notice")).to_contain_text("This needs the token of the address")
        await expect(visited.page.locator("#panel .badge")).to_have_text("failed")
        visited.errors.clear()  # the browser's own line on the 401


@contextmanager
def kept_port() -> Iterator[int]:
    """Yield a free port that no other process takes, also while no server listens on it."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, which listen beside it
        keeper.bind(("127.0.0.1", 0))
        yield int(keeper.getsockname()[1])


async def test_page_that_slept(browser: "Browser", run: Path) -> None:
    """A page whose server was gone is whole again when there is one: also of another process, whose log is another."""
    async with AsyncExitStack() as stack, ClientSession() as client:
        port = stack.enter_context(kept_port())
        async with Journal.open(run, read_only=True) as journal, running(board(journal), port):
            page = Served(f"http://127.0.0.1:{port}/", "", client)
            visited = await stack.enter_async_context(opened(browser, page))
            await visited.page.fill("#search", "page-")
        await expect(visited.page.locator("#live")).to_have_text("reconnecting …")
        async with Journal.open(run) as journal:
            await journal.retry(f"page-{OUTCOMES.index('failed') + 1}")
            await journal.add([BatchItem("page-late", "Document it", "docs")])
        async with Journal.open(run, read_only=True) as journal, running(board(journal), port):
            await expect(row(visited.page, "page-late")).to_have_count(1)
            await expect(row(visited.page, "failed")).to_have_count(0)
            await expect(visited.page.locator("#rows .row")).to_have_count(len(OUTCOMES) + 2)
            await visited.page.evaluate("report.apply({ identity: 'another' }); report.refresh()")
            await expect(visited.page.locator("#rows .row")).to_have_count(0)  # none of them is one of that journal
            visited.errors.clear()  # the browser's own lines on the server that was gone
            await visited.page.close()  # before it meets the end of this one


async def test_silent_connection(browser: "Browser", run: Path) -> None:
    """A connection that is silent for long is given up, as after the sleep of a laptop, and a new one goes on."""
    async with served(run) as page, opened(browser, page) as visited:
        async with visited.page.expect_request("**/events"):
            await visited.page.evaluate("live.heard = 0; live.check()")  # as if it had slept for years
        await plan(run)
        await expect(row(visited.page, "late-1")).to_have_count(1)


async def test_token_for_reading(browser: "Browser", run: Path) -> None:
    """A board with a token of its own shows its rows with the printed address, and says so without."""
    async with served(run, token="t" * 16) as page:
        async with opened(browser, page, token=True) as visited:
            await expect(visited.page.locator("#rows .row")).to_have_count(len(OUTCOMES) + 1)
        async with visit(browser, page.address) as visited:
            await expect(visited.page.locator("#live")).to_contain_text("needs the token")
            await visited.page.click("#theme")  # without rows
            assert await visited.page.get_attribute("html", "data-theme") == "dark"
            visited.errors.clear()


async def test_without_scripts(browser: "Browser", run: Path) -> None:
    """Without scripts, the counts and the unknown and failed items can be read."""
    async with served(run) as page:
        async with visit(browser, page.address, java_script_enabled=False) as visited:
            assert await visited.texts('[data-tile="failed"] .value') == ["1"]
            await expect(visited.page.locator("#plain tbody tr")).to_have_count(2)


class PausedAtFirst:
    """Holds the reading of rows after the first one, then goes on, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.go_on = asyncio.Event()
        self._error = error
        self._add = Document.add
        monkeypatch.setattr(Document, "add", lambda *given, **options: self._paused(*given, **options))  # noqa: PLW0108 - bound as a method is

    async def _paused(self, document: Document, rows: Any, *, prompts: bool) -> None:
        await self._add(document, rows[:1], prompts=prompts)
        await self.go_on.wait()
        await self._add(document, rows[1:], prompts=prompts)
        error, self._error = self._error, None
        if error is not None:
            raise error


async def test_rows_are_shown_while_others_are_read(
    browser: "Browser", run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is opened before all rows are read shows those that are, beside the figures of all items."""
    paused = PausedAtFirst(monkeypatch)
    async with served(run) as page, visit(browser, page.address) as visited:
        await expect(visited.page.locator("#rows .row")).to_have_count(1)
        await expect(visited.page.locator("#live")).to_have_text("loading, 1 so far")
        assert await visited.texts("#total") == [f"{len(OUTCOMES) + 1} items"]
        assert await visited.texts('[data-tile="completed"] .value') == ["4"]
        paused.go_on.set()
        await expect(visited.page.locator("#live")).to_have_text("connected")
        await expect(visited.page.locator("#rows .row")).to_have_count(len(OUTCOMES) + 1)


async def test_rows_that_are_cut_off(browser: "Browser", run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page whose rows end early, since the journal could not be read on, asks again and gets all of them."""
    paused = PausedAtFirst(monkeypatch, JournalError("the disk is gone", "io"))
    async with served(run) as page, visit(browser, page.address) as visited:
        await expect(visited.page.locator("#rows .row")).to_have_count(1)
        paused.go_on.set()
        await expect(visited.page.locator("#live")).to_have_text("connected")
        await expect(visited.page.locator("#rows .row")).to_have_count(len(OUTCOMES) + 1)


async def test_long_prompts(browser: "Browser", tmp_path: Path) -> None:
    """A prompt of any length is whole in its panel, and its end is found, in what was there and in what comes."""
    prompts = [f"{'begin ' * 50_000} end {index}" for index in range(2)]
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem("k0", prompts[0], "docs")])
        async with served(journal) as page, opened(browser, page) as visited:
            await journal.add([BatchItem("k1", prompts[1], "docs")])
            await expect(visited.page.locator("#rows .row")).to_have_count(2)
            for index, prompt in enumerate(prompts):
                await visited.page.fill("#search", f" end {index}")
                await row(visited.page, f"k{index}").click()
                assert await visited.page.locator("#panel pre.prompt").text_content() == prompt


async def test_time_left(browser: "Browser", tmp_path: Path) -> None:
    """The page says in the panel of an active job when it will end, by its age."""
    path = tmp_path / "run.db"
    await aged_journal(path, [7200.0] * 20, ages=[1.0, 2700.0])
    async with served(path) as page, opened(browser, page) as visited:
        await row(visited.page, "item-21").click()
        await expect(visited.page.locator("#panel")).to_contain_text("Ends inabout 2 h, 9 of 10 within 2 h")
        await row(visited.page, "item-22").click()
        await expect(visited.page.locator("#panel")).to_contain_text("Ends inabout 1.3 h, 9 of 10 within 1.3 h")
        await row(visited.page, "item-20").click()
        await expect(visited.page.locator("#panel")).not_to_contain_text("Ends in")
