import asyncio
import logging
import re
import sys
import traceback
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from agentjobs_async import AgentJob, InvalidInputError, JobRef, JournalError
from agentjobs_async.batch import BatchItem, Journal, Limits, State, Where
from agentjobs_async.batch._database import postgresql as server
from agentjobs_async.batch._database.address import ServerAddress, checked_location
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.durable import DurableJobs
from tests.batch.stage import connected, items, rows_of, run
from tests.batch.store.owned import claimed, records_of
from tests.postgresql import Server, execute
from tests.scripted import Scripted, job, reply, session_of

SECRET = "hunter2-very-secret"
NOBODY = f"postgresql+psycopg://user:{SECRET}@127.0.0.1:1/work"


def test_wrong_addresses() -> None:
    """An address that is none of PostgreSQL is refused, without a word of what it holds."""
    for address in (
        f"mysql://user:{SECRET}@host/work",
        f"postgresql+psycopg://user:{SECRET}@host:{SECRET}/work",
        f"postgresql+psycopg://user:{SECRET}@host",
        f"postgresql+asyncpg://user:{SECRET}@host/work",
        f"://{SECRET}",
    ):
        with pytest.raises(InvalidInputError, match="neither the path of a file nor like postgresql") as caught:
            Journal.open(address)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        assert caught.value.__context__ is None


CREDENTIALS: list[tuple[str, str]] = [
    (NOBODY, "password"),
    (f"postgresql://127.0.0.1:1/work?user=user&password={SECRET}", "password"),
    (f"postgresql://user:{SECRET}1@127.0.0.1:1/work?password={SECRET}2&password={SECRET}", "password"),
    (f"{NOBODY}?sslpassword={SECRET}", "sslpassword"),
    (f"{NOBODY}?sslpassword={SECRET}1&sslpassword={SECRET}", "sslpassword"),
    (f"{NOBODY}?oauth_client_secret={SECRET}", "oauth_client_secret"),
    (f"{NOBODY}?scram_client_key={SECRET}", "scram_client_key"),
]


async def test_no_credentials_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    """A server that can't be reached gives a JournalError; nothing that is shown holds a secret of the address."""
    caplog.set_level(logging.DEBUG)
    for address, setting in CREDENTIALS:
        journal = Journal.open(f"{address}{'&' if '?' in address else '?'}sslmode=prefer")
        with pytest.raises(JournalError) as caught:
            await journal.__aenter__()
        assert (caught.value.reason, caught.value.__context__) == ("io", None)
        shown = [*traceback.format_exception(caught.value), repr(journal), repr(vars(journal)), journal.name]
        shown += [caplog.text, journal.address, resume_command(journal.address, [])]
        assert SECRET not in "".join(shown), address
        assert journal.name == "127.0.0.1/work"
        assert "sslmode=prefer" in journal.address
        assert journal._opened.connect_arguments()[setting] == SECRET


