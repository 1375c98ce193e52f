import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, func, make_url, select

from agentjobs_async import InvalidInputError, JobRef, JournalError
from agentjobs_async.batch import BatchWorker, Journal, Limits, State
from agentjobs_async.batch._store import heartbeat as beating
from agentjobs_async.batch._store import opened as opening
from agentjobs_async.batch._store.claims import NoRoom
from agentjobs_async.batch._store.heartbeat import Lease
from agentjobs_async.batch._store.owning import doubt_dead, free_dead, take
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.store import NOBODY
from tests.batch.silence import LONG_AGO, NEVER, be_silent, heartbeat_of, record_silence, server_is_up, stop_beating
from tests.batch.stage import FakeSession, connected, items, state_of
from tests.batch.store.owned import WHY, Process, joined, row_of
from tests.batch.wire import wired
from tests.postgresql import execute
from tests.until import until

BEAT_SECONDS = 0.05


@asynccontextmanager
async def opened(database: str, beats: float = NEVER / BEAT_SECONDS) -> AsyncIterator[Journal]:
    """A journal whose owners count as dead after no stall of the machine, and beat often all the same."""
    with pytest.MonkeyPatch.context() as patch, server_is_up():
        patch.setattr(beating, "_BEATS", beats)
        patch.setattr(beating, "_LONGEST_GAP_SECONDS", NEVER)
        async with Journal.open(database, owner_timeout=NEVER) as journal:
            yield journal


@asynccontextmanager
async def process(database: str, beats: float = NEVER / BEAT_SECONDS) -> AsyncIterator[Process]:
    """A process with a run on such a journal."""
    async with opened(database, beats) as journal, joined(journal) as one:
        yield one


async def keys_lost_by(owner: Process) -> list[str]:
    """Let a run look for what dead owners were sending, and return the keys."""
    return [row.key for row in await doubt_dead(owner.store, owner.owner.name, followed=False)]


async def test_gap(laid_out: str) -> None:
    """However patient an owner's journal is, it beats so often that a move within 30 s finds it alive."""
    async with (
        Journal.open(laid_out, owner_timeout=240.0) as patient,
        Journal.open(laid_out, owner_timeout=2.0) as other,
    ):
        assert (heartbeat_of(patient).gap, heartbeat_of(other).gap) == (7.5, 0.5)


async def test_many_owners(laid_out: str) -> None:
    """Many owners claim at once, each row goes to one of them, and nothing of the living becomes unknown."""
    async with process(laid_out, beats=1) as one, process(laid_out, beats=1) as two:
        await one.journal.add(items(40))
        await one.journal.set_limits(Limits(max_active=None))
        claims = await asyncio.gather(
            *(each.store.claim(f"k{number}", each.owner.name) for number in range(40) for each in (one, two))
        )
        assert sum(isinstance(claim, str) for claim in claims) == 40
        for each in (one, two):  # a long time later
            record_silence(laid_out, each.journal)
        for each in (one, two):
            await heartbeat_of(each.journal).beat()
        assert [await keys_lost_by(each) for each in (one, two)] == [[], []]
        assert (await one.journal.counts())[State.SENDING] == 40


async def test_a_silent_owner(laid_out: str) -> None:
    """What a silent owner was sending becomes unknown, and one of the others tells of it; no other row does."""
    async with process(laid_out) as silent, process(laid_out) as living, process(laid_out) as other:
        await living.journal.add(items(3))
        await silent.claimed("k0")
        await living.claimed("k1")
        await be_silent(silent.journal, laid_out)
        found = await asyncio.gather(*(keys_lost_by(each) for each in (living, other)))
        assert sorted(found) == [[], ["k0"]]
        assert [row.key for row in await living.journal.unknown()] == ["k0"]
        assert "ended before the answer" in str((await row_of(living.journal)).error)
        assert await state_of(living.journal, "k1") is State.SENDING


async def test_what_a_silent_owner_polled(laid_out: str) -> None:
    """What a silent owner polled is free for one of the others; what a living one polls stays its own."""
    async with process(laid_out) as silent, process(laid_out) as living, process(laid_out) as other:
        await living.journal.add(items(2))
        for key, each in (("k0", silent), ("k1", living)):
            await each.records.created(key, await each.claimed(key), JobRef("docs", f"job_{key}"), None)
        await be_silent(silent.journal, laid_out)
        assert await take(other.store, Query(), other.owner.name) == []
        await asyncio.gather(*(free_dead(each.store) for each in (living, other)))
        taken = await asyncio.gather(*(take(each.store, Query(), each.owner.name) for each in (living, other)))
        of_living, of_other = ([row.key for row in rows] for rows in taken)
        assert [of_living.count("k1"), of_other.count("k1")] == [1, 0]
        assert [*of_living, *of_other].count("k0") == 1


