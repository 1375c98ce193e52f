"""`DurableJobs.notify`: one poll soon, in whichever process follows the job. Polls come once a day otherwise."""

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tenacity import wait_fixed

from agentjobs_async import AgentJobsSession, InvalidInputError, JournalError, PollPolicy, SessionClosedError
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.batch._database import listening
from agentjobs_async.batch._database.address import ServerAddress
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.durable import DurableJobs
from agentjobs_async.durable._listening import Listening
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.silence import NEVER
from tests.batch.wire import Pooler, Wire, wired
from tests.durable.listener import Listener, complete
from tests.durable.webhook_workers import two_workers
from tests.extras import need_recipes
from tests.held import HeldEmulator
from tests.postgresql import execute
from tests.until import until

RARE = PollPolicy(wait=wait_fixed(86_400))
SWEEP = "agentjobs_async.durable._noticing._SWEEP_SECONDS"
OWNERS_LIVE = 1_000 * NEVER
"""Seconds until an owner counts as dead, a part of which is the longest time between two sweeps."""
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'"


@pytest.fixture
async def session(emulator: Emulator) -> AsyncIterator[AgentJobsSession]:
    """A session that polls a job once a day."""
    async with emulator.session(project_id="docs", policy=RARE) as session:
        yield session


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noticed, is noticed since somebody said so."""
    monkeypatch.setattr(SWEEP, 86_400.0)


def opened(url: str) -> Journal:
    return Journal.open(url, owner_timeout=OWNERS_LIVE)


@contextmanager
def locked_rows(url: str) -> Iterator[None]:
    """Return a block in which another transaction keeps the rows locked."""
    address = url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(address) as connection:
        connection.execute("LOCK TABLE agentjobs_items IN EXCLUSIVE MODE")
        yield
        connection.rollback()


async def polled(session: AgentJobsSession, count: int) -> None:
    """Wait until the first polls of so many jobs have been answered: what is polled after that was asked for."""
    await until(lambda: session.stats().polls == count and not session.stats().in_flight)


def is_marked(url: str) -> bool:
    """Return whether a row is marked for its follower."""
    return bool(execute(url, "SELECT 1 FROM agentjobs_items WHERE is_notified"))


@pytest.mark.usefixtures("no_sweeps")
async def test_followed_here(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener
) -> None:
    """A job that this process follows is polled soon; the answer is there at once, since nothing is written."""
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "long")
        await polled(session, 1)
        await complete(emulator)
        told = jobs.notify("k")
        assert told.done()
        assert await told
        await listener.ends(1)
    assert listener.called == [("k", "completed")]


async def test_jobs_that_nobody_follows(journal: Journal, listener: Listener) -> None:
    """Nobody follows a key without a row, an item of a batch, a planned job, or one that has ended or is unfollowed."""
    async with HeldEmulator(script=JobScript(duration=1e6)) as held, held.session(project_id="docs") as slow:
        await journal.add([BatchItem("batch", "Hello", "docs")])
        async with DurableJobs(slow, journal, on_end=listener.on_end) as jobs:
            await jobs.submit("planned", "Hello", wait_for_create=False)
            await held.arrived.wait()
            assert not await jobs.notify("planned")
            assert not await jobs.notify("batch")
            assert not await jobs.notify("nobody")
            held.release.set()
            await jobs.submit("planned", "Hello")
            assert await jobs.notify("planned")
            await jobs.abandon("planned")
            await listener.ends(1)
            assert not await jobs.notify("planned")
            await jobs.submit("left", "Hello")
            assert await jobs.unfollow("left")
            assert not await jobs.notify("left")


@pytest.mark.usefixtures("no_sweeps")
async def test_key_that_nobody_follows_is_not_written(session: AgentJobsSession, file_journal: Journal) -> None:
    """A key that nobody follows, which any client of a webhook may send, costs no write."""
    async with DurableJobs(session, file_journal) as jobs:
        before = (await file_journal.store.stamp()).value
        assert not await jobs.notify("nobody")
        assert (await file_journal.store.stamp()).value == before


@pytest.mark.usefixtures("no_sweeps")
async def test_storm(session: AgentJobsSession, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """One mark serves all who ask for a key before it begins, and few marks are under way at once."""
    notify, marked, under_way, most = DurableRows.notify, Counter[str](), 0, 0

    async def counted(rows: DurableRows, key: str) -> str | None:
        nonlocal under_way, most
        marked[key] += 1
        under_way += 1
        most = max(most, under_way)
        try:
            return await notify(rows, key)
        finally:
            under_way -= 1

    monkeypatch.setattr(DurableRows, "notify", counted)
    async with DurableJobs(session, journal) as jobs:
        said = [jobs.notify(f"k{number % 100}") for number in range(1_000)]
        said[0].cancel()  # its holder does not wait any more; the others do
        await asyncio.wait(said)
        assert [one.result() for one in said[1:]] == [False] * 999
        assert set(marked.values()) == {1}
        assert most <= 20
        _ = await jobs.notify("k0")
        assert marked["k0"] == 2


async def test_bad_input(session: AgentJobsSession, journal: Journal) -> None:
    """What can be no key is refused at once, and so is a call outside of the block."""
    jobs = DurableJobs(session, journal)
    with pytest.raises(InvalidInputError, match="not open"):
        _ = jobs.notify("k")
    async with jobs:
        for key in ("", "a\nb", 7, None):
            with pytest.raises(InvalidInputError):
                _ = jobs.notify(key)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(SessionClosedError, match="closed"):
        _ = jobs.notify("k")


async def test_error_that_nobody_awaits(
    session: AgentJobsSession, location: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of the journal is raised to who awaits it, is logged once where nobody does, and is no lost error."""
    lost: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    async with opened(location) as journal:
        async with DurableJobs(session, journal) as jobs:
            await journal.aclose()
            said = [jobs.notify("k") for _ in range(3)]
            await asyncio.wait(said)
            with pytest.raises(JournalError, match="closed"):
                await said[0]
            del said
            gc.collect()
            await asyncio.sleep(0)
    assert [record.levelname for record in caplog.records if "'k' is polled when" in record.message] == ["WARNING"]
    assert lost == []


