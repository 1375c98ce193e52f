"""The live page as its server answers: who may read and act, and what is streamed."""

import asyncio
import json
import logging
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing, closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from sqlalchemy import event
from sqlalchemy.engine import Engine

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async.batch import BatchItem, BatchWorker, Journal, State, Where, move_journal
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.settling import abandon
from agentjobs_async.report import board
from agentjobs_async.report.document import Document
from agentjobs_async.report.live.feed import ChangeFeed
from agentjobs_async.report.serving import running
from agentjobs_async.report.source import Source
from tests.batch.stage import FakeSession
from tests.report.served import Served, Stream, served, status_of
from tests.report.stage import OUTCOMES, answered_late, rows_of, run_some

pytestmark = pytest.mark.slow

FAILED = OUTCOMES.index("failed") + 1
UNKNOWN = OUTCOMES.index("unknown") + 1


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a real run."""
    path = tmp_path_factory.mktemp("board") / "run.db"
    asyncio.run(run_some(path))
    return path


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of one item."""
    path = tmp_path_factory.mktemp("planned") / "run.db"
    asyncio.run(add(path, "first"))
    return path


@pytest.fixture
def first(planned: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(planned, tmp_path / "run.db"))


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements that are executed."""
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        del connection, cursor, rest
        found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


async def add(path: Path, *keys: str) -> None:
    """Plan items, as another process does."""
    async with Journal.open(path) as journal:
        assert await journal.add([BatchItem(key, "Document it", "docs") for key in keys]) == []


async def test_document_and_changes(run: Path) -> None:
    """The document has all rows; the stream goes on with those that change, and only with these."""
    async with served(run) as page:
        head, block, end = await page.lines()
        assert head["journal"] == str(run)
        assert len(block["state"]) == len(OUTCOMES) + 1
        async with page.stream(end["position"]) as stream:
            await add(run, "late")
            changed = await stream.block()
    assert changed["number"] == [len(OUTCOMES) + 2]
    assert changed["key"] == ["late"]


async def test_change_with_a_long_prompt(run: Path) -> None:
    """An item that comes while the page is open comes with its whole prompt."""
    prompt = "x" * 100_000
    async with served(run) as page, page.stream(await page.position()) as stream:
        async with Journal.open(run) as journal:
            await journal.add([BatchItem("long", prompt, "docs")])
        assert (await stream.block())["prompt"] == [prompt]


async def test_changes_of_known_rows(run: Path) -> None:
    """A row that changes comes without its prompt, which pages have; a new one has it."""
    async with served(run) as page, page.stream(await page.position()) as stream:
        async with Journal.open(run) as journal:
            await journal.add([BatchItem("late", "Document it", "docs", {"title": "Start"})])
        block = await stream.block()
        assert (block["prompt"], block["context"]) == (["Document it"], [{"title": "Start"}])
        async with Journal.open(run) as journal:
            await journal.abandon("late")
        block = await stream.block()
        assert (block["key"], block["state"]) == (["late"], ["abandoned"])
        assert not {"prompt", "context"} & set(block)


async def test_figures_of_all_rows(run: Path) -> None:
    """A page gets the figures of all rows, each item counted once as its newest try, as they change."""

    async def counts() -> dict[str, str]:
        while (figures := (await stream.status()).get("figures")) is None:
            pass
        return {tile["name"]: tile["value"] for tile in figures["outcomes"]} | {"total": figures["total"]}

    async with served(run) as page, page.stream(await page.position()) as stream:
        before = await counts()
        assert (before["total"], before["failed"], before["planned"]) == (f"{len(OUTCOMES) + 1} items", "1", "1")
        async with Journal.open(run) as journal:
            await journal.retry(f"page-{FAILED}")
        after = await counts()
        assert (after["total"], after["failed"], after["planned"]) == (before["total"], "0", "2")


async def test_first_rows_come_at_once(first: Path) -> None:
    """The first rows of a document can be read before the others are: a live page shows them meanwhile."""
    await add(first, *map(str, range(2000)))
    document = Document()
    async with Journal.open(first, read_only=True) as journal:
        rows = [document.rows async for _ in document.read(await Source.of(journal))]
    assert 0 < rows[1] < 2001 == document.rows


async def test_retry_keeps_the_row(run: Path) -> None:
    """An item that is tried again is one row, as its newest try."""
    async with served(run) as page, page.stream(await page.position()) as stream:
        async with Journal.open(run) as journal:
            await journal.retry(f"page-{FAILED}")
        changed = await stream.block()
        assert (changed["number"], changed["state"], changed["tries"]) == ([FAILED], ["planned"], [2])
        _, block, _ = await page.lines()
    assert len(block["state"]) == len(OUTCOMES) + 1


async def test_many_pages_cost_one_look(first: Path, statements: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty pages get a change by one look, for as many queries as one page costs."""
    feeds: list[ChangeFeed] = []

    async def rest(feed: ChangeFeed) -> None:
        """Do not look by itself: how many looks fall into a time is the machine's business."""
        feeds.append(feed)
        await asyncio.Event().wait()

    monkeypatch.setattr(ChangeFeed, "run", rest)

    async def until(stream: Stream, key: str) -> None:
        while (await stream.block())["key"] != [key]:
            pass

    async def cost(page: Served, pages: int) -> int:
        async with AsyncExitStack() as stack:
            position = await page.position()
            streams = [await stack.enter_async_context(page.stream(position)) for _ in range(pages)]
            await add(first, f"late-{pages}")
            del statements[:]
            await feeds[0].look()
            await asyncio.gather(*(until(stream, f"late-{pages}") for stream in streams))
        return sum("changed_at >=" in statement for statement in statements)

    async with served(first) as page:
        assert 0 < await cost(page, 50) == await cost(page, 1)


