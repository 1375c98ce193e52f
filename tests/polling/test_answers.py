"""What an answer to a poll does, seen by the hooks, and how very many waits of one job end: each exactly once."""

import asyncio
from collections import Counter
from itertools import pairwise
from traceback import walk_tb
from typing import Any

import pytest
import tenacity
from attrs import evolve

from agentjobs_async import (
    AgentJob,
    JobChanged,
    JobPolled,
    JobRef,
    JobTracker,
    NotFoundError,
    PollFailed,
    PollPolicy,
    SessionClosedError,
    WaitEnded,
    WaitStarted,
    WaitTimeoutError,
)
from agentjobs_async._loop.slices import PIECES_PER_ITERATION
from tests.polled import ACTIVE, REF, Polled, clock, ended, every, in_memory, missing, refs, stand_still

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
    assert [event.job.label for event in events if isinstance(event, JobPolled | JobChanged)] == polled
    assert [wait.result().label for wait in waits] == ["a", "a", "a"]
    assert [event.job.label for event in events if isinstance(event, WaitEnded) and event.job] == [*"aaac", None]


async def test_a_label_that_comes_during_a_poll() -> None:
    """A poll that was in flight when the first wait with a label began shows the job with that label."""
    events: list[Any] = []

    async def get_job(_ref: JobRef) -> AgentJob:
        await asyncio.sleep(2)
        return evolve(ACTIVE, status="completed")

    async with JobTracker(get_job, hooks=[events.append]) as tracker:
        unlabelled = tracker.watch(REF)
        await asyncio.sleep(1)
        labelled = tracker.watch(evolve(ACTIVE, label="a"))
        assert [(await wait).label for wait in (unlabelled, labelled)] == ["a", "a"]
    assert [(event.label, event.job.label) for event in events if isinstance(event, JobPolled)] == [("a", "a")]


async def test_label_of_a_job_that_is_known() -> None:
    """A job that was known without a label has it once a wait comes with one, in states and errors."""
    states: list[AgentJob] = []
    async with JobTracker(Polled("active"), policy=every(100)) as tracker:
        waits = [tracker.watch(REF, timeout=50)]
        await asyncio.sleep(1)
        waits += [
            tracker.watch(evolve(ACTIVE, label="a"), timeout=50),
            tracker.watch(evolve(ACTIVE, label="b"), timeout=50),
        ]
        waits += [tracker.watch(job, timeout=50, on_update=states.append) for job in (REF, evolve(ACTIVE, label="c"))]
        errors = await ended(*waits)
    assert [state.label for state in states] == ["a", "a"]
    assert [error.last_job.label for error in errors] == ["a"] * 5


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


async def test_strategy_that_leaves() -> None:
    """A wait strategy may end the last wait of its job: the poll counts, and the job no more."""
    waits: list[asyncio.Future[AgentJob]] = []

    def leave(state: tenacity.RetryCallState) -> float:
        return 5.0 if state.attempt_number == 1 else float(waits[0].cancel())

    async with JobTracker(Polled("active"), policy=PollPolicy(wait=leave)) as tracker:
        waits.append(tracker.watch(REF))
        await asyncio.sleep(60)
        assert (tracker.stats().polls, tracker.stats().jobs, tracker.stats().oldest_unobserved) == (2, 0, 0.0)


async def test_notified_while_a_poll_is_in_flight() -> None:
    """A job of which something is told while its poll is in flight is polled once more, soon after the answer."""
    began = clock()
    get_job = Polled("active", OSError("reset"), "active", "active", "completed", latency=1)
    async with JobTracker(get_job, policy=every(5)) as tracker:
        waiting = asyncio.ensure_future(tracker.wait_for_job(REF, timeout=None))
        watch = tracker.watch(REF, timeout=None)
        await asyncio.sleep(12.5)
        tracker.notify(REF)  # while the third poll is in flight
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
    assert "answer" not in names


MANY = 5 * PIECES_PER_ITERATION
MOST = PIECES_PER_ITERATION + 64


class Iterations:
    """Counts how many waits end in each iteration of the loop.

    Attributes:
        first: Set in the iteration after that of the first end.
    """

    def __init__(self, waits: list[asyncio.Future[AgentJob]]) -> None:
        self.first = asyncio.Event()
        self._ends: list[int] = []
        self._counting = False
        for wait in waits:
            wait.add_done_callback(self._count)

    def _count(self, _wait: object) -> None:
        if not self._counting:
            self._counting = True
            self._ends.append(0)
            asyncio.get_running_loop().call_soon(self._next_iteration)
        self._ends[-1] += 1
        self.first.set()

    def _next_iteration(self) -> None:
        self._counting = False

    @property
    def most(self) -> int:
        return max(self._ends)