@pytest.mark.usefixtures("no_sweeps")
async def test_left_meanwhile(session: AgentJobsSession, laid_out: str) -> None:
    """What is being said as the block is left ends with an error that says so, and leaves no task."""
    before = asyncio.all_tasks()
    async with opened(laid_out) as one, opened(laid_out) as other, DurableJobs(session, one) as following:
        await following.submit("k", "long")
        async with DurableJobs(session, other) as jobs:
            await until(lambda: len(execute(laid_out, LISTENERS)) == 2)
            with locked_rows(laid_out):
                said = jobs.notify("k")
                await asyncio.sleep(0)
                await jobs.aclose()
                with pytest.raises(SessionClosedError, match="closed"):
                    await said
    await until(lambda: not execute(laid_out, LISTENERS))
    await session.aclose()
    await until(lambda: asyncio.all_tasks() == before)


@pytest.mark.usefixtures("no_sweeps")
async def test_followed_elsewhere(
    emulator: Emulator, session: AgentJobsSession, laid_out: str, listener: Listener
) -> None:
    """A job that another process follows is polled there as soon as this one is told; its mark is gone then."""
    async with opened(laid_out) as one, opened(laid_out) as other, emulator.session(project_id="docs") as idle:
        async with (
            DurableJobs(session, one, on_end=listener.on_end) as following,
            DurableJobs(idle, other, on_end=listener.on_end) as telling,
        ):
            for number in range(3):
                await following.submit(f"k{number}", "long")
            await polled(session, 3)
            await complete(emulator)
            for number in range(3):
                assert await telling.notify(f"k{number}")
                await listener.ends(number + 1)
            assert not is_marked(laid_out)
            assert idle.stats().polls == 0
    assert listener.called == [(f"k{number}", "completed") for number in range(3)]


async def test_two_workers(laid_out: str) -> None:
    """Each of twenty webhooks that come to either of two workers of gunicorn causes a poll, which sees an end."""
    need_recipes()
    settings = {"POLL_SECONDS": "86400", "SWEEP_SECONDS": "86400"}
    async with Emulator(script=JobScript(duration=1e6)) as emulator, opened(laid_out) as journal:
        async with two_workers(emulator, laid_out, **settings) as client:
            for number in range(20):
                (await client.post(f"/jobs/{number}")).raise_for_status()
            await until(lambda: sum(request.method == "GET" for request in emulator.requests) == 20)
            await until(lambda: len(execute(laid_out, LISTENERS)) == 2)
            for number in range(20):
                await complete(emulator, f"Document {number}")
                (await client.post(f"/webhook/{number}")).raise_for_status()
                await until(lambda: ended(journal, number + 1))  # noqa: B023 - called within the loop
        assert emulator.agents_started == {f"Document {number}": 1 for number in range(20)}


async def ended(journal: Journal, count: int) -> bool:
    """Return whether so many jobs are completed."""
    return len(await journal.rows("completed")) == count


async def test_without_a_change(
    emulator: Emulator, session: AgentJobsSession, laid_out: str, listener: Listener
) -> None:
    """A job that goes on is polled once for each notification, and no end is told."""
    async with opened(laid_out) as one, opened(laid_out) as other, emulator.session(project_id="docs") as idle:
        async with (
            DurableJobs(session, one, on_end=listener.on_end) as following,
            DurableJobs(idle, other) as telling,
        ):
            await following.submit("k", "long")
            await polled(session, 1)
            assert await telling.notify("k")
            await polled(session, 2)
            assert not is_marked(laid_out)
    assert listener.called == []


