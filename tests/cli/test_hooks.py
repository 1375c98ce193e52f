import asyncio
from datetime import UTC, datetime

import pytest
from attrs import evolve, frozen

from agentjobs_async import (
    AgentJob,
    CreateFailed,
    CreateOutcome,
    JobCreated,
    JobPolled,
    JobRef,
    NotFoundError,
    NotSentError,
    PollFailed,
    RejectedError,
    ServerError,
    TransportError,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async.batch import ActiveItem, BatchStats, JournalRow, State
from agentjobs_async.cli._output.results import Change
from agentjobs_async.cli.hooks import ItemChanges, JobChanges, OpenJobs, Polls, SilenceHook
from tests.polled import REF

JOB = AgentJob("job_1", "docs", "active")


@frozen
class OneActive:
    """A run with one active item."""

    row: JournalRow

    def stats(self) -> BatchStats:
        return BatchStats(0, 1, None, {}, stopped=False)

    def active(self) -> list[ActiveItem]:
        return [ActiveItem(self.row.key, State.ACTIVE, 0.0, REF, row=self.row)]


def test_changes() -> None:
    """A create and each new status are reported; a change of anything else is not, but the newest job is known."""
    reported: list[Change] = []
    changes = JobChanges(reported.append)
    renamed, ended = evolve(JOB, model="another"), evolve(JOB, status="completed")
    changes(JobCreated(JOB, 0.1))
    changes(JobPolled(JOB, 1))
    changes(JobPolled(renamed, 2))
    assert changes.last_job(REF) is renamed
    changes(JobPolled(ended, 3))
    assert reported == [Change("created", REF, JOB), Change("status", REF, ended)]
    changes.forget(REF)
    assert changes.last_job(REF) is None


def test_first_status() -> None:
    """The first status of a job that was created elsewhere is reported."""
    reported: list[Change] = []
    JobChanges(reported.append)(JobPolled(JOB, 1))
    assert reported == [Change("status", REF, JOB)]


@pytest.mark.parametrize("waits", [True, False])
def test_create_of_an_item(*, waits: bool) -> None:
    """The create of an item is reported once its job is recorded: when the wait begins, or with its end."""
    reported: list[Change] = []
    row = JournalRow("k", "x", "docs", State.PLANNED, None, None, None, datetime.now(UTC), 1)
    changes = ItemChanges(reported.append)
    changes.begin(OneActive(row))
    changes(JobCreated(JOB, 0.1))
    assert reported == []
    if waits:
        changes(WaitStarted(REF))
    else:
        changes.end(REF, row)
    assert reported == [Change("created", REF, JOB, number=row.number, key=row.key, prompt=row.prompt)]


def test_trouble() -> None:
    """Trouble is reported at the second failure in a row, and again only after a good answer."""
    reported: list[Change] = []
    hook, error = JobChanges(reported.append), TransportError("cut")
    hook(JobPolled(JOB, 1))
    hook(PollFailed(REF, asyncio.CancelledError(), 1))
    hook(PollFailed(REF, error, 1))
    hook(JobPolled(JOB, 2))
    assert len(reported) == 1
    for poll in range(3):
        hook(PollFailed(REF, error, poll))
    hook(JobPolled(JOB, 6))
    hook(PollFailed(REF, error, 7))
    hook(PollFailed(REF, error, 8))
    assert reported[1:] == [Change("trouble", REF, error="cut; a read may be tried again")] * 2


def test_a_service_that_is_gone() -> None:
    """Two polls in a row without a usable answer, of whichever jobs, are trouble; any other answer ends it."""
    other = JobRef("docs", "job_2")
    polls, gone, busy = Polls(), TransportError("cut"), ServerError(503)
    polls(PollFailed(REF, gone, 1))
    assert polls.trouble is None
    polls(PollFailed(other, busy, 1))
    assert polls.trouble is busy
    polls(PollFailed(other, asyncio.CancelledError(), 2))
    assert polls.trouble is busy
    for answer in (JobPolled(JOB, 2), PollFailed(other, NotFoundError(404), 3)):
        polls(answer)
        polls(PollFailed(REF, gone, 4))
        assert polls.trouble is None
        polls(PollFailed(REF, gone, 5))
        assert polls.trouble is gone


@pytest.mark.looptime
async def test_silence() -> None:
    """Silence is shown once, unless the server answered before; a create that was not sent is no answer."""
    calls: list[str] = []

    def notice(call: str) -> bool:
        calls.append(call)
        return True

    not_sent = CreateFailed("docs", CreateOutcome.NOT_SENT, NotSentError("dns"))
    SilenceHook(lambda: notice("silent"))(not_sent)
    SilenceHook(lambda: notice("polled"))(JobPolled(JOB, 1))
    SilenceHook(lambda: notice("rejected"))(CreateFailed("docs", CreateOutcome.REJECTED, RejectedError(400)))
    await asyncio.sleep(60)
    assert calls == ["silent"]


@pytest.mark.looptime
async def test_silence_of_a_late_start() -> None:
    """Silence is shown as soon as something was asked of the server, however late that is."""
    asked = [True, False, False]
    shown: list[bool] = []

    def notice() -> bool:
        shown.append(asked.pop())
        return shown[-1]

    hook = SilenceHook(notice)
    await asyncio.sleep(60)
    assert shown == [False, False, True]
    hook(JobPolled(JOB, 1))


def test_open_jobs() -> None:
    """A job is open from its create on, recorded once it is waited for, until it is seen to end or to be gone."""
    jobs, job = OpenJobs(), AgentJob("job_1", "docs", "active")
    jobs(JobCreated(job, 0.1))
    assert (jobs.all, jobs.unrecorded) == ([REF], [REF])
    jobs(WaitStarted(REF))
    jobs(JobPolled(job, 1))
    assert (jobs.all, jobs.unrecorded) == ([REF], [])
    jobs(WaitEnded(REF, None, TimeoutError(), 1, 1.0))
    assert jobs.all == [REF]
    jobs(WaitEnded(REF, None, NotFoundError(410), 1, 1.0))
    assert jobs.all == []
    jobs(WaitStarted(REF))
    jobs(JobPolled(AgentJob("job_1", "docs", "failed"), 1))
    assert jobs.all == []
