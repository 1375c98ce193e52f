"""Jobs whose creates are held back: the entry, `on_change` and the figures say why."""

import json

import pytest
from attrs import evolve

from agentjobs_async import AgentJobsSession, AuthError, InvalidInputError, NotSentError, RateLimitedError
from agentjobs_async.batch import Journal, Limits, Rate, State
from agentjobs_async.batch._run.kinds import DURABLE
from agentjobs_async.durable import DurableEntry, DurableJobs, DurableStats
from agentjobs_async.testing import Emulator
from tests.durable.listener import Listener, complete
from tests.until import until


async def found(jobs: DurableJobs, key: str) -> DurableEntry:
    """Return the entry of a key."""
    entry = await jobs.get(key)
    assert entry is not None
    return entry


async def held_entry(jobs: DurableJobs, key: str) -> DurableEntry:
    """Return the entry of a planned job once the journal says why it is held back."""

    async def is_held() -> bool:
        return (await found(jobs, key)).error is not None

    await until(is_held)
    return await found(jobs, key)


@pytest.mark.parametrize(
    ("fault", "error"),
    [("401 forever on=create", AuthError), ("429 forever retry-after=900 on=create", RateLimitedError)],
)
async def test_held_by_the_service(
    emulator: Emulator,
    session: AgentJobsSession,
    journal: Journal,
    listener: Listener,
    fault: str,
    error: type[Exception],
) -> None:
    """A refused key and a 429 are told once for each job that they hold back, and the figures say the same."""
    await emulator.inject(fault)
    async with DurableJobs(session, journal, on_change=listener.on_change) as jobs:
        for key in ("a", "b", "c"):
            await jobs.submit(key, "Hello", wait_for_create=False)
        await until(lambda: len(listener.changes) == 3)
        assert sorted(listener.changes) == [(key, error.__name__) for key in ("a", "b", "c")]
        for key in ("a", "b", "c"):
            entry = await held_entry(jobs, key)
            assert (entry.state, entry.error) == (State.PLANNED, listener.entries[0].error)
        stats = jobs.stats()
        assert (dict(stats.counts), stats.held) == ({State.PLANNED: 3}, 3)
        assert isinstance(stats.paused_by, error)
        later = await jobs.submit("later", "Hello", wait_for_create=False)
        assert (later.state, later.error) == (State.PLANNED, listener.entries[0].error)


async def test_held_by_a_server_that_is_gone(journal: Journal, listener: Listener) -> None:
    """A service that can't be reached is told as what holds a job back."""
    async with Emulator() as gone:
        session = gone.session(project_id="docs")
    async with session, DurableJobs(session, journal, on_change=listener.on_change) as jobs:
        await jobs.submit("a", "Hello", wait_for_create=False)
        await until(lambda: listener.changes)
        assert listener.changes == [("a", "NotSentError")]
        assert isinstance(jobs.stats().paused_by, NotSentError)


async def test_held_by_a_rate(session: AgentJobsSession, journal: Journal, listener: Listener) -> None:
    """A job that waits for its turn of a rate is told so, in words that name the rate; the figures say until when."""
    await journal.set_limits(Limits(create_rate=Rate(1, per=3600)))
    async with DurableJobs(session, journal, on_change=listener.on_change) as jobs:
        await jobs.submit("first", "Hello")
        await jobs.submit("second", "Hello", wait_for_create=False)
        entry = await held_entry(jobs, "second")
        assert "create_rate" in (entry.error or "")
        await until(lambda: any(key == "second" for key, _ in listener.changes))
        stats = jobs.stats()
        assert (stats.held, stats.paused_by) == (1, None)
        assert stats.next_create is not None


async def test_sent_once_the_hold_is_over(
    emulator: Emulator, session: AgentJobsSession, file_journal: Journal, listener: Listener
) -> None:
    """A job that was held back is sent later, and its entry says nothing of the hold any more."""
    await emulator.inject("429 retry-after=3 on=create")
    async with DurableJobs(session, file_journal, on_change=listener.on_change, on_end=listener.on_end) as jobs:
        await jobs.submit("a", "Hello")
        await listener.ends(1)
        entry = await found(jobs, "a")
        assert (entry.state, entry.error) == (State.COMPLETED, None)
    assert listener.changes[0] == ("a", "RateLimitedError")
    assert listener.called == [("a", "completed")]


async def test_withdrawn_while_held(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener
) -> None:
    """A job that is held back can be withdrawn: it is never sent, its end is told, and `retry` plans it again."""
    await emulator.inject("429 retry-after=900 on=create")
    async with DurableJobs(session, journal, on_change=listener.on_change, on_end=listener.on_end) as jobs:
        await jobs.submit("a", "Hello", wait_for_create=False)
        await held_entry(jobs, "a")
        await jobs.abandon("a")
        await listener.ends(1)
        assert listener.called == [("a", "AgentJobsError")]
        await jobs.retry("a")
        entry = await found(jobs, "a")
        assert (entry.state, entry.tries) == (State.PLANNED, 2)
    assert not emulator.jobs