@pytest.mark.usefixtures("no_sweeps")
async def test_broken_connection(
    emulator: Emulator,
    session: AgentJobsSession,
    laid_out: str,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Notifications come again after their connection broke, also for what was said meanwhile; a log entry says so."""
    monkeypatch.setattr("agentjobs_async.durable._listening._FIRST_RETRY_SECONDS", 0.01)
    caplog.set_level(logging.INFO, "agentjobs_async.durable")
    connected, may_connect = listening._connected, asyncio.Event()
    may_connect.set()

    async def connecting(address: ServerAddress) -> Any:
        await may_connect.wait()
        return await connected(address)

    monkeypatch.setattr(listening, "_connected", connecting)
    async with opened(laid_out) as one, opened(laid_out) as other, emulator.session(project_id="docs") as idle:
        async with DurableJobs(session, one, on_end=listener.on_end) as following:
            await following.submit("k", "long")
            await polled(session, 1)
            await until(lambda: execute(laid_out, LISTENERS))
            may_connect.clear()
            execute(laid_out, f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) AS found")  # noqa: S608 - the test's query
            async with DurableJobs(idle, other) as telling:
                await complete(emulator)
                assert await telling.notify("k")
                may_connect.set()
                await listener.ends(1)
    (entry,) = {record.message for record in caplog.records if "no notifications" in record.message}
    assert "its notifications can't be received" in entry


async def test_pooler(
    emulator: Emulator,
    session: AgentJobsSession,
    laid_out: str,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where notifications are kept back, one warning says so, and the sweep notices what was said."""
    monkeypatch.setattr("agentjobs_async.durable._listening._PROOF_SECONDS", 0.01)
    monkeypatch.setattr("agentjobs_async.durable._listening._FIRST_RETRY_SECONDS", 0.01)
    warn, warned = Listening._warn, []

    def warning(listening: Listening, due: float) -> None:
        warn(listening, due)
        warned.append(listening)

    monkeypatch.setattr(Listening, "_warn", warning)
    async with (
        wired(laid_out, Pooler) as pooler,
        opened(pooler.url) as one,
        opened(laid_out) as other,
        emulator.session(project_id="docs") as idle,
    ):
        async with DurableJobs(session, one, on_end=listener.on_end) as following:
            await following.submit("k", "long")
            await polled(session, 1)
            await until(lambda: warned)
            execute(laid_out, f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) AS found")  # noqa: S608 - the test's query
            await until(lambda: len(warned) > 1)
            async with DurableJobs(idle, other) as telling:
                await complete(emulator)
                assert await telling.notify("k")
                await listener.ends(1)
    (entry,) = [record for record in caplog.records if "pooler" in record.message]
    assert (entry.name, entry.levelname) == ("agentjobs_async.durable", "WARNING")


@pytest.mark.usefixtures("no_sweeps")
async def test_own_word(session: AgentJobsSession, laid_out: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where notifications arrive, nothing is warned of: the proof that they do has come back."""
    async with opened(laid_out) as journal, DurableJobs(session, journal) as jobs:
        await until(lambda: execute(laid_out, LISTENERS))
        proved: list[str] = []
        async with journal._opened.listening(await jobs._rows.channel()) as words:
            await jobs._rows.say("proof")
            async for word in words:
                proved.append(word)
                if word == "proof":
                    break
        assert proved[-1] == "proof"
    assert "pooler" not in caplog.text


@pytest.mark.usefixtures("no_sweeps")
async def test_loop_that_stood_still(
    session: AgentJobsSession, laid_out: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A proof that is late since the loop stood still is waited for once more before anything is warned of."""
    async with opened(laid_out) as journal, DurableJobs(session, journal) as jobs:
        listening, now = Listening(journal._opened, jobs._rows, jobs._noticing), asyncio.get_running_loop().time()
        listening._warn(now - 60)
        assert "pooler" not in caplog.text
        assert listening._proof is not None
        listening._proof.cancel()
        listening._warn(now)
    assert "pooler" in caplog.text


@pytest.mark.usefixtures("no_sweeps")
async def test_left_while_the_server_is_silent(
    session: AgentJobsSession, laid_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation ends a LISTEN that is not answered, and its connection: no task of it is left behind."""
    async with wired(laid_out) as wire, opened(laid_out) as journal:
        wire.mute_at(b"LISTEN")
        asked = asyncio.Event()
        monkeypatch.setattr(listening, "connect_arguments", lambda _: {"conninfo": plain(wire)})
        listen = listening._listen

        async def listened(*arguments: Any) -> None:
            asked.set()
            await listen(*arguments)

        monkeypatch.setattr(listening, "_listen", listened)

        async def work() -> None:
            async with DurableJobs(session, journal):
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await asked.wait()
        await until(lambda: not wire._words)
        working.cancel()
        await asyncio.wait([working])
        names = [str(task.get_coro()) for task in asyncio.all_tasks()]
        assert not [name for name in names if "Listening" in name or "execute" in name]


def plain(wire: Wire) -> str:
    """Return the address of a wire as libpq reads it."""
    return wire.url.replace("postgresql+psycopg://", "postgresql://")