async def test_stream_goes_on_where_it_broke(first: Path) -> None:
    """A page that comes back gets what it missed; one of another server has to start anew."""
    async with served(first) as page:
        position = await page.position()
        async with page.stream(position) as stream:
            await add(first, "second")
            await stream.block()
        await add(first, "third", "fourth")
        await page.lines()
        async with page.stream(position) as stream:
            keys = [*(await stream.block())["key"], *(await stream.block())["key"]]
        assert keys == ["second", "third", "fourth"]
        for foreign in ("abc.0", "", position + "9", "x"):
            async with page.stream(foreign) as stream:
                assert (await anext(stream))["event"] == "stale"


async def test_page_that_reads_slowly(first: Path) -> None:
    """A page that reads more slowly than the log forgets has to start anew, and keeps no line meanwhile."""
    async with Journal.open(first, read_only=True) as journal:
        feed = ChangeFeed(journal)
        await feed.look()
        async with aclosing(feed.frames(feed.log.event_id(0))) as frames:
            assert (await anext(frames)).startswith(b"event: status")
            for line in ("{}", "[]"):
                feed.log.add(line)
            assert await anext(frames) == b"id: %b\nevent: rows\ndata: {}\n\n" % feed.log.event_id(1).encode()
            feed.log.forget(2)
            assert await anext(frames) == b"event: stale\ndata: \n\n"


async def test_end_of_the_server_ends_streams(first: Path) -> None:
    """A server that stops does not wait for its streams."""
    async with Journal.open(first, read_only=True) as journal, ClientSession() as client:
        async with running(board(journal), 0) as port:
            page = Served(f"http://127.0.0.1:{port}/", "", client)
            stack = AsyncExitStack()
            stream = await stack.enter_async_context(page.stream(await page.position()))
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        await stack.aclose()


