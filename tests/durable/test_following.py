"""What the callbacks are told, and when."""

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import pytest

from agentjobs_async import AgentJob, AgentJobsSession, JobRef, JobStatus, JournalError, ResponseError
from agentjobs_async.batch import BatchWorker, Journal
from agentjobs_async.batch._run.item_run import record_end
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.durable_rows import DurableRows
from agentjobs_async.durable import DurableEntry, DurableJobs
from agentjobs_async.durable import _following as following
from agentjobs_async.durable import jobs as durable_jobs
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import states
from tests.durable.listener import Listener
from tests.until import until

USER: ContextVar[str] = ContextVar("user", default="nobody")


@pytest.mark.looptime
async def test_changes(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """Each new state is told, the newest one and no earlier than the gap allows; the end is left to `on_end`."""
    stages = tuple((float(second), f"step {second}") for second in range(1, 1_000))
    emulator.script(JobScript(duration=1e6, stages=stages), prompt="Hello")
    listener = Listener()
    times: list[float] = []

    async def change(entry: DurableEntry, job: AgentJob | Exception) -> None:
        times.append(asyncio.get_running_loop().time())
        await listener.on_change(entry, job)
        if len(times) == 3:
            await emulator.inject("410 forever on=get", prompt="Hello")

    async with DurableJobs(session, file_journal, on_change=change, on_end=listener.on_end, least_gap=0.5) as jobs:
        await jobs.submit("k", "Hello")
        await listener.ends(1)
    assert states(await file_journal.rows()) == {"k": "failed"}
    steps = [int(status.removeprefix("step ").replace("active", "0")) for _, status in listener.changes]
    assert len(steps) == 3
    assert steps == sorted(set(steps))
    assert all(later - earlier > 0.499 for earlier, later in pairwise(times))  # 0.5, but for rounding
    assert listener.called == [("k", "NotFoundError")]


async def test_end_waits_for_a_change(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """`on_end` is not called while `on_change` is under way: it would be overtaken by an older state."""
    told: list[str] = []
    ended = asyncio.Event()

    async def change(_entry: DurableEntry, _job: AgentJob | Exception) -> None:
        await emulator.inject("410 forever on=get", prompt="long")
        await until(lambda: not session.stats().jobs)
        told.append("change")

    def end(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        told.append("end")
        ended.set()

    async with DurableJobs(session, file_journal, on_change=change, on_end=end) as jobs:
        await jobs.submit("k", "long")
        await ended.wait()
    assert told == ["change", "end"]


async def test_callbacks_that_raise(
    emulator: Emulator,
    session: AgentJobsSession,
    file_journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Callbacks that raise are logged once and disturb no other job; `on_end` is called again until it has returned."""
    monkeypatch.setattr(following, "_FIRST_RETRY_SECONDS", 0.01)
    listener = Listener(failures=1)

    async def change(entry: DurableEntry, job: AgentJob | Exception) -> None:
        await listener.on_change(entry, job)
        if len(listener.changes) == 4:
            await emulator.inject("410 forever on=get", prompt="long")
        raise ValueError("no chat")

    async with DurableJobs(session, file_journal, on_change=change, on_end=listener.on_end) as jobs:
        await asyncio.gather(*(jobs.submit(f"k{number}", "long") for number in range(4)))
        await listener.ends(8)
    assert sorted(listener.called) == sorted([(f"k{n}", "NotFoundError") for n in range(4)] * 2)
    messages = [record.getMessage() for record in caplog.records if "raised" in record.getMessage()]
    assert sorted(message.partition(" for ")[0] for message in messages) == [
        "on_change raised ValueError",
        "on_end raised RuntimeError",
    ]


async def test_contexts(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """Callbacks run in the context in which the block was entered, whoever submits the job, also when it is refused."""
    await emulator.inject("422", prompt="Bye")
    seen: list[str] = []
    listener = Listener()

    async def end(entry: DurableEntry, ended: Any) -> None:
        seen.append(USER.get())
        await listener.on_end(entry, ended)

    USER.set("the bot")
    async with DurableJobs(
        session, file_journal, on_change=lambda _entry, _job: seen.append(USER.get()), on_end=end
    ) as jobs:
        USER.set("a user")
        await asyncio.gather(jobs.submit("k", "Hello"), jobs.submit("refused", "Bye"))
        await listener.ends(2)
    assert set(seen) == {"the bot"}
    assert sorted(listener.called) == [("k", "completed"), ("refused", "RejectedError")]


async def test_end_without_the_service(
    emulator: Emulator, session: AgentJobsSession, file_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the service can't be asked at a restart, `on_end` gets the job as the journal knows it."""
    monkeypatch.setattr(following, "_READING_SECONDS", 0.05)
    failing, listener = Listener(failures=10), Listener()
    async with DurableJobs(session, file_journal, on_end=failing.on_end) as jobs:
        entry = await jobs.submit("k", "Hello")
        await failing.ends(1)
    async with emulator.refusing(), DurableJobs(session, file_journal, on_end=listener.on_end):
        await listener.ends(1)
    job = listener.entries[0].job
    assert job is not None
    assert (job.ref, job.status) == (entry.ref, JobStatus.COMPLETED)
    assert job.pr_link is not None


@pytest.mark.parametrize("fault", ["422 on=create forever", "410 on=get forever"])
async def test_refusal(emulator: Emulator, session: AgentJobsSession, journal: Journal, fault: str) -> None:
    """A refusal, of the create or of the reads, is told after a restart as it was before."""
    await emulator.inject(fault, prompt="Hello")
    told: list[Any] = []
    for listener in (Listener(failures=9), Listener()):

        async def end(entry: DurableEntry, ended: Any, listener: Listener = listener) -> None:
            told.append(ended)
            await listener.on_end(entry, ended)

        async with DurableJobs(session, journal, on_end=end) as jobs:
            await jobs.submit("k", "Hello")
            await listener.ends(1)
    before, after = ((type(error), error.status, str(error), error.outcome, error.ref) for error in told)
    assert issubclass(before[0], ResponseError)
    assert after == before


async def test_leaving_does_not_wait_for_pauses(
    session: AgentJobsSession, file_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving waits for a callback that runs, and not for one that is to be called again later."""
    monkeypatch.setattr(following, "_FIRST_RETRY_SECONDS", 3600.0)
    monkeypatch.setattr(durable_jobs, "GRACE_SECONDS", 3600.0)
    failing = Listener(failures=1)
    done: list[str] = []
    began = asyncio.Event()

    async def slow(entry: DurableEntry, ended: AgentJob | Exception) -> None:
        if entry.key == "slow":
            began.set()
            for _ in range(50):
                await asyncio.sleep(0)
            done.append(entry.key)
        else:
            await failing.on_end(entry, ended)

    async with DurableJobs(session, file_journal, on_end=slow) as jobs:
        await jobs.submit("failing", "Hello")
        await failing.ends(1)
        await jobs.submit("slow", "Hello")
        await began.wait()
    assert (done, len(failing.called)) == (["slow"], 1)


async def test_callback_that_returns_while_leaving(
    session: AgentJobsSession, file_journal: Journal, listener: Listener
) -> None:
    """Leaving waits for a callback under way, and an end for which it returns by then is not told again."""
    began = asyncio.Event()

    async def slow(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        began.set()
        for _ in range(50):
            await asyncio.sleep(0)

    async with DurableJobs(session, file_journal, on_end=slow) as jobs:
        await jobs.submit("slow", "Hello")
        await began.wait()
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "Hello")
        await listener.ends(1)
    assert listener.called == [("k", "completed")]


async def test_callback_that_closes(session: AgentJobsSession, file_journal: Journal, listener: Listener) -> None:
    """A callback may close the durable jobs: they do not wait for it, and its end is not told again."""
    closed = asyncio.Event()

    async def close(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        await jobs.aclose()
        closed.set()

    async with DurableJobs(session, file_journal, on_end=close) as jobs:
        await jobs.submit("closing", "Hello")
        await closed.wait()
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as again:
        await again.submit("k", "Hello")
        await listener.ends(1)
    assert listener.called == [("k", "completed")]


async def test_leaving_that_is_cancelled(session: AgentJobsSession, file_journal: Journal) -> None:
    """A cancellation ends the time that leaving gives to a callback under way."""
    told = asyncio.Event()

    async def end(_entry: DurableEntry, _end: AgentJob | Exception) -> None:
        told.set()
        await asyncio.Event().wait()

    async def work() -> None:
        async with DurableJobs(session, file_journal, on_end=end) as jobs:
            await jobs.submit("k", "Hello")
            await told.wait()
            asyncio.get_running_loop().call_soon(working.cancel)

    working = asyncio.create_task(work())
    async with asyncio.timeout(5):
        await asyncio.wait([working])
    assert working.cancelled()


async def test_callback_that_swallows_its_cancellation(
    session: AgentJobsSession, file_journal: Journal, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving leaves it behind after a time; the next block tells of its end."""
    monkeypatch.setattr(durable_jobs, "GRACE_SECONDS", 0.01)
    began, left = asyncio.Event(), asyncio.Event()

    async def stay(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        began.set()
        while not left.is_set():
            with suppress(asyncio.CancelledError):
                await left.wait()

    async with DurableJobs(session, file_journal, on_end=stay) as jobs:
        await jobs.submit("k", "Hello")
        await began.wait()
    left.set()
    async with DurableJobs(session, file_journal, on_end=listener.on_end):
        await listener.ends(1)
    assert listener.called == [("k", "completed")]


async def test_wait_that_ends_as_cancelled(
    emulator: Emulator, file_journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a `get_job` of the user's raises CancelledError, the job is waited for again later, and this is logged."""
    monkeypatch.setattr(following, "_AGAIN_SECONDS", 0.01)
    listener = Listener()
    left = [asyncio.CancelledError()]

    async def get_job(ref: JobRef) -> AgentJob:
        if left:
            raise left.pop()
        return AgentJob(ref.job_id, ref.project_id, "completed")

    async with AgentJobsSession(emulator.base_url, emulator.api_key, project_id="docs", get_job=get_job) as session:
        async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
            await jobs.submit("k", "Hello")
            await listener.ends(1)
    assert listener.called == [("k", "completed")]
    assert [record.getMessage() for record in caplog.records] == [
        "'k' can't be read, and is tried again in 0 s: get_job raised CancelledError()"
    ]


async def test_end_found_while_it_is_recorded(
    emulator: Emulator,
    session: AgentJobsSession,
    file_journal: Journal,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An end that is found in its row before its task knows it to be there is told by that task; nothing is read."""
    sent: list[int] = []

    async def recorded(*arguments: Any) -> Any:
        outcome = await record_end(*arguments)
        sent.append(len(emulator.requests))
        await jobs.submit("k", "Hello")  # it finds the end in the row
        return outcome

    monkeypatch.setattr(following, "record_end", recorded)
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "Hello")
        await listener.ends(1)
    assert sent == [len(emulator.requests)]
    assert listener.called == [("k", "completed")]


async def test_corrected_while_an_end_is_recorded(
    emulator: Emulator,
    session: AgentJobsSession,
    file_journal: Journal,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that is corrected and noticed while the end of the wrong one is recorded is followed instead of that."""
    await emulator.inject("reset on=create", prompt="Hello")
    wrong, right = [(await session.create_job(prompt)).ref for prompt in ("wrong", "right")]

    async def recorded(records: Records, key: str, job_id: str, *rest: Any) -> Any:
        if job_id == wrong.job_id:
            await file_journal.resolve("k", job_id=right.job_id)
            await jobs._noticing.sweep_once()
        return await record_end(records, key, job_id, *rest)

    monkeypatch.setattr(following, "record_end", recorded)
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "Hello")
        await listener.ends(1)
        await file_journal.resolve("k", job_id=wrong.job_id)
        await listener.ends(2)
    assert listener.called == [("k", "CreateOutcomeUnknownError"), ("k", "completed")]
    assert listener.entries[1].ref == right


async def test_end_that_another_has_recorded(
    emulator: Emulator,
    session: AgentJobsSession,
    file_journal: Journal,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end that is told is the one in the row, where another task has recorded it before this one met an error."""
    await emulator.inject("410 on=get forever", prompt="Hello")

    async def recorded(records: Records, key: str, job_id: str, *rest: Any) -> Any:
        await records.ended(key, AgentJob(job_id, str(session.project_id), "failed"), 1)
        return await record_end(records, key, job_id, *rest)

    monkeypatch.setattr(following, "record_end", recorded)
    async with DurableJobs(session, file_journal, on_end=listener.on_end) as jobs:
        await jobs.submit("k", "Hello")
        await listener.ends(1)
    assert listener.called == [("k", "failed")]


async def test_record_of_an_earlier_end(
    emulator: Emulator,
    session: AgentJobsSession,
    file_journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An end that can be recorded as told only once the row has another end of its kind leaves that one to be told."""
    monkeypatch.setattr(following, "_FIRST_RETRY_SECONDS", 0.5)
    await emulator.inject("reset on=create forever", prompt="lost")
    called = asyncio.Semaphore(0)
    record_told, failures = DurableRows.record_told, [JournalError("disk full", "full")]

    async def on_end(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        called.release()
        if not failures:
            raise RuntimeError("the chat can't be reached")

    async def recorded(rows: DurableRows, *end: Any, **told: Any) -> None:
        if failures:
            raise failures.pop()
        await record_told(rows, *end, **told)

    monkeypatch.setattr(DurableRows, "record_told", recorded)
    async with DurableJobs(session, file_journal, on_end=on_end) as jobs:
        await jobs.submit("k", "lost")
        await called.acquire()
        await until(lambda: not failures)
        await file_journal.resolve("k", send_again=True)
        for _ in range(3):  # it raises again and again, while the recording of the first end is tried once more
            await called.acquire()
    told: list[str] = []
    async with DurableJobs(session, file_journal, on_end=lambda entry, _ended: told.append(entry.key)):
        await until(lambda: told)
    assert told == ["k"]


async def test_key_of_its_own_session(emulator: Emulator, file_journal: Journal) -> None:
    """What durable jobs record is masked by their session, also where a run with another key uses the journal."""

    async def get_job(_ref: JobRef) -> AgentJob:
        await entered.wait()
        raise ValueError(f"{emulator.api_key} was sent")

    async def error() -> str | None:
        return (await file_journal.rows())[0].error

    entered = asyncio.Event()
    settings: dict[str, Any] = {"project_id": "docs", "get_job": get_job}
    async with emulator.session(**settings) as session, emulator.session(api_key="another-key") as other:
        async with DurableJobs(session, file_journal) as jobs, BatchWorker(other, file_journal):
            await jobs.submit("k", "long")
            entered.set()
            await until(error)
    assert await error() == "ValueError: *** was sent"
