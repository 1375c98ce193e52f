"""What an answer to a poll does, seen by the hooks."""

import asyncio
from traceback import walk_tb
from typing import Any

import pytest
from attrs import evolve

from agentjobs_async import (
    AgentJob,
    JobChanged,
    JobPolled,
    JobRef,
    JobTracker,
    PollFailed,
    PollPolicy,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async._polling.answers import Answers
from agentjobs_async._polling.tracked import Tracked
from tests.polled import ACTIVE, REF, Polled, clock, every, in_memory

pytestmark = in_memory


async def test_events_say_how_long_polls_took() -> None:
    """A poll's event says how long the poll took: one that showed the job, one that failed, one that was cut."""
    events: list[Any] = []
    answers: list[Any] = [(2.0, ACTIVE), (3.0, OSError("reset")), (100.0, ACTIVE)]

    async def get_job(_ref: JobRef) -> AgentJob:
        seconds, answer = answers.pop(0)
        await asyncio.sleep(seconds)
        if isinstance(answer, OSError):
            raise answer
        assert isinstance(answer, AgentJob)
        return answer

    async with JobTracker(get_job, policy=every(1), hooks=[events.append]) as tracker:
        wait = tracker.watch(REF)
        await asyncio.sleep(2 + 1 + 3 + 1 + 4)
        wait.cancel()
        await asyncio.sleep(0)
    polled = [event for event in events if isinstance(event, JobPolled | PollFailed)]
    assert [type(event) for event in polled] == [JobPolled, PollFailed, PollFailed]
    assert [event.elapsed for event in polled] == pytest.approx([2, 3, 4], abs=0.1)


async def test_labels_of_waits() -> None:
    """A wait takes the label of the job that it is given; polls, which serve all waits, the first one."""
    events: list[Any] = []
    get_job = Polled("active", "completed")
    async with JobTracker(get_job, policy=every(1), hooks=[events.append]) as tracker:
        waits = [tracker.watch(job) for job in (REF, evolve(ACTIVE, label="a"), evolve(ACTIVE, label="b"))]
        await asyncio.gather(*waits)
        await tracker.wait_for_job(evolve(ACTIVE, status="completed", label="c"))
        await tracker.wait_for_job(REF)
    labels = [(type(event), event.label) for event in events]
    starts = [label for kind, label in labels if kind is WaitStarted]
    assert starts == [label for kind, label in labels if kind is WaitEnded] == [None, "a", "b", "c", None]
    polled = [label for kind, label in labels if kind in {JobPolled, JobChanged}]
    assert polled == ["a", "a", "a", None]


@pytest.mark.parametrize(
    "raised", [asyncio.CancelledError(), GeneratorExit(), BaseExceptionGroup("", [GeneratorExit()])]
)
async def test_strategy_that_raises_more_than_an_exception(raised: BaseException) -> None:
    """A wait strategy that raises no Exception ends the waits of its job, which would never be polled again."""

    def wait(_state: object) -> float:
        raise raised

    async with JobTracker(Polled("active"), policy=PollPolicy(wait=wait)) as tracker:
        watch = tracker.watch(REF, timeout=None)
        await asyncio.wait([watch], timeout=60)
        assert watch.done()
        with pytest.raises(type(raised)):
            watch.result()
        assert tracker.stats().jobs == 0


class _Unreadable(dict[str, Any]):
    def values(self) -> Any:
        raise LookupError("mine")


async def test_polls_are_counted_once_whatever_raises() -> None:
    """A job that cannot even be measured ends its wait with the error of its own, and its poll counts all the same."""
    get_job = Polled("active", AgentJob("job_1", "docs", "active", raw=_Unreadable(text="x")))
    async with JobTracker(get_job, policy=every(1)) as tracker:
        with pytest.raises(LookupError, match="mine"):
            await tracker.wait_for_job(REF)
        assert (tracker.stats().polls, tracker.stats().errors, tracker.stats().jobs) == (2, 0, 0)


def _as_any_answer(answers: Answers, tracked: Tracked, job: AgentJob, now: float, began: float) -> None:
    answers._record(tracked, job, now, began)
    answers._act(tracked, job, now, began)


@pytest.mark.parametrize("by_decide", [False, True])
async def test_jobs_are_acted_on_as_decide_says(monkeypatch: pytest.MonkeyPatch, *, by_decide: bool) -> None:
    """An answer that is a job takes a shorter way than others, and is acted on as `decide` says all the same."""
    if by_decide:
        monkeypatch.setattr(Answers, "_on_job", _as_any_answer)
    began = clock()
    get_job = Polled("active", OSError("reset"), "active", "active", "completed", latency=1)
    async with JobTracker(get_job, policy=every(5)) as tracker:
        waiting = asyncio.ensure_future(tracker.wait_for_job(REF, timeout=None))
        watch = tracker.watch(REF, timeout=None)
        await asyncio.sleep(12.5)
        tracker.notify(REF)  # while the third poll is in flight: the next one comes soon after it
        assert (await waiting).status == (await watch).status == "completed"
    assert [at for at, _ in get_job.asked] == pytest.approx([0, 6, 12, 13.25, 19.25], abs=0.05)
    assert clock() - began == pytest.approx(20.25, abs=0.05)


async def test_errors_hold_no_frame_of_a_worker() -> None:
    """An error of a get-job callable comes with that callable's frames, without that of the worker, which lives on."""

    async def raising(_ref: JobRef) -> AgentJob:
        raise LookupError("mine")

    async with JobTracker(raising) as tracker:
        with pytest.raises(LookupError) as caught:
            await tracker.wait_for_job(REF)
    names = [frame.f_code.co_name for frame, _ in walk_tb(caught.tb)]
    assert names[-1] == "raising"
    assert "_poll_due" not in names