async def test_held_again_after_a_retry(
    emulator: Emulator,
    session: AgentJobsSession,
    journal: Journal,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that is withdrawn and retried at once, under the same hold, is told of it once more for its new try."""
    monkeypatch.setattr("agentjobs_async.durable._held._LOOK_SECONDS", 1.0)  # no look between the two calls
    await emulator.inject("429 forever retry-after=900 on=create")
    async with DurableJobs(session, journal, on_change=listener.on_change, on_end=listener.on_end) as jobs:
        await jobs.submit("a", "Hello", wait_for_create=False)
        await until(lambda: listener.changes)
        await jobs.abandon("a")
        await jobs.retry("a")
        assert (await held_entry(jobs, "a")).tries == 2
        await until(lambda: len(listener.changes) == 2)
    assert [(entry.state, entry.tries) for entry in listener.entries] == [
        (State.PLANNED, 1),
        (State.ABANDONED, 1),
        (State.PLANNED, 2),
    ]


async def test_held_by_turns(
    emulator: Emulator,
    session: AgentJobsSession,
    journal: Journal,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job that two reasons hold back by turns is told each of them once, and its entry has the newest one."""
    monkeypatch.setattr("agentjobs_async.durable._creates._HELD_SECONDS", 5.0)
    monkeypatch.setattr("agentjobs_async.durable.jobs.DURABLE", evolve(DURABLE, refused_for=5.0))
    for fault in ("429 retry-after=5", "401", "429 retry-after=900"):
        await emulator.inject(f"{fault} on=create")
    async with DurableJobs(session, journal, on_change=listener.on_change) as jobs:
        await jobs.submit("a", "Hello", wait_for_create=False)
        await until(lambda: (jobs.stats().next_create or 0.0) > 800.0)
        await jobs.submit("b", "Hello", wait_for_create=False)
        await until(lambda: ("b", "RateLimitedError") in listener.changes)
        assert "429" in ((await found(jobs, "a")).error or "")
    assert [told for key, told in listener.changes if key == "a"] == ["RateLimitedError", "AuthError"]


async def test_retried_job_is_sent_and_told_again(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener
) -> None:
    """`retry` sends a job that has failed once more under its key, and both ends are told."""
    await emulator.inject("422 on=create", prompt="Hello")
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        await jobs.submit("a", "Hello")
        await listener.ends(1)
        await jobs.retry("a")
        await listener.ends(2)
    assert listener.called == [("a", "RejectedError"), ("a", "completed")]


def test_figures_for_anyone() -> None:
    """A health check shows each count, 0 too, and the type of an error without its text."""
    stats = DurableStats({State.ACTIVE: 2, State.COMPLETED: 1}, 3, AuthError(401, excerpt="secret"), 1.5)
    assert json.loads(json.dumps(stats.to_dict())) == {
        "planned": 0,
        "sending": 0,
        "active": 2,
        "unknown": 0,
        "held": 3,
        "paused_by": "AuthError",
        "next_create": 1.5,
    }
    assert DurableStats({}, 0).to_dict()["paused_by"] is None


async def test_figures(
    emulator: Emulator, session: AgentJobsSession, file_journal: Journal, listener: Listener
) -> None:
    """The figures count what is followed by state, and what is unknown; outside of the block all of them are 0."""
    await emulator.inject("reset on=create", prompt="lost")
    jobs = DurableJobs(session, file_journal, on_end=listener.on_end)
    assert jobs.stats() == DurableStats({}, 0)
    async with jobs:
        await jobs.submit("a", "long")
        await jobs.submit("b", "lost")
        await listener.ends(1)
        await until(lambda: State.UNKNOWN in jobs.stats().counts)
        await until(lambda: dict(jobs.stats().counts) == {State.ACTIVE: 1, State.UNKNOWN: 1})
        await complete(emulator)
        await listener.ends(2)
    assert jobs.stats() == DurableStats({}, 0)


async def test_context_that_is_replaced(
    emulator: Emulator, session: AgentJobsSession, journal: Journal, listener: Listener
) -> None:
    """A context that is replaced while the job is at work is that of its end, in each process."""
    async with DurableJobs(session, journal, on_end=listener.on_end) as jobs:
        await jobs.submit("a", "long", context={"chat": 7})
        await jobs.set_context("a", {"chat": 7, "answer": 11})
        await complete(emulator)
        await listener.ends(1)
        assert (await found(jobs, "a")).context == {"chat": 7, "answer": 11}
        with pytest.raises(InvalidInputError):
            await jobs.set_context("none", {})
    assert listener.entries[-1].context == {"chat": 7, "answer": 11}


async def test_gauges(emulator: Emulator, session: AgentJobsSession, file_journal: Journal, listener: Listener) -> None:
    """Gauges show what is planned, held back, unknown and active of durable jobs, and nothing outside of the block."""
    await emulator.inject("reset on=create", prompt="lost")
    await emulator.inject("429 retry-after=900 on=create", prompt="wait")
    jobs = DurableJobs(session, file_journal, on_end=listener.on_end)
    assert jobs._gauges() is None
    async with jobs:
        await jobs.submit("a", "long")
        await jobs.submit("b", "lost")
        await jobs.submit("c", "wait", wait_for_create=False)
        await until(lambda: jobs.stats().held == 1 and jobs.stats().counts.get(State.UNKNOWN) == 1)
        found = jobs._gauges()
        assert found is not None
        assert (found.planned, found.held, found.unknown) == (1, 1, 1)
        assert (found.states["waiting"], found.states["active"]) == (1, 1)
    assert jobs._gauges() is None
