"""The polls in flight: their slots, their ends, and what a callable may do to the task in which it runs."""

import asyncio
import gc
import traceback
from contextvars import ContextVar
from typing import Any, Final

import pytest

from agentjobs_async import AgentJob, JobRef, JobTracker, PollBudget, ServerError, SessionClosedError
from tests.polled import (
    REF,
    Polled,
    clock,
    ended,
    every,
    gaps,
    in_memory,
    kinds,
    let_go,
    never,
    refs,
    response,
    stand_still,
    swallows,
    takes,
)
from tests.polling.working import working

pytestmark = in_memory

NO: Final = ServerError(500, None, None, "no")


# Slots.


async def test_slots_are_used() -> None:
    """While jobs are due, as many polls are in flight as there are slots, and never more."""
    get_job = Polled(latency=0.5)
    async with working(get_job, count=10, slots=3):
        await asyncio.sleep(10)
    assert get_job.most == 3
    assert len(get_job.within(0, 10)) == 3 * 20


async def test_answers_go_before_polls() -> None:
    """Answers that come together are all passed on before the next poll begins."""
    begun: list[int] = []

    async def note(_ref: JobRef) -> str:
        begun.append(len(work.answers))
        return "active"

    async with working(Polled(note), count=3, slots=3, delay=1) as work:
        await asyncio.sleep(3.5)
    assert begun == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9]


async def test_polls_that_fail_at_once() -> None:
    """A poll that fails keeps its slot for as long as answers take, so that failures make the polls no faster.

    How long failures take does not count; one that took longer is followed by the next poll at once.
    """
    get_job = Polled(*[takes(0.5)] * 60, *[takes(5, NO)] * 10, *[takes(0, NO)] * 10, *[takes(0.2, NO)] * 10, takes(0.5))
    async with working(get_job, count=1, slots=1):
        await asyncio.sleep(100)
    between = gaps(get_job.times)
    assert between[:60] == pytest.approx([0.5] * 60)
    assert between[60:70] == pytest.approx([5] * 10)
    assert between[70:90] == pytest.approx([0.5] * 20, abs=0.01)
    assert between[90:95] == pytest.approx([0.5] * 5)


@pytest.mark.parametrize("healthy", [1, 3])
async def test_first_polls_that_fail_at_once(healthy: int) -> None:
    """Where slots set the pace, polls that fail at once are as often as those before, however few these were."""

    async def state(_ref: JobRef) -> object:
        if len(get_job.asked) > healthy:
            return response(ServerError, 500)
        await asyncio.sleep(0.3)
        return "active"

    get_job = Polled(state)
    async with JobTracker(get_job, policy=every(5), budget=PollBudget(in_flight=1)) as tracker:
        waits = [tracker.watch(ref, timeout=None) for ref in refs(50)]
        await asyncio.sleep(4.6)
        assert len(get_job.asked) == 16
        for wait in waits:
            wait.cancel()


async def test_polls_that_fail_after_the_loop_stood_still() -> None:
    """The time in which the loop stood still is not how long a poll takes: those that fail then keep no slot for it."""

    async def state(_ref: JobRef) -> object:
        if 15 < len(get_job.asked) <= 25:
            return response(ServerError, 500)
        await asyncio.sleep(0 if len(get_job.asked) > 25 else 4)
        return "active"

    get_job = Polled(state)
    async with JobTracker(get_job, policy=every(5), budget=PollBudget(in_flight=5)) as tracker:
        waits = [tracker.watch(ref, timeout=None) for ref in refs(5)]
        await asyncio.sleep(20)
        stand_still(600)
        await asyncio.sleep(60)
        assert len(get_job.within(620, 680)) >= 5 * 60 / 10
        for wait in waits:
            wait.cancel()


async def test_outage_in_many_slots() -> None:
    """When all polls begin to fail at once, as many go out as before, whatever is due."""
    made = clock()

    async def state(ref: JobRef) -> object:
        return await takes(0, NO)(ref) if clock() - made >= 60 else await takes(0.5)(ref)

    get_job = Polled(state)
    async with working(get_job, count=20, slots=4):
        await asyncio.sleep(120)
    assert len(get_job.within(0, 60)) == 4 * 120
    assert len(get_job.within(60.5, 120)) == pytest.approx(4 * 119, rel=0.05)


async def test_what_comes_out_of_an_answer() -> None:
    """What comes out of the handling of an answer, such as the end of the program, stops the polls of no other job."""
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: raised.append(context["exception"]))
    get_job = Polled(latency=1)
    async with working(get_job, count=2, slots=1) as work:
        work.error = LookupError("mine")
        await asyncio.sleep(10)
    assert get_job.asked == [(0, "job_0"), (1, "job_1")]
    assert raised == [work.error, work.error]


