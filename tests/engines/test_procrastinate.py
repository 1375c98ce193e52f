import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from procrastinate import PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager

from agentjobs_async import (
    AuthError,
    InvalidInputError,
    JobRef,
    JournalError,
    PollPolicy,
    SessionClosedError,
    WaitTimeoutError,
)
from agentjobs_async.batch import BatchItem, BatchResult, BatchWorker, Journal, Limits, State, Where, move_journal
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.batch._store.opened import Opened
from agentjobs_async.batch._store.owning import free_dead, free_own, unowned
from agentjobs_async.engines import _sweeping
from agentjobs_async.engines._connector import queue_errors
from agentjobs_async.engines.procrastinate import defer, run_worker, submit, work_off
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.silence import be_silent
from tests.batch.stage import FOREVER, FakeSession, items, refused_key, rejected, states, unknown
from tests.engines.process import NEVER
from tests.engines.stage import SOON, ended
from tests.postgresql import Server, execute
from tests.until import until

pytestmark = pytest.mark.usefixtures("_unhurried")

TIME_RAN_OUT = WaitTimeoutError(JobRef("docs", "job_0"), None, None, 1, 0.1)


def tasks(database: str) -> list[tuple[str, int]]:
    """Return the state of each task of the queue, and how often it was run."""
    return execute(database, "SELECT status::text, attempts FROM procrastinate_jobs ORDER BY id")


async def work(session: Any, journal: Journal, done: Callable[[], Awaitable[bool]], **settings: Any) -> None:
    """Run a worker until something has come about."""
    stop = asyncio.Event()
    real = session.session if isinstance(session, FakeSession) else session
    working = asyncio.ensure_future(run_worker(real, journal, stop=stop, **{**SOON, **settings}))
    waiting = asyncio.ensure_future(until(done))
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    stop.set()
    await working


async def test_all_completed(journal: Journal, database: str) -> None:
    """What is submitted in many tasks gets one agent each, and leaves no task in the queue."""
    session = FakeSession()
    results: list[BatchResult] = []
    assert await submit(items(25), journal=journal, chunk=4) == []
    assert len(tasks(database)) == 7
    await work(session, journal, lambda: _none(database), on_result=results.append)
    assert session.agents == {f"p{number}": 1 for number in range(25)}
    assert sorted(result.item.key for result in results) == sorted(f"k{number}" for number in range(25))
    assert set(states(await journal.rows()).values()) == {"completed"}


@pytest.mark.parametrize("count", [0, 3])
async def test_a_drained_session(journal: Journal, database: str, count: int) -> None:
    """A worker ends with its session, also where it has nothing to do, and gives its tasks back to the queue."""
    async with Emulator(script=JobScript(duration=float("inf"))) as emulator:
        async with emulator.session(project_id="docs") as session:
            await submit(items(count), journal=journal)
            async with BatchWorker(session, journal) as worker:
                working = asyncio.ensure_future(work_off(worker, **SOON))
                await until(lambda: emulator.agents_started.total() == count)
                await until(lambda: bool(execute(database, "SELECT 1 FROM procrastinate_workers")))
                await session.drain()
                with pytest.raises(SessionClosedError):
                    await working
    assert [status for status, _ in tasks(database)] == ["todo"] * (count > 0)
    assert set(states(await journal.rows()).values()) == ({"active"} if count else set())


async def _none(database: str) -> bool:
    return tasks(database) == []


async def test_tasks_carry_keys_only(journal: Journal, database: str) -> None:
    """No prompt is in the queue."""
    await submit([BatchItem("key-1", "a very private prompt", "docs")], journal=journal)
    (row,) = execute(database, "SELECT args::text, procrastinate_jobs::text FROM procrastinate_jobs")
    assert row[0] == '{"keys": ["key-1"]}'
    assert "private" not in row[1]


async def test_submitting_again(journal: Journal, database: str) -> None:
    """Submitting again hands out what has not ended, plans nothing twice, and refuses what can't be sent."""
    session = FakeSession()
    await submit(items(3), journal=journal)
    await work(session, journal, lambda: _none(database))
    more = [*items(5), BatchItem("k0", "another", "docs"), BatchItem("", "x")]
    assert [item.key for item, _ in await submit(more, journal=journal, chunk=1)] == ["", "k0"]
    assert len(tasks(database)) == 2
    assert await defer(["k3", "k0", "nobody"], journal=journal) == 1
    await work(session, journal, lambda: _none(database))
    assert session.agents == {f"p{number}": 1 for number in range(5)}