async def test_late_answers(laid_out: str) -> None:
    """Whatever a stalled owner gets to know late is recorded, though its rows have become unknown meanwhile."""
    async with process(laid_out) as stalled, process(laid_out) as living:
        await living.journal.add(items(4))
        claims = {key: await stalled.claimed(key) for key in ("k0", "k1", "k2", "k3")}
        await be_silent(stalled.journal, laid_out)
        assert await keys_lost_by(living) == ["k0", "k1", "k2", "k3"]
        assert await stalled.records.created("k0", claims["k0"], JobRef("docs", "job_1"), None)
        assert await stalled.records.rejected("k1", claims["k1"], WHY)
        assert await stalled.records.released("k2", claims["k2"], WHY)
        assert {row.key: str(row.state) async for row in living.journal.rows()} == {
            "k0": "active",
            "k1": "rejected",
            "k2": "planned",
            "k3": "unknown",
        }


async def test_what_somebody_else_has_claimed_since(laid_out: str) -> None:
    """What a stalled owner gets to know does not touch the claim of another one."""
    async with process(laid_out) as stalled, process(laid_out) as living:
        await living.journal.add(items(1))
        old = await stalled.claimed("k0")
        await be_silent(stalled.journal, laid_out)
        assert await keys_lost_by(living) == ["k0"]
        await living.journal.resolve("k0", send_again=True)
        await living.claimed("k0")
        assert not await stalled.records.released("k0", old, WHY)
        assert not await stalled.records.rejected("k0", old, WHY)
        assert not await stalled.records.unknown("k0", old, WHY)
        assert await state_of(living.journal, "k0") is State.SENDING


async def test_a_server_that_was_down(laid_out: str) -> None:
    """After a start of the server nobody counts as dead before he could give a sign of life."""
    async with (
        Journal.open(laid_out, owner_timeout=NEVER) as one_journal,
        Journal.open(laid_out, owner_timeout=NEVER) as another_journal,
        joined(one_journal) as one,
        joined(another_journal) as another,
    ):
        await one_journal.add(items(1))
        await one.claimed("k0")
        execute(laid_out, "UPDATE agentjobs_owners SET seen_at = 0")
        another.store.patience = 1e6
        assert await keys_lost_by(another) == []
        another.store.patience = 0.0
        assert await keys_lost_by(another) == ["k0"]