async def test_polls_belong_to_nobody() -> None:
    """No poll sees what a caller, a hook or another poll has set in its context."""
    variable = ContextVar[str]("variable")
    seen: list[str | None] = []

    async def get_job(ref: JobRef) -> AgentJob:
        seen.append(variable.get(None))
        variable.set("of a poll")
        return AgentJob(ref.job_id, ref.project_id, "completed" if len(seen) > 9 else "active")

    variable.set("of a caller")
    hooks = [lambda _: variable.set("of a hook")]
    async with JobTracker(get_job, policy=every(1), budget=PollBudget(in_flight=2), hooks=hooks) as tracker:
        waits = [tracker.watch(ref) for ref in refs(3)]
        await asyncio.sleep(1.5)
        tracker.notify(refs(1)[0])
        await ended(*waits)
    assert seen == [None] * 12


# Polls that are cut.


async def test_slot_of_a_cut_poll() -> None:
    """A cut poll frees its slot at once, although its callable goes on; its job is polled again once that has ended."""
    get_job = Polled("completed", jobs={"job_1": [swallows, "completed"]})
    async with JobTracker(get_job, budget=PollBudget(in_flight=1)) as tracker:
        tracker.watch(REF).cancel()
        waits = [tracker.watch(REF, timeout=None)]
        await asyncio.sleep(1)
        waits[0].cancel()
        again, other = tracker.watch(REF, timeout=None), tracker.watch(refs(1)[0])
        await other
        assert get_job.asked == [(0, "job_1"), (1, "job_0")]
        assert (await again).succeeded
    assert get_job.at() == [0, 100]
    assert get_job.doubled == set()


async def test_wait_for_a_job_that_is_not_polled_yet() -> None:
    """While an earlier poll of a job has not left, new waits for it have no poll, and end as any others do."""
    get_job = Polled(swallows, "active")
    events: list[Any] = []
    async with JobTracker(get_job, policy=every(1), hooks=[events.append]) as tracker:
        first = tracker.watch(REF)
        await asyncio.sleep(1)
        first.cancel()
        events.clear()
        waits = [tracker.watch(REF, timeout=10)]
        await asyncio.sleep(1)
        waits.append(tracker.watch(REF, timeout=20))
        left = tracker.watch(REF, timeout=None)
        await let_go()
        assert (tracker.stats().jobs, tracker.stats().in_flight) == (1, 0)
        tracker.notify(REF)
        errors = await ended(*waits)
        assert [(error.polls, error.elapsed, error.last_error) for error in errors] == [(0, 10, None), (0, 20, None)]
        left.cancel()
        await asyncio.sleep(200)
        assert kinds(events) == ["WaitStarted"] * 3 + ["WaitEnded"] * 3
    assert get_job.at() == [0]


async def test_cut_where_there_is_no_poll() -> None:
    """Cutting a job of which no poll is in flight frees no slot: one that waits, was cut, or failed a moment ago."""
    get_job = Polled(takes(1), jobs={"job_0": [never], "job_1": [takes(0, NO)], "job_2": [takes(0, NO)]})
    async with working(get_job, count=8, slots=2) as work:
        await asyncio.sleep(0.5)
        work.workers.cut(work.jobs[0])
        for _ in range(200):
            await asyncio.sleep(0.1)
            for job in work.jobs:
                if work.workers.began(job) is None:
                    work.workers.cut(job)
    assert len(get_job.at("job_2")) >= 3
    assert get_job.most == 2


async def test_hanging_poll_that_swallows_its_cut() -> None:
    """A poll that is cut to make room, and swallows that, is followed by the next when it has ended, not before."""
    get_job = Polled("completed", latency=0.1, jobs={"job_1": [swallows]})
    async with JobTracker(get_job, policy=every(1), budget=PollBudget(in_flight=1)) as tracker:
        stuck = tracker.watch(REF, timeout=110)
        await asyncio.sleep(1)
        await ended(*(tracker.watch(ref) for ref in refs(1)))
        assert clock() - get_job._made < 40
        await ended(stuck)
    assert get_job.at() == pytest.approx([0, 100.1], abs=0.2)
    assert get_job.doubled == set()


async def test_error_in_place_of_a_cancellation() -> None:
    """A poll may answer its cut with an error of its own: nobody is left to hear of it, and asyncio logs nothing."""

    async def fails_when_cut(_ref: JobRef) -> object:
        try:
            return await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("closed") from None

    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
    for cut in (None, 5.0):
        async with JobTracker(Polled(fails_when_cut)) as tracker:
            wait = tracker.watch(REF, timeout=cut)
            await asyncio.sleep(1)
            if cut is None:
                wait.cancel()
            await ended(wait)
            await asyncio.sleep(1)
            gc.collect()
            assert (logged, tracker.stats().errors) == ([], 0)


# What a callable, or a loop that ends, does to the tasks.


async def test_poll_that_raises_generator_exit() -> None:
    """A callable that raises GeneratorExit ends the waits for its own job with a RuntimeError, and no other."""

    async def get_job(ref: JobRef) -> AgentJob:
        if ref == REF:
            raise GeneratorExit
        return AgentJob(ref.job_id, ref.project_id, "completed")

    async with JobTracker(get_job, budget=PollBudget(in_flight=1)) as tracker:
        stuck, other = tracker.watch(REF, timeout=None), tracker.watch(refs(1)[0])
        assert [type(end) for end in await ended(stuck, other)] == [RuntimeError, AgentJob]
        assert tracker.stats().in_flight == 0


