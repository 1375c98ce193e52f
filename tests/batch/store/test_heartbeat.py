import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, func, make_url, select

from agentjobs_async import InvalidInputError, JobRef, JournalError
from agentjobs_async.batch import BatchWorker, FleetLimits, Journal, State
from agentjobs_async.batch._store import heartbeat as beating
from agentjobs_async.batch._store.heartbeat import Lease
from agentjobs_async.batch._store.row_store import NoRoom, RowStore
from tests.batch.silence import LONG_AGO, NEVER, be_silent, heartbeat_of, record_silence, server_is_up, stop_beating
from tests.batch.stage import FakeSession, connected, items, state_of
from tests.batch.wire import wired
from tests.postgresql import execute
from tests.until import until

BEAT_SECONDS = 0.05
WHY = ValueError("because")


@asynccontextmanager
async def owner(database: str, beats: float = NEVER / BEAT_SECONDS) -> AsyncIterator[Journal]:
    """An owner that counts as dead after no stall of the machine, and beats often all the same."""
    with pytest.MonkeyPatch.context() as patch, server_is_up():
        patch.setattr(beating, "_BEATS", beats)
        patch.setattr(beating, "_LONGEST_GAP_SECONDS", NEVER)
        async with Journal.open(database, owner_timeout=NEVER) as journal:
            yield journal


async def claimed(journal: Journal, key: str) -> str:
    claim = await journal._store.claim(key)
    assert isinstance(claim, str)
    return claim


async def test_gap(laid_out: str) -> None:
    """However patient an owner's journal is, it beats so often that a move within 30 s finds it alive."""
    async with (
        Journal.open(laid_out, owner_timeout=240.0) as patient,
        Journal.open(laid_out, owner_timeout=2.0) as other,
    ):
        assert (heartbeat_of(patient).gap, heartbeat_of(other).gap) == (7.5, 0.5)


async def test_many_owners(laid_out: str) -> None:
    """Many owners claim at once, each row goes to one of them, and nothing of the living becomes unknown."""
    async with owner(laid_out, beats=1) as one, owner(laid_out, beats=1) as two:
        await one.add(items(40))
        claims = await asyncio.gather(
            *(journal._store.claim(f"k{number}") for number in range(40) for journal in (one, two))
        )
        assert sum(isinstance(claim, str) for claim in claims) == 40
        for journal in (one, two):  # a long time later
            record_silence(laid_out, journal)
        for journal in (one, two):
            await heartbeat_of(journal)._beat()
        for journal in (one, two):
            await heartbeat_of(journal)._sweep()
        assert (await one.counts())[State.SENDING] == 40


async def test_a_silent_owner(laid_out: str) -> None:
    """What a silent owner was sending becomes unknown, and is told to those who are there; nothing else does."""
    async with owner(laid_out) as silent, owner(laid_out) as living:
        await living.add(items(3))
        await claimed(silent, "k0")
        await claimed(living, "k1")
        await be_silent(silent, laid_out)
        await until(lambda: _is(living, "k0", State.UNKNOWN))
        assert [row.key for row in await living.unknown()] == ["k0"]
        assert await state_of(living, "k1") is State.SENDING
        await until(lambda: _told(living))


async def _is(journal: Journal, key: str, state: State) -> bool:
    return await state_of(journal, key) is state


async def _told(journal: Journal) -> bool:
    return journal._store.became_unknown == ["k0"]


async def test_late_answers(laid_out: str) -> None:
    """Whatever a stalled owner gets to know late is recorded, though its rows have become unknown meanwhile."""
    async with owner(laid_out) as stalled, owner(laid_out) as living:
        await living.add(items(4))
        claims = {key: await claimed(stalled, key) for key in ("k0", "k1", "k2", "k3")}
        await be_silent(stalled, laid_out)
        await until(lambda: _is(living, "k3", State.UNKNOWN))
        assert await stalled._store.record_created("k0", JobRef("docs", "job_1"))
        assert await stalled._store.record_rejected("k1", WHY, claim=claims["k1"])
        assert await stalled._store.release_claim("k2", WHY, claim=claims["k2"])
        assert {row.key: str(row.state) async for row in living.rows()} == {
            "k0": "active",
            "k1": "rejected",
            "k2": "planned",
            "k3": "unknown",
        }


async def test_what_somebody_else_has_claimed_since(laid_out: str) -> None:
    """What a stalled owner gets to know does not touch the claim of another one."""
    async with owner(laid_out) as stalled, owner(laid_out) as living:
        await living.add(items(1))
        old = await claimed(stalled, "k0")
        await be_silent(stalled, laid_out)
        await until(lambda: _is(living, "k0", State.UNKNOWN))
        await living.resolve("k0", send_again=True)
        await claimed(living, "k0")
        assert not await stalled._store.release_claim("k0", WHY, claim=old)
        assert not await stalled._store.record_rejected("k0", WHY, claim=old)
        assert not await stalled._store.record_unknown("k0", WHY, claim=old)
        assert await state_of(living, "k0") is State.SENDING