async def test_each_its_own_fate(journal: Journal) -> None:
    """Rejected, failed and unknown items disturb no other; what was settled by somebody is handed out again."""
    session = FakeSession()
    session.answers = {"p0": [rejected()], "p1": [unknown()]}
    session.ends = {"p2": "failed"}
    await submit(items(5), journal=journal)
    await work(session, journal, lambda: ended(journal))
    assert states(await journal.rows()) == {
        "k0": "rejected",
        "k1": "unknown",
        "k2": "failed",
        "k3": "completed",
        "k4": "completed",
    }
    await journal.resolve("k1", send_again=True)
    assert await defer(["k1"], journal=journal) == 1
    await work(session, journal, lambda: ended(journal))
    assert states(await journal.rows("completed")).keys() == {"k1", "k3", "k4"}


async def test_the_same_chunk_twice_at_once(journal: Journal, database: str) -> None:
    """Two workers that work on the same chunks at the same time start one agent for each item."""
    session = FakeSession(duration=0.05)
    session.answers = {f"p{number}": [0.02] for number in range(40)}
    await submit(items(40), journal=journal, chunk=20)
    for _ in range(3):
        await defer([item.key for item in items(40)], journal=journal, chunk=20)
    async with Journal.open(database, owner_timeout=NEVER) as other:
        await asyncio.gather(
            work(session, journal, lambda: ended(journal)), work(session, other, lambda: ended(journal))
        )
    assert session.agents == {f"p{number}": 1 for number in range(40)}
    assert set(states(await journal.rows()).values()) == {"completed"}


async def test_what_has_not_ended_is_run_again(journal: Journal, database: str) -> None:
    """A chunk with an item whose time ran out goes back to the queue, and is run again."""
    session = FakeSession()
    session.ends = {"p0": TIME_RAN_OUT, "p1": TIME_RAN_OUT}
    await submit(items(2), journal=journal)
    await work(session, journal, lambda: _attempted_again(database))
    assert states(await journal.rows()) == {"k0": "active", "k1": "active"}
    session.ends.clear()
    await work(session, journal, lambda: ended(journal))
    assert session.agents == {"p0": 1, "p1": 1}


async def test_stopping(journal: Journal, database: str) -> None:
    """A worker that stops waits for the answers of creates under way, and gives its chunks back."""
    session = FakeSession(duration=FOREVER)
    session.answers = {"p1": [0.5], "p2": [0.5]}
    await submit(items(5), journal=journal, chunk=1)
    stop = asyncio.Event()
    async with BatchWorker(session.session, journal, max_sending=3) as worker:
        working = asyncio.ensure_future(work_off(worker, chunks=5, stop=stop, **SOON))
        await until(lambda: len(session.sent) >= 3 and len(worker.active()) == 5)
        stop.set()
        await working
    assert tasks(database) == [("todo", 1)] * 5
    counts = await journal.counts()
    assert (counts[State.SENDING], counts[State.UNKNOWN]) == (0, 0)
    assert counts[State.ACTIVE] == len(session.sent)
    assert execute(database, "SELECT * FROM procrastinate_workers") == []


async def _sent(session: FakeSession, count: int) -> bool:
    return len(session.sent) >= count


async def test_cancelling(journal: Journal, database: str) -> None:
    """Cancelling a worker is to stop it."""
    session = FakeSession(duration=FOREVER)
    session.answers = {"p0": [0.3]}
    await submit(items(1), journal=journal)
    working = asyncio.ensure_future(run_worker(session.session, journal, **SOON))
    await until(lambda: _sent(session, 1))
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert states(await journal.rows()) == {"k0": "active"}
    assert tasks(database) == [("todo", 1)]


