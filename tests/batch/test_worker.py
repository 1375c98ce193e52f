import asyncio
from itertools import pairwise
from typing import Any

import pytest

from agentjobs_async import AuthError, InvalidInputError, JournalError, NotSentError
from agentjobs_async.batch import BatchResult, BatchWorker, Journal, JournalRow, Limits, Rate, run_batch
from agentjobs_async.batch._store.claims import NoRoom
from agentjobs_async.batch._store.heartbeat import Heartbeat
from agentjobs_async.batch._store.owners import Owner
from agentjobs_async.batch.states import CREATED, Move
from tests.batch.stage import (
    BY_HAND,
    FOREVER,
    NO_KEYS,
    FakeSession,
    hang,
    items,
    not_sent,
    outcomes,
    refused_key,
    states,
    unused,
)
from tests.polled import clock

pytestmark = pytest.mark.looptime


async def test_running_a_set_again(file_journal: Journal) -> None:
    """A set that has ended does nothing when it is run again; keys that nobody knows are left out."""
    session = FakeSession()
    await file_journal.add(items(3))
    keys = ["k0", "k1", "k2", "nobody"]
    async with BatchWorker(session.session, file_journal) as worker:
        assert await worker.run(keys) == ()
        assert {*await asyncio.gather(worker.run(keys), worker.run(keys))} == {()}
        assert worker.stats().outcomes == {"completed": 3}
    assert session.agents.total() == 3


async def test_a_set_whose_time_ran_out(journal: Journal) -> None:
    """A set is given back whose jobs take longer than its time, and goes on when this worker runs it again."""
    session, told = FakeSession(duration=100.0), list[BatchResult]()
    await journal.add(items(2))
    keys = ["k0", "k1"]
    async with BatchWorker(session.session, journal, timeout=10.0, on_result=told.append) as worker:
        assert await worker.run(keys) == ("k0", "k1")
        session.duration = 0.0
        assert await worker.run(keys) == ()
    assert outcomes(told[:2]) == dict.fromkeys(keys, "timed_out")
    assert outcomes(told[2:]) == dict.fromkeys(keys, "completed")
    assert session.agents == {"p0": 1, "p1": 1}