async def test_secrets_reach_the_server(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept out of sight is still what every connection is opened with."""
    settings: list[dict[str, Any]] = []
    connect = psycopg.AsyncConnection.connect

    async def seen(*arguments: Any, **given: Any) -> Any:
        settings.append(given)
        return await connect(*arguments, **given)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", seen)
    async with Journal.open(f"{laid_out}{'&' if '?' in laid_out else '?'}sslpassword={SECRET}") as journal:
        await journal.add(items(1))
    assert {given["sslpassword"] for given in settings} == {SECRET}


async def test_settings_of_the_address() -> None:
    """What an address says about connecting wins over our own settings."""
    address = checked_location("postgresql+psycopg://host/work?connect_timeout=3")
    assert isinstance(address, ServerAddress)
    found = server.connect_arguments(address)
    assert (found["connect_timeout"], found["host"], found["dbname"]) == ("3", "host", "work")


async def test_looking_into_an_empty_database(database: str) -> None:
    """Who only looks makes nothing, and is told that there is no journal."""
    with pytest.raises(JournalError, match="there is none in this database") as caught:
        await rows_of(database)
    assert caught.value.reason == "io"
    assert execute(database, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE agentjobs_journal SET layout = 2", "it has layout 2, written by a newer version"),
        ("UPDATE agentjobs_journal SET fingerprint = 'f00d'", "as another development version made it"),
        ("ALTER TABLE agentjobs_journal DROP COLUMN fingerprint", "as another development version made it"),
        ("DROP TABLE agentjobs_journal", "it was written before the first release"),
    ],
)
async def test_another_layout(laid_out: str, change: str, words: str) -> None:
    """A journal of another layout is refused, and stays as it is."""
    execute(laid_out, change)
    tables = execute(laid_out, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    for read_only in (False, True):
        with pytest.raises(JournalError, match=words) as caught:
            await Journal.open(laid_out, read_only=read_only).__aenter__()
        assert caught.value.reason == "version"
    assert execute(laid_out, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == tables


async def test_many_begin_at_once(database: str) -> None:
    """Of many who open an empty database at once, all find one journal."""
    journals = [Journal.open(database) for _ in range(5)]
    await asyncio.gather(*(journal.__aenter__() for journal in journals))
    await asyncio.gather(*(journal.add(items(20)) for journal in journals))
    assert (await journals[0].counts())[State.PLANNED] == 20
    for journal in journals:
        await journal.aclose()


async def test_nul(laid_out: str) -> None:
    """A prompt with NUL, which the server can't store, is refused with what to do, and so is a search for one."""
    words = "contains NUL .*, which PostgreSQL can't store: remove it, or use a journal in a file"
    good = [BatchItem(str(number), prompt) for number, prompt in enumerate(("\x1a", "\x1a0", "plain"))]
    async with session_of() as session, Journal.open(laid_out) as journal:
        for planning in (journal.check, journal.add):
            ((item, error),) = await planning([BatchItem("nul", "a\0b"), *good], project_id="docs")
            assert (item.key, re.match(f"prompt {words}", str(error)) is not None) == ("nul", True)
        assert [row.prompt async for row in journal.rows()] == [item.prompt for item in good]
        with pytest.raises(InvalidInputError, match=f"text {words}"):
            await journal.rows(where=Where(text="x\0"))
        async with DurableJobs(session, journal) as jobs:
            with pytest.raises(InvalidInputError, match=f"prompt {words}"):
                await jobs.submit("nul", "a\0b")
            with pytest.raises(InvalidInputError, match=f"text {words}"):
                await jobs.active(Where(text="x\0"))


async def test_nul_of_the_server(journal: Journal) -> None:
    """NUL in what a server, or a `get_job` of one's own, says is kept as an escape, and loses no job."""
    refused = reply(400, {"error": {"message": "no\0way"}})
    ended = job("completed", prLink="https://a.example/\0", model="\0")

    async def get_job(ref: JobRef) -> AgentJob:
        return AgentJob(ref.job_id, ref.project_id, "completed", pr_link="https://a.example/\0")

    async with Scripted(refused, job(), ended, job()) as server:
        async with server.session(project_id="docs") as session:
            await run(session, [BatchItem("a", "x")], journal)
            await run(session, [BatchItem("b", "x")], journal)
        async with server.session(project_id="docs", get_job=get_job) as session:
            await run(session, [BatchItem("c", "x")], journal)
    rows = {row.key: (str(row.state), row.pr_link) for row in await journal.rows()}
    assert rows == {"a": ("rejected", None), "b": ("completed", None), "c": ("completed", r"https://a.example/\x00")}
    assert r"no\x00way" in str((await journal.rows("rejected"))[0].error)


async def test_durability(laid_out: str) -> None:
    """A commit is durable, even where the server's own setting is that it need not be."""
    name = make_url(laid_out).database
    execute(laid_out, f"ALTER DATABASE {name} SET synchronous_commit = off")
    async with Journal.open(laid_out) as journal:
        async with connected(journal) as connection:
            assert (await connection.exec_driver_sql("SHOW synchronous_commit")).scalar() == "on"


async def test_no_prompt_in_errors(laid_out: str) -> None:
    """An error of the server shows nothing of a prompt."""
    async with Journal.open(laid_out) as journal:
        execute(laid_out, "ALTER TABLE agentjobs_items ADD CONSTRAINT short CHECK (length(prompt) < 5)")
        with pytest.raises(JournalError, match="short") as caught:
            await journal.add([BatchItem("a", "a very private prompt")], project_id="docs")
    assert "private" not in str(caught.value)
    assert caught.value.__context__ is None


async def test_a_restarted_server(own_postgresql: Server, own_database: str) -> None:
    """Reads and writes ride out a restart of the server, with the connection that they had before."""
    async with Journal.open(own_database) as journal:
        await journal.add(items(50))
        await journal.set_limits(Limits(max_active=None))
        await asyncio.to_thread(own_postgresql.restart)
        claims = await asyncio.gather(*(claimed(journal, f"k{number}") for number in range(50)))
        await asyncio.to_thread(own_postgresql.restart)
        assert (await journal.counts())[State.SENDING] == 50
        for number, claim in enumerate(claims):
            assert await records_of(journal).created(f"k{number}", claim, JobRef("docs", f"job_{number}"), None)


async def test_a_server_that_stays_away(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is gone for longer than the patience gives a JournalError."""

    def gone() -> None:
        raise OperationalError("", {}, ConnectionError("nobody listens"))

    async with Journal.open(laid_out) as journal:
        database = journal.store._database
        database.connector.patience = 0.3
        with monkeypatch.context() as patch:
            patch.setattr(database.backend.engine.sync_engine, "connect", gone)
            with pytest.raises(JournalError) as caught:
                await journal.counts()
        assert caught.value.reason == "io"


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg, who asks for PostgreSQL is told what to install."""
    for name in [name for name in sys.modules if name.split(".")[0] == "psycopg"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidInputError, match=r"pip install 'psycopg\[binary\]'"):
        asyncio.run(_opened(NOBODY))


async def _opened(address: str) -> None:
    async with Journal.open(address):
        pass