async def test_a_refused_key_ends_the_work(journal: Journal, database: str) -> None:
    """401 ends the worker with its error; nothing more is sent, and the chunks stay in the queue."""
    session = FakeSession()
    session.answers = {f"p{number}": [refused_key()] for number in range(50)}
    await submit(items(50), journal=journal, chunk=10)
    with pytest.raises(AuthError):
        await run_worker(session.session, journal, max_sending=1, **SOON)
    assert len(session.sent) <= 2
    assert {status for status, _ in tasks(database)} == {"todo"}
    assert (await journal.counts())[State.PLANNED] == 50


async def test_limits(journal: Journal, database: str) -> None:
    """Two workers together keep within the limits that the journal has for all."""
    async with Emulator(script=JobScript(duration=0.1)) as emulator:
        await journal.set_limits(Limits(max_active=4))
        await submit(items(30), journal=journal, chunk=5)
        policy = PollPolicy(wait=lambda _: 0.03)
        async with (
            Journal.open(database, owner_timeout=NEVER) as other,
            emulator.session(project_id="docs", policy=policy) as session,
        ):
            await asyncio.gather(
                work(session, journal, lambda: ended(journal)), work(session, other, lambda: ended(journal))
            )
        starts = sorted(job.started_at for job in emulator.jobs.values())
    assert len(starts) == 30
    assert max(sum(at - 0.1 < start <= at for start in starts) for at in starts) <= 4


async def test_limits_that_the_journal_keeps(journal: Journal, database: str) -> None:
    """A worker that is given no limits has those of the journal: the creates under way at once, and an item's time."""
    session = FakeSession(duration=FOREVER)
    session.answers = {f"p{number}": [0.01] for number in range(4)}
    results: list[BatchResult] = []
    await journal.set_limits(Limits(max_sending=1, timeout=0.1))
    await submit(items(4), journal=journal)
    await work(session, journal, lambda: _attempted_again(database), on_result=results.append)
    assert session.most_under_way == 1
    assert {result.outcome for result in results} == {"timed_out"}


async def test_a_restarted_database(own_postgresql: Server, own_database: str) -> None:
    """A worker rides out restarts of the database: no agent is doubled, and all come to their ends."""
    session = FakeSession(duration=0.3)
    session.answers = {f"p{number}": [0.02] for number in range(60)}
    async with Journal.open(own_database, owner_timeout=NEVER) as journal:
        await submit(items(60), journal=journal, chunk=10)

        async def restarts() -> None:
            await until(lambda: _sent(session, 10))
            await asyncio.to_thread(own_postgresql.restart)
            await until(lambda: _sent(session, 40))
            await asyncio.to_thread(own_postgresql.restart)

        await asyncio.gather(work(session, journal, lambda: ended(journal), max_sending=4), restarts())
        assert session.agents == {f"p{number}": 1 for number in range(60)}
        assert set(states(await journal.rows()).values()) == {"completed"}


async def test_wrong_settings(journal: Journal, path: Path) -> None:
    """Settings that make no sense, and a file, are refused before anything happens."""
    session = FakeSession().session
    for settings in (
        {"chunks": 0},
        {"stalled_after": 0},
        {"polling": float("nan")},
        {"max_sending": 0},
        {"timeout": -1},
    ):
        with pytest.raises(InvalidInputError, match=next(iter(settings))):
            await run_worker(session, journal, **settings)
    for chunk in (0, 1001, True):
        with pytest.raises(InvalidInputError, match="chunk"):
            await submit(items(1), journal=journal, chunk=chunk)
    async with Journal.open(path) as file:
        with pytest.raises(InvalidInputError, match="the journal is a file"):
            await submit(items(1), journal=file)
        with pytest.raises(InvalidInputError, match="the journal is a file"):
            await run_worker(session, file)


async def test_watching_a_worker(journal: Journal) -> None:
    """What an open worker is busy with can be looked at."""
    session = FakeSession(duration=FOREVER)
    await submit(items(2), journal=journal)
    stop = asyncio.Event()
    async with BatchWorker(session.session, journal) as worker:
        working = asyncio.ensure_future(work_off(worker, stop=stop, **SOON))
        refs = {JobRef("docs", "job_0"), JobRef("docs", "job_1")}
        await until(lambda: {item.ref for item in worker.active()} == refs)
        assert worker.stats().active == 2
        stop.set()
        await working