async def test_end_of_the_server_with_a_page_that_does_not_read(first: Path) -> None:
    """An application that stops breaks off a stream that its page does not read, however long it waits for requests."""
    items = [BatchItem(f"more-{number}", "x" * 2000, "docs") for number in range(5_000)]
    async with Journal.open(first) as journal, ClientSession() as client:
        runner = web.AppRunner(board(journal), shutdown_timeout=3600)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        page = Served(f"http://127.0.0.1:{runner.addresses[0][1]}/", "", client)
        position = await page.position()
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # bytes: it takes little unread
            connection.connect(("127.0.0.1", page.port))
            reader, writer = await asyncio.open_connection(sock=connection)
            writer.write(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nLast-Event-ID: {position}\r\n\r\n".encode())
            await journal.add(items)
            await reader.readuntil(b"event: rows\n")
            async with asyncio.timeout(60):
                await runner.cleanup()
            rest = await reader.read()
            writer.close()
    assert len(rest) < len(items) * 2000


async def test_foreign_host(first: Path) -> None:
    """A request to another name is refused: a name server may have led it here."""
    async with served(first) as page:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", "[x", "10.0.0.1"):
            for address in ("", "rows", "events"):
                async with page.client.get(page.address + address, headers={"Host": host}) as response:
                    assert response.status in {400, 403}
                    assert "page-1" not in await response.text()


async def test_own_hosts(first: Path) -> None:
    """The names of the loopback are its own, and those that are given."""
    async with served(first, hosts=("board.example",)) as page:
        assert await status_of(page.client.get(page.address, headers={"Host": "board.example"})) == 200
        assert await status_of(page.client.get(page.address)) == 403
    async with served(first) as page:
        for host in ("localhost:1", "LOCALHOST", "[::1]:8765", "127.0.0.1"):
            assert await status_of(page.client.get(page.address, headers={"Host": host})) == 200


REFUSED: list[tuple[dict[str, str], int]] = [
    ({}, 401),
    ({"Authorization": "Bearer wrong"}, 401),
    ({"Authorization": "Bearer \u00e4"}, 401),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://127.0.0.1:1"}, 403),
    ({"Host": "evil.example"}, 403),
    ({"Content-Type": "text/plain"}, 415),
]
"""Headers of an action, those of the first three without the token, and the status of the answer."""


async def test_refused_actions(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No action without the token, from another origin or host, or by what a form can send; nothing is changed."""
    before = await rows_of(run)
    failed = []
    async with served(run, allow_actions=True) as page:
        for headers, status in REFUSED:
            caplog.clear()
            given = headers if status == 401 else page.bearer | headers
            found, _ = await page.act("retry", FAILED, headers=given)
            if found != status or page.token in caplog.text or "was refused" not in caplog.text:
                failed.append((headers, found))
    assert failed == []
    assert await rows_of(run) == before


async def test_body_that_cannot_be_read(run: Path) -> None:
    """An action in a coding that nobody knows, or that is broken, is a bad request."""
    async with served(run, allow_actions=True) as page:
        for headers in ({"Content-Type": "application/json; charset=klingon"}, {"Content-Encoding": "gzip"}):
            given = page.bearer | {"Content-Type": "application/json"} | headers
            assert await status_of(page.client.post(f"{page.address}actions", data=b"{}", headers=given)) == 400


async def test_read_only_without_the_option(run: Path) -> None:
    """Without the option there is no action, whatever the token."""
    async with served(run) as page:
        assert await page.act("retry", FAILED) == (403, "The board is read-only: serve it with --allow-actions.")


async def test_actions(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Items are retried, resolved and abandoned; those that can't be are named, and the log has each action."""
    caplog.set_level(logging.INFO, "agentjobs_async.report")
    async with served(run, allow_actions=True) as page:
        origin = {"Origin": page.address.rstrip("/")}
        _, found = await page.act("retry", FAILED, 1, 999, headers=page.bearer | origin)
        assert (found["done"], found["refused"]) == (1, 2)
        assert any("page-1 is completed" in reason for reason in found["reasons"])
        assert any("no row 999" in reason for reason in found["reasons"])
        for job, words in (("JOB", "JOB stands for the job that you found"), ("~.", "not a job token: ~.")):
            _, found = await page.act("set_job", UNKNOWN, state="unknown", job=job)
            assert words in found["reasons"][0]
        assert (await page.act("set_job", UNKNOWN, state="unknown", job="billing~.job_x"))[1]["done"] == 1
        _, found = await page.act("abandon", UNKNOWN, state="unknown")
        assert found["reasons"] == [f"page-{UNKNOWN} is active by now, and was unknown on the page"]
        assert (await page.act("abandon", UNKNOWN, state="active"))[1]["done"] == 1
        assert (await page.act("send_again", UNKNOWN))[1]["refused"] == 1
    rows = {row.key: row for row in await rows_of(run)}
    assert rows[f"page-{FAILED}"].tries == 2
    assert (rows[f"page-{UNKNOWN}"].state, rows[f"page-{UNKNOWN}"].job_id) == (State.ABANDONED, "job_x")
    assert "retry of 3 rows for 127.0.0.1: 1 done, 2 refused" in caplog.text
    assert "set_job billing~.job_x of row 4" in caplog.text


async def test_stale_rows(run: Path) -> None:
    """An action on a row that was tried again since leaves the newer try alone, as does one on another journal."""
    async with Journal.open(run) as journal:
        again = await journal.retry(f"page-{FAILED}")
        records = Records(journal.store, "another", str)
        claim = str(await records.claim(again))
        assert await records.created(again, claim, JobRef("docs", "job_live"), None)
        (stale,) = await journal.unknown()
        await journal.resolve(stale.key, job_id="job_found")
        assert not await abandon(journal.store, stale)
    before = await rows_of(run)
    async with served(run, allow_actions=True) as page:
        for state in ("failed", "active"):
            _, found = await page.act("abandon", FAILED, state=state)
            words = f"page-{FAILED} was tried again meanwhile: the page showed try 1, and this is try 2"
            assert found["reasons"] == [words]
        status, words = await page.act("send_again", UNKNOWN, state="unknown", journal="another")
        assert (status, words) == (409, f"{run} is not the journal that the page shows: load the page anew")
    assert await rows_of(run) == before


async def test_withdrawals_of_stale_rows(run: Path) -> None:
    """Of rows that the page showed as planned, those are withdrawn that are so still, in the same try and journal."""
    async with Journal.open(run) as journal:
        await journal.add([BatchItem(f"later-{number}", "Later", "docs") for number in range(4)])
        await journal.abandon("later-1")
        await journal.retry("later-1")
        await journal.store.claim("later-2", "another")
        numbers = [row.number for row in await journal.rows(where=Where(prefix="later-"))]
    async with served(run, allow_actions=True) as page:
        status, words = await page.act("withdraw", *numbers, state="planned", journal="another")
        assert (status, words) == (409, f"{run} is not the journal that the page shows: load the page anew")
        _, found = await page.act("withdraw", *numbers, state="planned")
        assert (found["done"], found["refused"]) == (2, 2)
        assert "later-1 was tried again meanwhile: the page showed try 1, and this is try 2" in found["reasons"]
        _, found = await page.act("withdraw", UNKNOWN, state="unknown")
        assert found["reasons"] == [f"page-{UNKNOWN} is unknown, not planned"]
        _, found = await page.act("abandon", numbers[1], state="planned")
        assert (found["done"], found["refused"]) == (0, 1)
    rows = {row.key: str(row.state) for row in await rows_of(run) if row.key.startswith("later-")}
    assert {key: rows[key] for key in ("later-0", "later-1", "later-3")} == {
        "later-0": "abandoned",
        "later-1": "planned",
        "later-3": "abandoned",
    }


async def test_answered_late(first: Path) -> None:
    """A create that is answered after its item was sent again is shown with what to do, at once on open pages."""
    async with served(first) as page, page.stream(await page.position()) as stream:
        assert (await stream.status())["late"] == []
        await answered_late(first, "first", "job_late")
        while not (late := (await stream.status()).get("late")):
            pass
        assert late == ["first: try 1 is active, docs~.job_late; try 2 is planned"]
        async with page.client.get(page.address) as response:
            text = await response.text()
    assert late[0] in text
    assert "keep the result of one" in text


async def test_journal_that_lies_elsewhere(
    planned: Path, first: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was replaced or moved is left alone by actions, and pages say so, until it is back."""
    monkeypatch.setattr("agentjobs_async.report.live.feed._RETRY_SECONDS", 0.1)
    async with served(first, allow_actions=True) as page, page.stream(await page.position()) as stream:
        assert (await stream.status())["trouble"] is None
        identity = (await page.lines())[0]["identity"]
        kept = shutil.move(first, first.with_name("kept.db"))
        for words in ("was moved or removed", "was replaced"):
            while words not in ((await stream.status()).get("trouble") or ""):
                pass
            status, text = await page.act("retry", 1, journal=identity)
            assert (status, words in text) == (409, True)
            assert await status_of(page.client.get(page.address)) == 409
            shutil.copy(planned, first)
        shutil.move(kept, first)
        while (await stream.status()).get("trouble", "") is not None:
            pass
    async with Journal.open(first, read_only=True) as journal, served(journal) as page:
        async with page.stream(await page.position()) as stream:
            await move_journal(first, database)
            while "was moved to" not in ((await stream.status()).get("trouble") or ""):
                pass


async def test_retry_of_many(tmp_path: Path) -> None:
    """All rows that a page shows are retried at once, each of them once."""
    path = tmp_path / "run.db"
    await add(path, *(f"page-{number}" for number in range(450)))
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE agentjobs_items SET state = 'rejected', ended_at = 1")
    async with served(path, allow_actions=True) as page:
        numbers = [*range(1, 451)]
        assert (await page.act("retry", *numbers, *numbers, state="rejected"))[1] == {
            "done": 450,
            "refused": 0,
            "reasons": [],
        }
        assert (await page.act("retry", *numbers))[1]["refused"] == 450
    assert {row.tries for row in await rows_of(path)} == {2}


WRONG: list[dict[str, Any]] = [
    *({"action": "drop"}, {"journal": 7}, {"rows": [1]}, {"rows": {}}, {"rows": {"failed": 1}}, {"job": "x"}),
    *({"rows": {"failed": [["1", 1]]}}, {"rows": {"failed": [[True, 1]]}}, {"rows": {"bad": [[1, 1]]}}),
    *({"action": "set_job"}, {"action": "set_job", "job": 7}),
]
NO_ACTIONS = (
    *("[", "[]", "{}", "[" * 100_000),
    *(json.dumps({"action": "retry", "journal": "x", "rows": {"failed": [1]}} | fields) for fields in WRONG),
)


async def test_bodies_that_are_no_actions(first: Path) -> None:
    """What is no action is refused."""
    async with served(first, allow_actions=True) as page:
        headers = page.bearer | {"Content-Type": "application/json"}
        posts = [page.client.post(f"{page.address}actions", data=body, headers=headers) for body in NO_ACTIONS]
        answers = [await status_of(post) for post in posts]
    assert [body for body, answer in zip(NO_ACTIONS, answers, strict=True) if answer != 400] == []


async def test_file_in_use(run: Path) -> None:
    """While another owner has the file, an action says so; the page goes on."""
    async with served(run, allow_actions=True) as page:
        async with Journal.open(run):
            status, words = await page.act("retry", FAILED)
            assert (status, words[:32]) == (409, "A batch is running on this file,")
            assert len(await page.lines()) == 3
        assert (await page.act("retry", FAILED))[1]["done"] == 1


async def test_own_journal_is_changed_directly(run: Path) -> None:
    """A board of a journal that its own process may write changes it, as beside a batch of the same program."""
    async with Journal.open(run) as journal, served(journal, allow_actions=True) as page:
        assert (await page.act("retry", FAILED))[1]["done"] == 1


async def test_token_for_reading(first: Path) -> None:
    """With a token of one's own, nothing of the journal is shown without it."""
    async with served(first, token="t" * 16) as page:
        async with page.client.get(page.address) as response:
            text = await response.text()
        assert response.status == 200
        assert "run.db" not in text.replace("agentjobs resume run.db", "")
        for address in ("rows", "events"):
            assert await status_of(page.client.get(page.address + address)) == 401
        assert len(await page.lines(page.bearer)) == 3
    for token in ("short", "\u00e4" * 16, "new\nline" * 4):
        with pytest.raises(InvalidInputError, match="token"):
            board(Journal.open(first), token=token)


def test_settings_of_another_type(first: Path) -> None:
    """A lone host, of which each letter would be a host, is refused at once, and so is a token that is no text."""
    wrong: list[dict[str, Any]] = [{"hosts": "board.example"}, {"hosts": None}, {"hosts": (b"x",)}, {"token": 5}]
    for settings in wrong:
        with pytest.raises(InvalidInputError, match=f"^{next(iter(settings))} must "):
            board(Journal.open(first), **settings)


async def test_headers(first: Path) -> None:
    """Every answer keeps foreign pages and scripts out."""
    async with served(first) as page:
        for address in ("", "rows", "nothing"):
            async with page.client.get(page.address + address) as response:
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
                assert response.headers["Cache-Control"] == "no-store"
        async with page.client.get(page.address) as response:
            policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy


async def test_mounted(first: Path) -> None:
    """It is mounted in one's own application, under its path."""
    async with Journal.open(first, read_only=True) as journal, ClientSession() as client:
        app = web.Application()
        app.add_subapp("/board/", board(journal))
        async with running(app, 0) as port:
            page = Served(f"http://127.0.0.1:{port}/board/", "", client)
            assert len(await page.lines()) == 3
            async with client.get(f"http://127.0.0.1:{port}/board") as response:
                assert str(response.url) == page.address
                assert "first" not in response.headers


async def test_clock_that_is_set_back(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is set back, by years, hides no change."""
    async with Journal.open(first, read_only=True) as journal:
        feed = ChangeFeed(journal)
        await feed.look()
        monkeypatch.setattr(time, "time", lambda: 1e9)
        await add(first, "late")
        await feed.look()
        assert '"late"' in feed.log.line(0)


async def test_change_that_is_committed_late(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was committed minutes after its time is found by the next look for such rows, once."""
    async with Journal.open(first, read_only=True) as journal:
        feed = ChangeFeed(journal)
        await feed.look()
        async with Journal.open(first, clock=lambda: time.time() - 300) as slow:
            await slow.add([BatchItem("late", "Document it", "docs")])
        await feed.look()
        assert feed.log.end == 0
        monkeypatch.setattr("agentjobs_async.report.live.changes._LATE_LOOK_SECONDS", 0)
        for _ in range(2):
            await feed.look()
            assert feed.log.end == 1
        assert '"late"' in feed.log.line(0)


async def test_page_that_is_opened_later(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is opened a minute after the last one gets all rows as they are, whatever the times of changes."""
    async with Journal.open(first, read_only=True) as journal:
        feed = ChangeFeed(journal)
        before = await feed.document()
        async with Journal.open(first, clock=lambda: 1e9) as behind:
            await behind.add([BatchItem("late", "Document it", "docs")])
        await feed.look()
        assert await feed.document() is before
        monkeypatch.setattr("agentjobs_async.report.live.feed._RELOAD_SECONDS", 0)
        monkeypatch.setattr("agentjobs_async.report.live.feed._REST_PER_LOAD", 0)
        after = await feed.document()
        assert (before.rows, after.rows) == (1, 2)
        assert '"late"' in feed.log.line(0)  # the pages that are open get it, too


async def test_journal_that_cannot_be_read(first: Path) -> None:
    """While the journal can't be read, pages say so, and the rows stay as they are."""
    async with served(first) as page:
        position = await page.position()
        async with page.stream(position):
            with closing(sqlite3.connect(first)) as database, database:
                database.execute("ALTER TABLE agentjobs_items RENAME TO hidden")
            async with page.client.get(f"{page.address}events", headers={"Last-Event-ID": position}) as response:
                async for line in response.content:
                    if b"trouble" in line and b'"trouble": null' not in line:
                        break
            assert b"broken" in line


async def test_clock_that_was_ahead(first: Path) -> None:
    """A row whose time lies ahead hides no later change."""
    async with Journal.open(first, read_only=True) as journal:
        async with Journal.open(first, clock=lambda: time.time() + 86_400) as ahead:
            await ahead.add([BatchItem("ahead", "Document it", "docs")])
        feed = ChangeFeed(journal)
        await feed.look()
        await add(first, "late")
        await feed.look()
        assert '"late"' in feed.log.line(0)


async def test_workers(database: str) -> None:
    """On PostgreSQL the page shows who works on the journal, and each change, and acts beside them."""
    async with (
        Journal.open(database) as worker,
        Journal.open(database, read_only=True) as journal,
        BatchWorker(FakeSession().session, worker),
    ):
        await worker.add([BatchItem("first", "Document it", "docs")])
        async with served(journal, allow_actions=True) as page, page.stream(await page.position()) as stream:
            status = await stream.status()
            assert [(each["active"], each["dead"]) for each in status["workers"]] == [(0, False)]
            assert status["workers"][0]["name"].endswith(f":{os.getpid()}")
            await worker.add([BatchItem("late", "Document it", "docs")])
            assert (await stream.block())["key"] == ["late"]
            records = Records(worker.store, "another", str)
            claim = str(await records.claim("late"))
            assert await records.unknown("late", claim, OSError("no answer"))
            assert (await page.act("send_again", 2, state="unknown"))[1]["done"] == 1


async def test_journal_that_is_moved_to_the_page(database: str, first: Path) -> None:
    """A page of an empty database shows the journal that is moved there, and acts on it."""
    async with Journal.open(database) as journal, served(journal, allow_actions=True) as page:
        async with page.stream(await page.position()) as stream:
            await move_journal(first, database)
            events = [event["event"] async for event in stream]
        assert events[-1] == "stale"  # before it, a look that began amid the move may have seen rows
        head, block, _ = await page.lines()
        assert (head["identity"], block["key"]) == ((await journal.store.meta()).identity, ["first"])
        assert (await page.act("retry", 1, state="planned"))[0] == 200


async def test_page_without_prompts(first: Path) -> None:
    """Told so, the page has no prompts: neither in its rows, nor in what changes, nor for who has no scripts."""
    async with served(first, prompts=False) as page:
        lines = await page.lines()
        assert all("prompt" not in line for line in lines)
        async with page.client.get(page.address) as response:
            assert "Document it" not in await response.text()
        async with page.stream(lines[-1]["position"]) as stream:
            await add(first, "late")
            block = await stream.block()
    assert block["key"] == ["late"]
    assert "prompt" not in block