@pytest.mark.parametrize("count", [1, MANY])
async def test_one_deadline(count: int) -> None:
    """Very many waits with one deadline end within 0.25 s after it, a bounded number of them in each iteration."""
    async with JobTracker(Polled(), policy=every(60)) as tracker:
        waits = [tracker.watch(JobRef("docs", f"job_{number % count}"), timeout=20) for number in range(MANY)]
        began, iterations = clock(), Iterations(waits)
        assert {type(error) for error in await ended(*waits)} == {WaitTimeoutError}
        assert 20 <= clock() - began <= 20.25
        assert iterations.most <= MOST
        assert tracker.stats().jobs == 0


async def test_job_that_ends() -> None:
    """The waiters of a job that ends are ended some at a time; who leaves meanwhile has left, and the others get it."""
    events: list[Any] = []
    get_job = Polled("active", "completed")
    async with JobTracker(get_job, policy=every(10), hooks=[events.append]) as tracker:
        waits = [tracker.watch(REF, timeout=11 if number % 2 else 100) for number in range(MANY)]
        iterations = Iterations(waits)
        await iterations.first.wait()
        assert not waits[-1].done()
        assert tracker.stats().jobs == 0
        waits[-1].cancel()
        stand_still(5)  # beyond the deadline of half of them: the answer in hand counts
        results = await ended(*waits)
        assert iterations.most <= MOST
        assert {type(result) for result in results[:-1]} == {AgentJob}
        assert isinstance(results[-1], asyncio.CancelledError)
        assert get_job.at() == [0, 10]
        again = tracker.watch(REF)
        assert (await again).succeeded
        assert len(get_job.at()) == 3
    told = Counter(type(event) for event in events)
    assert told[WaitStarted] == told[WaitEnded] == MANY + 1
    cancelled = [event for event in events if isinstance(event, WaitEnded) and event.error is not None]
    assert [type(event.error) for event in cancelled] == [asyncio.CancelledError]


async def test_missing_job() -> None:
    """When a 404 has outlived the grace of many waits, these end, some at a time, each with an error of its own."""
    async with JobTracker(Polled(missing), policy=every(2, not_found_grace=5)) as tracker:
        waits = [tracker.watch(REF) for _ in range(MANY)]
        iterations = Iterations(waits)
        errors = await ended(*waits)
        assert iterations.most <= MOST
        assert {type(error) for error in errors} == {NotFoundError}
        assert len(set(map(id, errors))) == MANY
        assert tracker.stats().jobs == 0


@pytest.mark.parametrize("cancelled", [False, True])
async def test_closing(cancelled: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Closing ends very many waits some at a time, and polls nothing more; cancelled, it ends the rest at once."""
    get_job = Polled("active", latency=1)
    tracker = JobTracker(get_job, policy=every(3))
    waits = [tracker.watch(ref) for ref in refs(MANY)]
    await asyncio.sleep(10.5)
    asked = len(get_job.asked)
    iterations = Iterations(waits)
    closing = asyncio.ensure_future(tracker.aclose())
    await iterations.first.wait()
    assert not waits[-1].done()
    if cancelled:
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert all(wait.done() for wait in waits)
    await asyncio.wait([closing])
    assert {type(error) for error in await ended(*waits)} == {SessionClosedError}
    assert cancelled or iterations.most <= MOST
    await asyncio.sleep(10)
    assert len(get_job.asked) == asked
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("cancelled", [False, True])
async def test_leaving_a_group(cancelled: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Leaving a block of `as_completed` lets very many waits go some at a time; cancelled, the rest at once."""
    get_job = Polled("active")
    async with JobTracker(get_job, policy=every(1000)) as tracker:
        jobs: list[int] = []

        async def group() -> None:
            async with tracker.as_completed(refs(MANY)):
                await asyncio.sleep(5)
                leaving.set()

        leaving = asyncio.Event()
        task = asyncio.ensure_future(group())
        await leaving.wait()
        while not task.done():
            jobs.append(tracker.stats().jobs)
            if cancelled and jobs[-1] < MANY:
                task.cancel()
            await asyncio.sleep(0)
        jobs.append(tracker.stats().jobs)
        assert jobs[-1] == 0
        assert task.cancelled() is cancelled
        steps = [before - after for before, after in pairwise(jobs)]
        assert cancelled or max(steps) <= MOST