async def test_beating_goes_on(
    laid_out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sign of life that the database refused is logged, and is followed by the next one."""
    async with process(laid_out) as one:

        async def broken(counted_at: float) -> None:
            raise JournalError(f"no answer at {counted_at}", "io")

        with monkeypatch.context() as patch:
            patch.setattr(heartbeat_of(one.journal), "_record", broken)
            await until(lambda: "no answer" in caplog.text)
        await beats_on(laid_out, one)


async def test_leaving_a_broken_server(
    laid_out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An owner that can't say good-bye leaves all the same."""
    async with opened(laid_out, beats=1) as journal:
        async with joined(journal):

            async def broken(statement: object) -> None:
                raise JournalError(f"no answer to {type(statement)}", "io")

            monkeypatch.setattr(heartbeat_of(journal)._database, "write", broken)
        assert "no answer" in caplog.text
        assert not journal._opened.owners.own
        monkeypatch.undo()


def test_wrong_timeouts() -> None:
    """A timeout of owners that makes no sense is refused before anything happens."""
    for timeout in (0, -1.0, float("inf"), float("nan"), True):
        with pytest.raises(InvalidInputError, match="owner_timeout"):
            Journal.open("run.db", owner_timeout=timeout)


async def test_a_stalled_transaction(laid_out: str) -> None:
    """An owner that stalls within a transaction, with the lock of all claims, holds up the others for a while only."""
    async with process(laid_out) as stalled, process(laid_out) as living:
        await living.journal.add(items(1))
        async with connected(stalled.journal) as connection:
            timeout = "idle_in_transaction_session_timeout"
            assert (await connection.exec_driver_sql(f"SHOW {timeout}")).scalar() == f"{NEVER / 60:.0f}min"
            # In one statement: the transaction must not be ended before it has the lock.
            shortened = f"set_config('{timeout}', '300ms', true)"
            await connection.exec_driver_sql(f"SELECT {shortened} FROM agentjobs_journal FOR UPDATE")  # noqa: S608 - a test's own words
            while isinstance(held := await living.store.claim("k0", living.owner.name), NoRoom):
                assert held.wait <= 1
            assert isinstance(held, str)
            await connection.run_sync(Connection.invalidate)


@asynccontextmanager
async def locked(database: str, rows: str) -> AsyncIterator[None]:
    """Hold rows of the database locked, as a transaction does that stalls."""
    address = make_url(database).set(drivername="postgresql").render_as_string(hide_password=False)
    async with await psycopg.AsyncConnection.connect(address) as connection:
        await connection.execute(f"SELECT 1 FROM {rows} FOR UPDATE")  # noqa: S608 - a test's own words
        yield


def last_seen(database: str, one: Process) -> float:
    ((seen,),) = execute(database, f"SELECT seen_at FROM agentjobs_owners WHERE owner = '{one.owner.name}'")  # noqa: S608 - the name is our own, of this test
    return float(seen)


async def beats_on(database: str, one: Process) -> None:
    """Wait until an owner has given some signs of life."""
    for _ in range(5):
        since = last_seen(database, one)
        await until(lambda since=since: last_seen(database, one) > since)  # type: ignore[misc]  # the loop's variable


async def test_signs_of_life_wait_for_no_claim(laid_out: str) -> None:
    """While claims wait for another owner's, signs of life are given, ids are recorded, and nobody counts as dead.

    Such a claim is put off within a second or so.
    """
    async with process(laid_out) as living, process(laid_out) as other:
        await living.journal.add(items(3))
        await living.claimed("k0")
        claim = await living.claimed("k1")
        async with locked(laid_out, "agentjobs_journal"):
            assert await living.store.claim("k2", living.owner.name) == NoRoom(1.0, "lock")
            execute(laid_out, "ALTER FUNCTION agentjobs_claim SET lock_timeout = '1h'")
            waiting = asyncio.ensure_future(living.store.claim("k2", living.owner.name))
            await until(lambda: is_waiting_for_a_lock(laid_out))
            assert await living.records.created("k1", claim, JobRef("docs", "job_1"), None)
            await beats_on(laid_out, living)
            assert not waiting.done()
        assert isinstance(await waiting, str)
        assert await keys_lost_by(other) == []
        assert await state_of(living.journal, "k0") is State.SENDING


async def test_signs_of_life_wait_for_no_sweep(laid_out: str) -> None:
    """While a row of a silent owner is locked, those who would make it unknown go on giving signs of life."""
    async with process(laid_out) as silent, process(laid_out) as living:
        await living.journal.add(items(2))
        await silent.claimed("k0")
        await living.claimed("k1")
        async with locked(laid_out, "agentjobs_items WHERE key = 'k0'"):
            await be_silent(silent.journal, laid_out)
            sweeping = asyncio.ensure_future(keys_lost_by(living))
            await until(lambda: is_waiting_for_a_lock(laid_out))
            await beats_on(laid_out, living)
            assert not sweeping.done()
        assert await sweeping == ["k0"]
        assert await state_of(living.journal, "k1") is State.SENDING


async def test_the_time_of_a_statement_that_had_to_wait(laid_out: str) -> None:
    """The server's clock stands still within a statement: a sweep that waits for a row takes no living owner for dead.

    It compares heartbeats with the time at which it looked for them.
    """
    async with opened(laid_out) as journal, connected(journal) as connection:
        now: Any = journal.store.now()
        before, _, after = tuple((await connection.execute(select(now, func.pg_sleep(0.05), now))).one())
        assert before == after
        (later,) = (await connection.execute(select(now))).one()
        assert later > after


def is_waiting_for_a_lock(database: str) -> bool:
    """Return whether a statement in the database waits for what another transaction has locked."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(execute(database, waiting)[0][0])


async def _is(journal: Journal, key: str, state: State) -> bool:
    return await state_of(journal, key) is state


async def test_a_claim_whose_answer_came_late(laid_out: str) -> None:
    """A claim whose answer comes after its owner counted as dead is not sent: somebody else may have sent it."""
    session = FakeSession()
    async with wired(laid_out) as wire, opened(wire.url) as slow, opened(laid_out) as living:
        await living.add(items(1))
        async with BatchWorker(session.session, slow) as late, BatchWorker(session.session, living) as worker:
            await stop_beating(slow)  # a muted one would keep its row locked
            wire.mute_at(b"agentjobs_claim(")
            sending = asyncio.ensure_future(late.run(["k0"]))
            await until(lambda: _is(living, "k0", State.SENDING))
            heartbeat_of(slow)._heard = LONG_AGO
            record_silence(laid_out, slow)
            assert [row.key for row in await doubt_dead(living.store, NOBODY, followed=False)] == ["k0"]
            assert session.sent == []
            await living.resolve("k0", send_again=True)
            assert await worker.run(["k0"]) == ()
            wire.speak()
            assert await sending == ()
    assert session.agents == {"p0": 1}


async def test_a_claim_that_was_taken_away_while_connecting(laid_out: str) -> None:
    """What connects to the service for so long that its owner may count as dead is not sent, and claimed anew."""
    session = FakeSession()
    async with opened(laid_out) as stalled, opened(laid_out) as living:
        await living.add(items(2))
        async with BatchWorker(session.session, stalled) as late, BatchWorker(session.session, living) as worker:
            connecting, connected = asyncio.Event(), asyncio.Event()

            async def connect() -> None:
                session.connect = real  # type: ignore[method-assign]  # only the first one is slow
                connecting.set()
                await connected.wait()

            real, session.connect = session.connect, connect  # type: ignore[method-assign]  # it stalls there
            sending = asyncio.ensure_future(late.run(["k0"]))
            await connecting.wait()
            await be_silent(stalled, laid_out)
            assert [row.key for row in await doubt_dead(living.store, NOBODY, followed=False)] == ["k0"]
            await living.resolve("k0", send_again=True)
            assert await worker.run(["k0"]) == ()
            connected.set()
            assert await sending == ()
    assert session.agents == {"p0": 1}


async def test_time_that_the_loop_does_not_know(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim is not sent after a sleep of the machine, by whichever clock that shows."""
    async with process(laid_out) as one:
        for clock, before in (("_boot_time", time.clock_gettime(time.CLOCK_BOOTTIME)), ("time.time", time.time())):
            lease = Lease(heartbeat_of(one.journal))
            assert lease.is_valid()
            with monkeypatch.context() as patch:
                name = f"agentjobs_async.batch._store.heartbeat.{clock}"
                patch.setattr(name, lambda before=before: before + 0.6 * NEVER)
                assert not lease.is_valid()


async def test_an_owner_that_counted_as_dead(
    laid_out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who comes back to life may send what he claims from then on, and nothing that he claimed before."""
    async with wired(laid_out) as wire, process(wire.url) as stalled:
        presence = heartbeat_of(stalled.journal)
        before = Lease(presence)
        assert before.is_valid()
        wire.silence()
        with monkeypatch.context() as patch:
            patch.setattr(beating, "_ANSWERED_WITHIN", 0.5 / NEVER)
            await until(lambda: "heartbeat in time" in caplog.text)
        presence._heard = LONG_AGO
        assert not before.is_valid()
        wire.speak()
        await until(lambda: presence.is_sure)
        assert not before.is_valid()
        assert Lease(presence).is_valid()


async def test_an_opening_that_fails(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal in which dead owners can't be looked for is not opened, and leaves nothing behind."""

    async def broken(store: object, mover: str, *, followed: bool) -> list[object]:
        raise JournalError(f"{store} gave no answer to {mover} and {followed}", "io")

    monkeypatch.setattr(opening, "doubt_dead", broken)
    with pytest.raises(JournalError, match="gave no answer"):
        await Journal.open(laid_out).__aenter__()


async def test_a_run_that_can_not_join(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose first sign of life could not be given does not begin, and leaves nothing behind."""
    async with opened(laid_out) as journal:

        async def broken() -> None:
            raise JournalError("gave no answer", "io")

        monkeypatch.setattr(heartbeat_of(journal), "beat", broken)
        with pytest.raises(JournalError, match="gave no answer"):
            await BatchWorker(FakeSession().session, journal).__aenter__()
        assert not journal._opened.owners.own
        assert execute(laid_out, "SELECT count(*) FROM agentjobs_owners") == [(0,)]