async def test_polls_per_second_of_a_worker_that_does_not_begin(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that fails before its block is entered leaves no limit on the session."""
    real = Heartbeat.join

    async def broken(self: Heartbeat, owner: Owner) -> None:
        await real(self, owner)
        raise JournalError("the database is gone", "io")

    monkeypatch.setattr(Heartbeat, "join", broken)
    session = FakeSession()
    async with Journal.open(laid_out) as journal:
        await journal.set_limits(Limits(polls_per_second=3.0))
        with pytest.raises(JournalError, match="the database is gone"):
            async with BatchWorker(session.session, journal):
                pass
        assert journal._opened.owners.own == {}
    assert session.polls_per_second is None


async def test_a_worker_that_is_open(file_journal: Journal) -> None:
    """A worker that is open is not entered again: its limit ends with it, and after that it may be."""
    session = FakeSession()
    await file_journal.set_limits(Limits(polls_per_second=3.0))
    async with BatchWorker(session.session, file_journal) as worker:
        with pytest.raises(InvalidInputError, match="open already"):
            await worker.__aenter__()
    assert session.polls_per_second is None
    async with worker:
        assert session.polls_per_second == 3.0
    assert session.polls_per_second is None


async def test_a_closed_worker(file_journal: Journal) -> None:
    """A worker that is not open is told so."""
    worker = BatchWorker(FakeSession().session, file_journal)
    with pytest.raises(InvalidInputError, match="not open"):
        await worker.run(["k0"])
    assert (worker.active(), worker.stats().active, worker.stats().next_create) == ([], 0, None)
    await worker.aclose()


async def test_a_raising_observer(file_journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """What on_result raises, be it a cancellation, disturbs nothing; the first error is logged."""
    raised: list[BaseException] = [LookupError("no"), asyncio.CancelledError()]

    told: list[str] = []

    def observe(result: BatchResult) -> None:
        told.append(result.item.key)
        raise raised.pop()

    await file_journal.add(items(2))
    async with BatchWorker(FakeSession().session, file_journal, on_result=observe) as worker:
        assert await worker.run(["k0", "k1"]) == ()
        assert worker.stats().outcomes == {"completed": 2}
    assert sorted(told) == ["k0", "k1"]
    assert caplog.text.count("on_result raised") == 1


@pytest.mark.parametrize("observe", [5, asyncio.sleep, list])
def test_an_observer_that_makes_no_sense(file_journal: Journal, observe: Any) -> None:
    """What can't be called, is async, or is a class is refused by name when the worker is made."""
    with pytest.raises(InvalidInputError, match=r"^on_result must be"):
        BatchWorker(FakeSession().session, file_journal, on_result=observe)


async def test_a_journal_that_fails(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that can't be written makes a set fail, and only that: it can be run again."""
    real, errors = file_journal.store.claim, [JournalError("no room", "full")]

    async def claim(key: str, *rest: Any) -> Any:
        if errors:
            raise errors.pop()
        return await real(key, *rest)

    monkeypatch.setattr(file_journal.store, "claim", claim)
    await file_journal.add(items(3))
    async with BatchWorker(FakeSession().session, file_journal, max_sending=1) as worker:
        with pytest.raises(JournalError):
            await worker.run(["k0", "k1"])
        assert await worker.run(["k0", "k1", "k2"]) == ()


async def test_what_would_befall_every_item(file_journal: Journal) -> None:
    """An error that would befall every item comes out of the set, and lets nothing more be sent in any set."""
    session = FakeSession()
    session.answers = {f"p{number}": [refused_key()] for number in range(40)}
    await file_journal.add(items(40))
    keys = [item.key for item in items(40)]
    async with BatchWorker(session.session, file_journal, max_sending=1) as worker:
        results = await asyncio.gather(worker.run(keys[:20]), worker.run(keys[20:]), return_exceptions=True)
    assert sum(isinstance(result, AuthError) for result in results) == 1
    assert len(session.sent) == 1
    assert set(states(await file_journal.rows()).values()) == {"planned"}


async def test_a_set_that_comes_too_late(file_journal: Journal) -> None:
    """A set that is run once nothing may be sent any more sends nothing, and returns what it leaves planned."""
    session = FakeSession()
    session.answers = {"p0": [not_sent("certificate")]}
    await file_journal.add(items(2))
    async with BatchWorker(session.session, file_journal) as worker:
        with pytest.raises(NotSentError):
            await worker.run(["k0"])
        assert await worker.run(["k1"]) == ("k1",)
    assert [prompt for _, prompt in session.sent] == ["p0"]
    assert states(await file_journal.rows()) == {"k0": "planned", "k1": "planned"}


async def test_leaving_a_set(journal: Journal) -> None:
    """Cancelling a set leaves at once; its creates under way go on to their answers, and no further."""
    session = FakeSession(duration=FOREVER)
    session.answers = {"p0": [0.2]}
    await journal.add(items(3))
    async with BatchWorker(session.session, journal, max_sending=2) as worker:
        running = asyncio.ensure_future(worker.run(["k0", "k1", "k2"]))
        await session.creates(2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    counts = states(await journal.rows())
    assert counts["k0"] == "active"
    assert set(counts.values()) <= {"active", "planned"}


async def test_a_set_that_was_left(journal: Journal) -> None:
    """A set that was cancelled, or whose ends could not be recorded, goes on when the same worker runs it again."""
    session, told, keys = FakeSession(duration=100.0), list[BatchResult](), ["k0", "k1"]
    await journal.add(items(2))
    async with BatchWorker(session.session, journal, on_result=told.append) as worker:
        running = asyncio.ensure_future(worker.run(keys))
        await session.creates(2)
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker._open.context.records, "ended", fail)
            with pytest.raises(JournalError):
                await worker.run(keys)
        session.duration = 1.0
        again = await asyncio.gather(worker.run(keys), worker.run(keys))
    assert sorted(again, key=len) == [(), ("k0", "k1")]
    assert [(result.item.key, str(result.outcome)) for result in told] == [("k0", "completed"), ("k1", "completed")]
    assert session.agents == {"p0": 1, "p1": 1}


async def fail(*_: object) -> None:
    raise JournalError("the disk is full", "io")


@pytest.mark.parametrize("broken", [False, True])
async def test_no_id_is_dropped_by_closing(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, broken: bool
) -> None:
    """A worker that is closed while an id is being written down names it, in the error and in the log."""
    asked = hang(file_journal, monkeypatch)
    await file_journal.add(items(2))
    worker = BatchWorker(FakeSession().session, file_journal, max_sending=1)
    words = "the job of 'k0' is docs~.job_0: keep it"

    async def leave() -> None:
        async with worker:
            running = asyncio.ensure_future(worker.run(["k0", "k1"]))
            await asked.wait()
            if broken:
                raise LookupError
            running.cancel()

    with pytest.raises(LookupError if broken else JournalError) as caught:
        await leave()
    if isinstance(caught.value, JournalError):
        assert [ref.to_token() for ref in caught.value.unrecorded] == ["docs~.job_0"]
    else:
        assert words in caught.value.__notes__[0]
    assert words in caplog.text
    await worker.aclose()


def record_slowly(journal: Journal, seconds: float, patch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the journal take so long for each id; return what is set once it is asked to record one."""
    real, asked = journal.store.move, asyncio.Event()

    async def move(how: Move, *rest: Any, **settings: Any) -> JournalRow | None:
        if how is CREATED:
            asked.set()
            await asyncio.sleep(seconds)
        return await real(how, *rest, **settings)

    patch.setattr(journal.store, "move", move)
    return asked


async def test_an_id_that_is_being_recorded(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing a worker waits for an id that a slow journal is recording, and the row has it then."""
    asked = record_slowly(file_journal, 5.0, monkeypatch)
    await file_journal.add(items(1))
    async with BatchWorker(FakeSession(duration=FOREVER).session, file_journal) as worker:
        running = asyncio.create_task(worker.run(["k0"]))
        await asked.wait()
    await asyncio.wait([running])
    assert [(row.state, row.job_id) async for row in file_journal.rows()] == [("active", "job_0")]


async def test_an_id_that_is_being_recorded_as_its_batch_is_cancelled(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is cancelled while an id is being recorded records it, and leaves within a tenth of a second."""
    asked = record_slowly(file_journal, 0.04, monkeypatch)

    async def leave() -> None:
        async with run_batch(FakeSession(duration=FOREVER).session, items(1), journal=file_journal):
            await asyncio.Event().wait()

    running = asyncio.create_task(leave())
    await asked.wait()
    began = clock()
    running.cancel()
    await asyncio.wait([running])
    assert clock() - began < 0.1
    assert [(row.state, row.job_id) async for row in file_journal.rows()] == [("active", "job_0")]


async def test_a_claim_that_is_cut_off(laid_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is cut off as its worker ends does not touch the row, which another owner is sending."""
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        await one.add(items(1))
        asked = asyncio.Event()

        async def silent(key: str, *_: Any) -> Any:
            assert isinstance(await two.store.claim(key, BY_HAND), str)
            asked.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(one.store, "claim", silent)
        async with BatchWorker(FakeSession().session, one) as worker:
            running = asyncio.ensure_future(worker.run(["k0"]))
            await asked.wait()
            await worker._open.close(grace=0.0)
        await asyncio.wait([running])
        assert states(await two.rows()) == {"k0": "sending"}


@pytest.mark.parametrize(("duration", "gap"), [(30.0, 30), (0.0, 10)])
async def test_limits_of_a_file(file_journal: Journal, duration: float, gap: int) -> None:
    """A worker keeps to the limits of a journal in a file by itself: of active jobs, and of creates."""
    session = FakeSession(duration)
    await file_journal.set_limits(Limits(max_active=1, create_rate=Rate(1, per=10.0)))
    await file_journal.add(items(3))
    async with BatchWorker(session.session, file_journal) as worker:
        assert await worker.run(["k0", "k1", "k2"]) == ()
    assert [round(later - earlier) for (earlier, _), (later, _) in pairwise(session.sent)] == [gap, gap]


async def test_raised_limits_are_noticed(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker for which there is no room for an hour asks again within five seconds: limits may have been raised."""
    loop, real = asyncio.get_running_loop(), file_journal.store.claim
    asked: list[float] = []

    async def claim(key: str, *rest: Any) -> Any:
        asked.append(loop.time())
        return NoRoom(3600.0, "create_rate") if len(asked) < 3 else await real(key, *rest)

    monkeypatch.setattr(file_journal.store, "claim", claim)
    await file_journal.add(items(1))
    async with BatchWorker(FakeSession().session, file_journal) as worker:
        assert await worker.run(["k0"]) == ()
    assert [round(later - earlier) for earlier, later in pairwise(asked)] == [5, 5]


@pytest.mark.parametrize("kind", ["batch", "worker"])
async def test_each_run_masks_the_key_of_its_own_session(file_journal: Journal, kind: str) -> None:
    """What a run records is masked by its own session, also where a run with another key has begun on the journal."""
    session, other = FakeSession(60.0, key="the-first-key"), FakeSession(key="the-second-key")
    session.ends = {"p0": OSError("the-first-key was refused"), "p1": OSError("the-second-key was not")}
    await file_journal.add(items(2))
    if kind == "batch":
        async with run_batch(session.session, [], journal=file_journal) as results:
            async with BatchWorker(other.session, file_journal):
                assert len([result async for result in results]) == 2
    else:
        async with BatchWorker(session.session, file_journal) as worker, BatchWorker(other.session, file_journal):
            await worker.run(["k0", "k1"])
    errors = [row.error async for row in file_journal.rows()]
    assert errors == ["OSError: *** was refused", "OSError: the-second-key was not"]


@pytest.mark.parametrize("keys", [*([key] for key in NO_KEYS), "k0", None])
async def test_keys_that_no_item_can_have(file_journal: Journal, keys: Any) -> None:
    """A set with a key that no item can have, and what is no set of keys, is refused before anything is done."""
    async with BatchWorker(FakeSession().session, file_journal) as worker:
        with unused(file_journal), pytest.raises(InvalidInputError, match=r"^keys? must"):
            await worker.run(keys)