async def test_many_begin_at_once(empty_database: str) -> None:
    """Of many who submit to an empty database at once, all find one queue."""

    async def begin(number: int) -> None:
        async with Journal.open(empty_database) as journal:
            await submit(items(1, first=number), journal=journal)

    await asyncio.gather(*(begin(number) for number in range(4)))
    assert len(tasks(empty_database)) == 4


async def test_an_unreachable_queue(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that can't be reached gives a JournalError."""
    monkeypatch.setattr(Opened, "connect_arguments", lambda _: {"host": "127.0.0.1", "port": 1, "dbname": "x"})
    monkeypatch.setattr("agentjobs_async.engines.procrastinate._OPENING_SECONDS", 0.5)
    with pytest.raises(JournalError, match="the queue can't be reached"):
        await submit(items(1), journal=journal)


def failing_once(errors: list[Exception], real: Any) -> Any:
    """Return `real`, but for its first calls, which raise these errors."""

    async def call(*arguments: Any, **settings: Any) -> Any:
        if errors:
            raise errors.pop()
        return await real(*arguments, **settings)

    return call


@pytest.mark.parametrize("call", ["fetch_job", "get_stalled_jobs", "update_heartbeat"])
async def test_a_queue_that_fails_for_a_moment(journal: Journal, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A worker goes on with its work when the queue can't be read or told for a moment."""
    errors: list[Exception] = [ConnectorException()]
    monkeypatch.setattr(JobManager, call, failing_once(errors, getattr(JobManager, call)))
    session = FakeSession()
    await submit(items(3), journal=journal)

    async def failed_and_ended() -> bool:
        return not errors and await ended(journal)

    await work(session, journal, failed_and_ended)
    assert session.agents == {"p0": 1, "p1": 1, "p2": 1}


async def test_a_journal_that_fails_for_a_moment(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk whose journal could not be read goes back to the queue, and is run again."""
    errors: list[Exception] = [JournalError("no answer", "io")]
    monkeypatch.setattr(BatchWorker, "run", failing_once(errors, BatchWorker.run))
    session = FakeSession()
    await submit(items(3), journal=journal)
    await work(session, journal, lambda: ended(journal))
    assert session.agents == {"p0": 1, "p1": 1, "p2": 1}


async def test_a_queue_that_can_not_be_made(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no queue can be made, as by a user who may not, that is a JournalError."""

    async def nothing(_: object) -> None:
        pass

    monkeypatch.setattr(SchemaManager, "apply_schema_async", nothing)
    async with Journal.open(empty_database) as journal:
        with pytest.raises(JournalError, match="none can be made") as caught:
            await submit(items(1), journal=journal)
    assert caught.value.reason == "read_only"


def test_an_error_of_the_queue_holds_no_other_error() -> None:
    """The error of a queue that can't be used holds no error of the database, not even as its context."""
    with pytest.raises(JournalError) as caught, queue_errors():
        raise psycopg.OperationalError("no such host\nDETAIL: the password is secret")
    assert "secret" not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_a_word_that_was_lost(journal: Journal, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that did not reach the queue, since the connection broke, is repeated, and the chunk is not lost."""
    broken = ConnectorException()
    broken.__cause__ = psycopg.OperationalError("the connection broke")
    real, faults = PsycopgConnector.execute_query_async, [broken, broken]

    async def execute(connector: PsycopgConnector, query: LiteralString, **arguments: Any) -> None:
        if "retry_job" in query and faults:
            raise faults.pop()
        await real(connector, query, **arguments)

    monkeypatch.setattr(PsycopgConnector, "execute_query_async", execute)
    session = FakeSession()
    session.ends = {"p0": TIME_RAN_OUT, "p1": TIME_RAN_OUT}
    await submit(items(2), journal=journal)
    await work(session, journal, lambda: _attempted_again(database), stalled_after=FOREVER)
    assert faults == []


async def _attempted_again(database: str) -> bool:
    return bool(execute(database, "SELECT 1 FROM procrastinate_jobs WHERE attempts > 0"))


async def test_a_chunk_that_is_assigned_and_not_run(journal: Journal, database: str) -> None:
    """A chunk that the queue says a living worker runs, and which that does not, is run again."""
    session = FakeSession(duration=FOREVER)
    await submit(items(2), journal=journal, chunk=1)
    stop = asyncio.Event()
    working = asyncio.ensure_future(run_worker(session.session, journal, chunks=1, stop=stop, **SOON))
    await until(lambda: _sent(session, 1))
    execute(
        database,
        "UPDATE procrastinate_jobs SET status = 'doing', worker_id = (SELECT id FROM procrastinate_workers)"
        " WHERE status = 'todo'",
    )
    await until(lambda: _attempted_again(database))
    assert len(session.sent) == 1
    stop.set()
    await working


@pytest.mark.parametrize("late", ["created", "planned again"])
async def test_items_that_no_chunk_carries(journal: Journal, database: str, late: str) -> None:
    """Items of a chunk that was done, since they had become unknown, are run again when their late owner ends."""
    session = FakeSession()
    await submit(items(2), journal=journal)
    other = await Journal.open(database, owner_timeout=NEVER).__aenter__()
    owner = await other._opened.join(FakeSession().session)
    claim = await other.store.claim("k0", owner.name)
    assert isinstance(claim, str)
    await be_silent(other, database)
    stop = asyncio.Event()
    working = asyncio.ensure_future(run_worker(session.session, journal, stop=stop, **SOON))
    await until(lambda: _none(database))
    assert states(await journal.rows()) == {"k0": "unknown", "k1": "completed"}
    if late == "created":
        await Records(other.store, owner.name, str).created("k0", claim, JobRef("docs", "job_of_another"), None)
    else:
        await Records(other.store, owner.name, str).released("k0", claim, None)
    await other.aclose()
    await until(lambda: ended(journal))
    assert states(await journal.rows()) == {"k0": "completed", "k1": "completed"}
    await until(lambda: _none(database))
    stop.set()
    await working


async def test_items_that_somebody_waits_for(journal: Journal, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items of dead owners that a chunk carries are not handed out once more."""
    await submit(items(2), journal=journal)
    await _created_by_another(journal, "k0")
    execute(database, "UPDATE procrastinate_jobs SET scheduled_at = now() + interval '1 hour'")
    await free_dead(journal.store)
    assert [key for _, key in await unowned(journal.store, 0, 10)] == ["k0"]
    sweeps = []

    async def found(*arguments: Any) -> Any:
        sweeps.append(await unowned(*arguments))
        return sweeps[-1]

    monkeypatch.setattr(_sweeping, "unowned", found)
    stop = asyncio.Event()
    working = asyncio.ensure_future(run_worker(FakeSession().session, journal, stop=stop, **SOON))
    await until(lambda: len(sweeps) > 2)
    assert tasks(database) == [("todo", 0)]
    stop.set()
    await working


async def test_durable_jobs_beside_workers(journal: Journal) -> None:
    """Workers leave planned and active rows to durable jobs that follow them, and take them once these are gone."""
    store, session = journal.store, FakeSession()
    owner = await journal._opened.join(session.session)
    rows, records = DurableRows(store, owner.name, tells=True), Records(store, owner.name, str)
    for key in ("active", "planned"):
        assert await rows.submit(BatchItem(key, f"p {key}", "docs"))
        assert await records.unknown(key, str(await records.claim(key)), unknown())
    await journal.resolve("active", job_id="found")
    await journal.resolve("planned", send_again=True)
    await free_dead(store)
    assert await unowned(store, 0, 10) == []
    await free_own(store, owner.name)
    await journal._opened.leave(owner, has_left=True)
    assert [key for _, key in await unowned(store, 0, 10)] == ["active", "planned"]
    stop = asyncio.Event()
    working = asyncio.ensure_future(run_worker(session.session, journal, stop=stop, **SOON))
    await until(lambda: ended(journal))
    stop.set()
    await working
    assert states(await journal.rows()) == {"active": "completed", "planned": "completed"}
    assert session.agents == {"p planned": 1}


async def _created_by_another(journal: Journal, key: str) -> None:
    """Create the job of a row for an owner that has ended."""
    claim = str(await journal.store.claim(key, "another"))
    assert await Records(journal.store, "another", str).created(key, claim, JobRef("docs", "job_1"), None)


async def test_what_is_planned_again(journal: Journal) -> None:
    """A running worker takes up by itself what is retried, sent again, or has got its job."""
    session = FakeSession()
    session.ends["p0"] = "failed"
    session.answers = {"p1": [unknown()], "p2": [unknown()]}
    await submit(items(3), journal=journal)
    stop = asyncio.Event()
    working = asyncio.ensure_future(run_worker(session.session, journal, stop=stop, **SOON))
    await until(lambda: ended(journal))
    session.ends.clear()
    assert await journal.retry(where=Where(states={"failed"})) == ("k0",)
    await journal.resolve("k1", send_again=True)
    await journal.resolve("k2", job_id="found")
    await until(lambda: ended(journal))
    stop.set()
    await working
    assert [(row.key, row.tries, row.state) for row in await journal.rows(all_tries=True)] == [
        *(("k0", 1, "failed"), ("k0", 2, "completed")),
        *(("k1", 1, "unknown"), ("k1", 2, "completed")),
        ("k2", 1, "completed"),
    ]
    assert session.agents == {"p0": 2, "p1": 1}


async def test_a_journal_that_moves_to_a_worker(journal: Journal, database: str, path: Path) -> None:
    """A worker that waits on an empty database takes up what is moved there, planned and under way."""
    session = FakeSession()
    async with Journal.open(path) as file:
        await file.add(items(2))
        await _created_by_another(file, "k1")
    stop = asyncio.Event()
    working = asyncio.ensure_future(run_worker(session.session, journal, stop=stop, **SOON))
    await move_journal(path, database)
    await until(lambda: ended(journal))
    stop.set()
    await working
    assert states(await journal.rows()) == {"k0": "completed", "k1": "completed"}
    assert session.agents == {"p0": 1}


async def test_until_done(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is to end with its journal does so once each item has ended, and logs a line for each chunk."""
    caplog.set_level(logging.INFO, "agentjobs_async.engines")
    session = FakeSession()
    session.answers = {"p2": [rejected()]}
    session.ends = {"p1": "failed"}
    settings: dict[str, Any] = {**SOON, "until_done": True}
    await run_worker(session.session, journal, **settings)  # at once: there is nothing
    await submit(items(5), journal=journal, chunk=3)
    await run_worker(session.session, journal, **settings)
    assert await ended(journal)
    lines = sorted(message for message in caplog.messages if message.startswith("a chunk"))
    assert lines == [
        "a chunk of 2 items: 2 completed; 0 left over",
        "a chunk of 3 items: 1 failed, 1 rejected, 1 completed; 0 left over",
    ]


async def test_an_event_of_the_caller(journal: Journal) -> None:
    """The event that stops a worker is its caller's: a worker that ends by itself, or by an error, leaves it unset."""
    session, stop = FakeSession(), asyncio.Event()
    settings: dict[str, Any] = {**SOON, "stop": stop}
    await submit(items(2), journal=journal)
    await run_worker(session.session, journal, **settings, until_done=True)
    assert await ended(journal)
    session = FakeSession()
    session.answers = {"late": [refused_key()]}
    await submit([BatchItem("late", "late", "docs")], journal=journal)
    with pytest.raises(AuthError):
        await run_worker(session.session, journal, **settings)
    assert not stop.is_set()
    stop.set()
    await run_worker(session.session, journal, **settings)
    assert session.agents == {}
    assert (await journal.counts())[State.PLANNED] == 1


async def test_until_others_are_done(journal: Journal, database: str, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is to end with its journal waits for what another owner has, and says what is left over."""
    caplog.set_level(logging.INFO, "agentjobs_async.engines")
    await submit(items(2), journal=journal)
    async with Journal.open(database, owner_timeout=NEVER) as other:
        owner = await other._opened.join(FakeSession().session)
        claim = await other.store.claim("k0", owner.name)
        assert isinstance(claim, str)
        working = asyncio.ensure_future(run_worker(FakeSession().session, journal, **SOON, until_done=True))
        await until(lambda: "a chunk of 2 items: 1 completed; 1 left over" in caplog.messages)
        assert not working.done()
        await Records(other.store, owner.name, str).rejected("k0", claim, ValueError("no"))
        await working
    assert states(await journal.rows()) == {"k0": "rejected", "k1": "completed"}