async def test_a_server_that_was_down(laid_out: str) -> None:
    """After a start of the server nobody counts as dead before he could give a sign of life."""
    async with Journal.open(laid_out, owner_timeout=NEVER) as journal:
        await journal.add(items(1))
        await claimed(journal, "k0")
        execute(laid_out, "UPDATE agentjobs_owners SET seen_at = 0")
        assert await journal._store.record_unknown_of_dead_owners(1e6) == ()
        assert await journal._store.record_unknown_of_dead_owners(0.0) == ("k0",)


async def test_beating_goes_on(
    laid_out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sweep that the database refused is logged; signs of life go on, and so do sweeps."""
    async with owner(laid_out) as journal, owner(laid_out) as other:
        await other.add(items(1))

        async def broken(patience: float) -> tuple[str, ...]:
            raise JournalError(f"no answer in {patience} s", "io")

        monkeypatch.setattr(journal._store, "record_unknown_of_dead_owners", broken)
        await until(lambda: "no answer" in caplog.text)
        await beats_on(laid_out, journal)
        monkeypatch.undo()
        await claimed(other, "k0")
        await be_silent(other, laid_out)
        await until(lambda: _told(journal))
        assert await state_of(journal, "k0") is State.UNKNOWN


async def test_a_sweep_that_is_cut_before_it_begins(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that leaves in the iteration of the loop in which a sweep is to begin ends without a warning."""
    async with owner(laid_out) as journal:
        heartbeat = heartbeat_of(journal)
        resting = asyncio.get_running_loop().create_future()

        async def renew() -> None:
            if not resting.done():
                await heartbeat.rest()  # of the sweep before
                resting.set_result(asyncio.ensure_future(heartbeat.rest()))

        lost: list[object] = []
        monkeypatch.setattr(sys, "unraisablehook", lost.append)  # called with a coroutine that was never awaited
        monkeypatch.setattr(heartbeat.polls, "renew", renew)
        await (await resting)
        gc.collect()
        assert lost == []


async def test_leaving_a_broken_server(
    laid_out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An owner that can't say good-bye leaves all the same."""
    async with owner(laid_out, beats=1) as journal:

        async def broken(statement: object) -> None:
            raise JournalError(f"no answer to {type(statement)}", "io")

        monkeypatch.setattr(heartbeat_of(journal)._database, "write", broken)
    assert "no answer" in caplog.text


def test_wrong_timeouts() -> None:
    """A timeout of owners that makes no sense is refused before anything happens."""
    for timeout in (0, -1.0, float("inf"), float("nan"), True):
        with pytest.raises(InvalidInputError, match="owner_timeout"):
            Journal.open("run.db", owner_timeout=timeout)


async def test_a_stalled_transaction(laid_out: str) -> None:
    """An owner that stalls within a transaction, with the lock of all claims, holds up the others for a while only."""
    async with owner(laid_out) as stalled, owner(laid_out) as living:
        await living.add(items(1))
        await living.set_limits(FleetLimits(max_active=5))
        async with connected(stalled) as connection:
            timeout = "idle_in_transaction_session_timeout"
            assert (await connection.exec_driver_sql(f"SHOW {timeout}")).scalar() == f"{NEVER / 60:.0f}min"
            # In one statement: the transaction must not be ended before it has the lock.
            shortened = f"set_config('{timeout}', '300ms', true)"
            await connection.exec_driver_sql(f"SELECT {shortened} FROM agentjobs_journal FOR UPDATE")  # noqa: S608 - a test's own words
            while isinstance(held := await living._store.claim("k0"), NoRoom):
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


def last_seen(database: str, journal: Journal) -> float:
    ((seen,),) = execute(database, f"SELECT seen_at FROM agentjobs_owners WHERE owner = '{journal._store.owner}'")  # noqa: S608 - the name is our own, of this test
    return float(seen)


async def beats_on(database: str, journal: Journal) -> None:
    """Wait until an owner has given some signs of life."""
    for _ in range(5):
        since = last_seen(database, journal)
        await until(lambda since=since: last_seen(database, journal) > since)  # type: ignore[misc]  # the loop's variable


async def test_signs_of_life_wait_for_no_claim(laid_out: str) -> None:
    """While claims wait for another owner's, signs of life are given, ids are recorded, and nobody counts as dead.

    Such a claim is put off within a second or so.
    """
    async with owner(laid_out) as living, owner(laid_out):
        await living.add(items(3))
        await living.set_limits(FleetLimits(max_active=5))
        await claimed(living, "k0")
        await claimed(living, "k1")
        async with locked(laid_out, "agentjobs_journal"):
            assert await living._store.claim("k2") == NoRoom(1.0)
            execute(laid_out, "ALTER FUNCTION agentjobs_claim SET lock_timeout = '1h'")
            waiting = asyncio.ensure_future(living._store.claim("k2"))
            await until(lambda: is_waiting_for_a_lock(laid_out))
            assert await living._store.record_created("k1", JobRef("docs", "job_1"))
            await beats_on(laid_out, living)
            assert not waiting.done()
        assert isinstance(await waiting, str)
        assert await state_of(living, "k0") is State.SENDING


async def test_signs_of_life_wait_for_no_sweep(laid_out: str) -> None:
    """While a row of a silent owner is locked, those who would make it unknown go on giving signs of life."""
    async with owner(laid_out) as silent, owner(laid_out) as living:
        await living.add(items(2))
        await claimed(silent, "k0")
        await claimed(living, "k1")
        async with locked(laid_out, "agentjobs_items WHERE key = 'k0'"):
            await be_silent(silent, laid_out)
            await until(lambda: is_waiting_for_a_lock(laid_out))
            await beats_on(laid_out, living)
        await until(lambda: _is(living, "k0", State.UNKNOWN))
        assert await state_of(living, "k1") is State.SENDING


async def test_the_time_of_a_statement_that_had_to_wait(laid_out: str) -> None:
    """The server's clock stands still within a statement: a sweep that waits for a row takes no living owner for dead.

    It compares heartbeats with the time at which it looked for them.
    """
    async with owner(laid_out) as journal, connected(journal) as connection:
        now: Any = journal._store.now()
        before, _, after = tuple((await connection.execute(select(now, func.pg_sleep(0.05), now))).one())
        assert before == after
        (later,) = (await connection.execute(select(now))).one()
        assert later > after


def is_waiting_for_a_lock(database: str) -> bool:
    """Return whether a statement in the database waits for what another transaction has locked."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(execute(database, waiting)[0][0])


async def test_a_claim_whose_answer_came_late(laid_out: str) -> None:
    """A claim whose answer comes after its owner counted as dead is not sent: somebody else may have sent it."""
    session = FakeSession()
    async with wired(laid_out) as wire, owner(wire.url) as slow, owner(laid_out) as living:
        await living.add(items(1))
        async with BatchWorker(session.session, slow) as late, BatchWorker(session.session, living) as worker:
            await stop_beating(slow)  # a muted one would keep its row locked
            wire.mute_at(b"agentjobs_claim(")
            sending = asyncio.ensure_future(late.run(["k0"]))
            await until(lambda: _is(living, "k0", State.SENDING))
            heartbeat_of(slow)._heard = LONG_AGO
            record_silence(laid_out, slow)
            await until(lambda: _is(living, "k0", State.UNKNOWN))
            assert session.sent == []
            await living.resolve("k0", send_again=True)
            assert await worker.run(["k0"]) == ()
            wire.speak()
            assert await sending == ()
    assert session.agents == {"p0": 1}


async def test_a_claim_that_was_taken_away_while_connecting(laid_out: str) -> None:
    """What connects to the service for so long that its owner may count as dead is not sent, and claimed anew."""
    session = FakeSession()
    async with owner(laid_out) as stalled, owner(laid_out) as living:
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
            await until(lambda: _is(living, "k0", State.UNKNOWN))
            await living.resolve("k0", send_again=True)
            assert await worker.run(["k0"]) == ()
            connected.set()
            assert await sending == ()
    assert session.agents == {"p0": 1}


async def test_time_that_the_loop_does_not_know(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim is not sent after a sleep of the machine, by whichever clock that shows."""
    async with owner(laid_out) as journal:
        for clock, before in (("_boot_time", time.clock_gettime(time.CLOCK_BOOTTIME)), ("time.time", time.time())):
            lease = Lease(heartbeat_of(journal))
            assert lease.is_valid()
            with monkeypatch.context() as patch:
                name = f"agentjobs_async.batch._store.heartbeat.{clock}"
                patch.setattr(name, lambda before=before: before + 0.6 * NEVER)
                assert not lease.is_valid()


async def test_an_owner_that_counted_as_dead(
    laid_out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who comes back to life may send what he claims from then on, and nothing that he claimed before."""
    async with wired(laid_out) as wire, owner(wire.url) as stalled:
        presence = heartbeat_of(stalled)
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
    """A journal whose first sign of life could not be given is not opened, and leaves nothing behind."""

    async def broken(store: object, patience: float) -> tuple[str, ...]:
        raise JournalError(f"{store} gave no answer in {patience} s", "io")

    monkeypatch.setattr(RowStore, "record_unknown_of_dead_owners", broken)
    with pytest.raises(JournalError, match="gave no answer"):
        await Journal.open(laid_out).__aenter__()