async def test_poll_that_raises_no_exception() -> None:
    """What a callable raises that is no Exception comes with the callable's frames, and none that holds its task."""

    class EndError(BaseException):
        pass

    async def get_job(_ref: JobRef) -> AgentJob:
        raise EndError

    async with JobTracker(get_job) as tracker:
        wait = tracker.watch(REF)
        with pytest.raises(EndError):
            await wait
    error = wait.exception()
    assert error is not None
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert "get_job" in names
    assert "_answer_of" not in names


async def test_callable_that_leaves_its_own_wait() -> None:
    """A callable may cancel the wait that it works for; its poll is cut, and the next wait has its own."""
    waits: list[asyncio.Future[AgentJob]] = []

    async def leaves(_ref: JobRef) -> str:
        waits[0].cancel()
        return "completed"

    get_job = Polled(leaves, "completed")
    async with JobTracker(get_job) as tracker:
        waits.append(tracker.watch(REF))
        await ended(*waits)
        assert waits[0].cancelled()
        assert (await tracker.wait_for_job(REF)).succeeded
        assert (tracker.stats().in_flight, tracker.stats().polls) == (0, 1)


async def test_callable_that_cancels_its_own_task() -> None:
    """A poll that cancels its own task is followed by a pause: so would one be in a loop that ends."""
    asked: list[float] = []
    began = clock()

    async def get_job(ref: JobRef) -> AgentJob:
        asked.append(clock() - began)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return AgentJob(ref.job_id, "docs", "active")

    async with JobTracker(get_job, policy=every(10), budget=PollBudget(in_flight=1)) as tracker:
        waits = [tracker.watch(ref) for ref in refs(4)]
        await asyncio.sleep(0.9)
        assert asked == pytest.approx([0], abs=0.01)
        await asyncio.sleep(5)
        assert len(asked) == 4
        for wait in waits:
            wait.cancel()


async def test_callable_that_swallows_a_cancellation_of_its_own() -> None:
    """A poll that cancels its own task and is answered all the same counts, and the next one comes as usual."""

    async def cancels(_ref: JobRef) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return "active"
        return "completed"

    get_job = Polled(cancels)
    async with JobTracker(get_job, policy=every(10)) as tracker:
        wait = tracker.watch(REF)
        await asyncio.sleep(25)
        assert (get_job.at(), wait.done()) == ([0, 10, 20], False)
        wait.cancel()


async def test_all_tasks_of_the_loop_are_cancelled() -> None:
    """When a caller cancels the tasks that poll, the waits they served are cancelled; the tracker goes on."""
    get_job = Polled(never, "completed")
    events: list[Any] = []
    async with JobTracker(get_job, policy=every(1), hooks=[events.append]) as tracker:
        wait = tracker.watch(REF)
        await asyncio.sleep(1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await ended(wait)
        assert wait.cancelled()
        assert (tracker.stats().in_flight, clock() - get_job._made) == (0, 1)
        assert (await tracker.wait_for_job(REF)).succeeded
    assert kinds(events) == ["WaitStarted", "PollFailed", "WaitEnded", "WaitStarted", "JobPolled", "WaitEnded"]


# Closing.


async def test_closing_with_swallowed_cancellation() -> None:
    """A poll that swallows its cancellation does not hold up the closing."""
    get_job = Polled(swallows)
    tracker = JobTracker(get_job)
    waits = [tracker.watch(ref) for ref in refs(3)]
    await asyncio.sleep(1)
    waits[0].cancel()
    began = clock()
    await tracker.aclose()
    assert clock() == began
    assert [type(result) for result in await ended(*waits)] == [asyncio.CancelledError] + [SessionClosedError] * 2
    await asyncio.sleep(100)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert len(get_job.asked) == 3


async def test_closed_workers() -> None:
    """Closed workers begin no poll, cut none, and pass on no answer; the tasks of their polls are about to end.

    Also that of a poll that was cut before, and has swallowed that once.
    """
    cuts: list[str] = []

    async def swallows_once(ref: JobRef) -> str:
        for _ in range(2):
            try:
                await never(ref)
            except asyncio.CancelledError:
                cuts.append(ref.job_id)
        return "completed"

    get_job = Polled(swallows, jobs={"job_0": [swallows_once]})
    async with working(get_job, count=5, slots=3) as work:
        await asyncio.sleep(1)
        work.workers.cut(work.jobs[0])
        await asyncio.sleep(28.9)  # a moment later, polls that hang would be cut
        asked = [(0, "job_0"), (0, "job_1"), (0, "job_2"), (1, "job_3")]
        assert get_job.asked == asked
        tasks = work.workers.close()
        await let_go()
        assert cuts == ["job_0", "job_0"]
        assert [task.done() for task in tasks].count(True) == 1
        await asyncio.sleep(60)
        assert work.answers == []
        work.workers.cut(work.jobs[1])
        work.workers.wake()
        await asyncio.sleep(60)
        assert [task.done() for task in tasks] == [True] * 4
        assert (get_job.asked, work.answers) == (asked, [])
