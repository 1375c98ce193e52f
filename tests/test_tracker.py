"""Waiting through a tracker: what it shares with the free wait, its settings, its end, and any history of its waits."""

import asyncio
import inspect
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence, Sized
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

import looptime
import pytest
import tenacity
from hypothesis import given, settings
from hypothesis import strategies as st

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    AuthError,
    InvalidInputError,
    JobPolled,
    JobRef,
    JobTracker,
    NotFoundError,
    NotSentError,
    PollBudget,
    PollFailed,
    PollPolicy,
    ProtocolError,
    RateLimitedError,
    RejectedError,
    ServerError,
    SessionClosedError,
    TrackerStats,
    TransportError,
    WaitEnded,
    WaitStarted,
    WaitTimeoutError,
    wait_for_job,
)
from tests.polled import REF, Polled, clock, every, refs, stand_still

ACTIVE: Final = AgentJob("job_1", "docs", "active")
DONE: Final = AgentJob("job_1", "docs", "completed")
CHANGED: Final = AgentJob("job_1", "docs", "active", model="m")


async def never(_ref: JobRef) -> Any:
    return await asyncio.Event().wait()


# Two ways to wait have one meaning.


class Wait(Protocol):
    def __call__(
        self, job: AgentJob | JobRef, *, timeout: float | None = ..., on_update: Any = ...
    ) -> Coroutine[Any, Any, AgentJob]: ...


@asynccontextmanager
async def free(get_job: Any, policy: PollPolicy | None = None) -> AsyncIterator[Wait]:
    yield partial(wait_for_job, get_job=get_job, policy=policy)


@asynccontextmanager
async def tracked(get_job: Any, policy: PollPolicy | None = None) -> AsyncIterator[Wait]:
    async with JobTracker(get_job, policy=policy) as tracker:
        yield tracker.wait_for_job


@asynccontextmanager
async def session(get_job: Any, policy: PollPolicy | None = None) -> AsyncIterator[Wait]:
    async with AgentJobsSession("http://127.0.0.1:1", "key-of-tests", get_job=get_job, policy=policy) as opened:
        yield opened.wait_for_job


Waiting = Callable[..., Any]


@pytest.fixture(params=[free, tracked, session], ids=lambda way: way.__name__)
def waiting(request: pytest.FixtureRequest) -> Waiting:
    """A way to wait: called with a get-job callable and a policy, it opens a function that waits."""
    way: Waiting = request.param
    return way


def response(kind: Any, status: int, seconds: float | None = None) -> Any:
    return kind(status, None, seconds, "no")


@pytest.mark.looptime
@pytest.mark.parametrize("status", ["completed", "archived", "failed"])
async def test_ends(waiting: Waiting, status: str) -> None:
    """Every end is a result; nothing is asked after it, and nothing at all about a job that has ended already."""
    get_job = Polled("active", status)
    async with waiting(get_job, every(2)) as wait:
        job = await wait(REF)
        assert job.status == status
        assert await wait(job) is job
        await asyncio.sleep(60)
    assert get_job.at() == [0, 2]


@pytest.mark.looptime
@pytest.mark.parametrize(
    "fault",
    [
        NotSentError("refused"),
        TransportError("reset"),
        response(ServerError, 500),
        response(ServerError, 503),
        response(RateLimitedError, 429),
        response(RejectedError, 408),
        response(NotFoundError, 404),
        ProtocolError("bad_json", "x"),
        OSError("mine"),
        TimeoutError("mine"),
        {"id": "job_2", "status": "completed"},
        {"id": "job_1"},
        None,
    ],
    ids=str,
)
async def test_rides_out(waiting: Waiting, fault: object) -> None:
    """A passing fault, three times, does not keep a wait from its job, and does not change its pace."""
    get_job = Polled("active", fault, fault, fault, "completed")
    async with waiting(get_job, every(2)) as wait:
        assert (await wait(REF)).succeeded
    assert get_job.at() == [0, 2, 4, 6, 8]


@pytest.mark.looptime
@pytest.mark.parametrize(
    "fault",
    [
        response(AuthError, 401),
        response(RejectedError, 302),
        response(RejectedError, 400),
        response(NotFoundError, 410),
        response(ServerError, 501),
        response(ServerError, 505),
        LookupError("mine"),
        SessionClosedError("mine"),
        ExceptionGroup("mine", [OSError()]),
    ],
    ids=str,
)
async def test_does_not_ride_out(waiting: Waiting, fault: Exception) -> None:
    """What asking again is no use after comes out at once, without a grace: the object itself, with no context."""
    get_job = Polled("active", fault)
    async with waiting(get_job, every(2, answer_grace=0)) as wait:
        with pytest.raises(type(fault)) as caught:
            await wait(REF)
    assert caught.value is fault
    assert (fault.__cause__, fault.__context__) == (None, None)
    assert get_job.at() == [0, 2]


@pytest.mark.looptime
async def test_cancelled_by_its_callable(waiting: Waiting) -> None:
    """A CancelledError of the callable's own comes out as one."""
    async with waiting(Polled("active", asyncio.CancelledError()), every(2)) as wait:
        with pytest.raises(asyncio.CancelledError):
            await wait(REF)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("seconds", "pace", "at"),
    [
        (100, 30, [0, 30, 60, 90, 99]),
        (2, 30, [0, 1.8]),
        (0.5, 30, [0, 0.45]),
        (9, 4, [0, 4, 8, 8.1]),
        (60, 70, [0, 59]),
    ],
)
async def test_timeout(waiting: Waiting, seconds: float, pace: float, at: list[float]) -> None:
    """The last poll is `min(1 s, timeout / 10)` before the deadline; the error tells what is known."""
    get_job = Polled()
    async with waiting(get_job, every(pace)) as wait:
        with pytest.raises(WaitTimeoutError) as caught:
            await wait(REF, timeout=seconds)
    error = caught.value
    assert get_job.at() == pytest.approx(at, abs=0.011)
    assert (error.ref, error.last_job, error.last_error, error.polls) == (REF, ACTIVE, None, len(at))
    assert error.elapsed == pytest.approx(seconds, abs=0.02)


@pytest.mark.looptime
@pytest.mark.parametrize("first", [[], ["active"]])
async def test_cut_at_the_deadline(waiting: Waiting, first: list[object]) -> None:
    """A poll that never ends is cut at the deadline, and counts as a failed one."""
    async with waiting(Polled(*first, never), every(2)) as wait:
        with pytest.raises(WaitTimeoutError) as caught:
            await wait(REF, timeout=5)
    assert caught.value.elapsed == pytest.approx(5)
    assert (caught.value.last_job, caught.value.polls) == (ACTIVE if first else None, len(first) + 1)
    assert isinstance(caught.value.last_error, TransportError)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.looptime
async def test_end_in_hand_when_the_loop_stood_still(waiting: Waiting) -> None:
    """An end that was in hand when the loop stood still over the deadline is given."""

    async def late(_ref: JobRef) -> str:
        asyncio.get_running_loop().call_later(1, stand_still, 60)
        await asyncio.sleep(2)
        return "completed"

    async with waiting(Polled("active", late), every(2)) as wait:
        assert (await wait(REF, timeout=10)).succeeded


@pytest.mark.looptime
async def test_one_poll_after_the_loop_stood_still(waiting: Waiting) -> None:
    """A loop that stood still for long asks once, not once for each poll it missed."""

    async def still(_ref: JobRef) -> str:
        stand_still(30)
        return "active"

    get_job = Polled("active", still, "active", "active", "completed")
    async with waiting(get_job, every(2)) as wait:
        await wait(REF)
    assert get_job.at() == [0, 2, 34, 36, 38]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("fault", "gap"),
    [
        (response(RateLimitedError, 429, 7), 7),
        (response(ServerError, 503, 7), 7),
        (response(ServerError, 500, 7), 7),
        (ProtocolError("bad_json", "x", 7), 7),
        (response(RateLimitedError, 429, 1), 3),
        (response(RateLimitedError, 429, 999), 20),
    ],
)
async def test_wish(waiting: Waiting, fault: Exception, gap: float) -> None:
    """The next poll is not before what the server wishes, capped, nor before the policy's own pace."""
    get_job = Polled(fault, "completed")
    async with waiting(get_job, every(3, max_retry_after=20)) as wait:
        await wait(REF)
    assert get_job.at() == [0, gap]


@pytest.mark.looptime
async def test_wish_beyond_the_deadline(waiting: Waiting) -> None:
    """What a server does not wish before the deadline is not asked, by no last poll either."""
    fault = response(ServerError, 503, 30)
    get_job = Polled(fault, "completed")
    async with waiting(get_job, every(3)) as wait:
        with pytest.raises(WaitTimeoutError) as caught:
            await wait(REF, timeout=10)
    assert (caught.value.last_error, caught.value.polls) == (fault, 1)


@pytest.mark.looptime
@pytest.mark.parametrize(("first", "ends_at"), [([], 30), (["active", "active"], 34)])
async def test_grace(waiting: Waiting, first: list[object], ends_at: float) -> None:
    """A 404 is ridden out for the grace, from the start or from the last answer that showed the job."""
    get_job = Polled(*first, response(NotFoundError, 404))
    async with waiting(get_job, every(2, not_found_grace=29 + bool(first) * 3, answer_grace=0)) as wait:
        with pytest.raises(NotFoundError):
            await wait(REF)
    assert get_job.at()[-1] == ends_at


@pytest.mark.looptime
async def test_bad_answers(waiting: Waiting) -> None:
    """So many unusable answers in a row end a wait; a good or a transient one between them starts anew."""
    bad, last = ProtocolError("bad_json", "x"), ProtocolError("html", "y")
    get_job = Polled(bad, bad, response(ServerError, 500), bad, bad, last, "completed")
    async with waiting(get_job, every(1, max_bad_answers=3)) as wait:
        with pytest.raises(ProtocolError) as caught:
            await wait(REF)
    assert caught.value is last
    assert len(get_job.asked) == 6


REFUSED: Final = NotSentError("connection refused", "refused")


async def fails_when_cut(_ref: JobRef) -> object:
    try:
        return await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise OSError("cancelled") from None


@pytest.mark.looptime
@pytest.mark.parametrize("last", [never, fails_when_cut])
@pytest.mark.parametrize("before", [[OSError(), REFUSED], ["active", REFUSED, REFUSED]], ids=len)
async def test_cause_of_a_timeout(waiting: Waiting, before: list[object], last: object) -> None:
    """A wait whose last poll the deadline cuts tells what the polls before it failed with."""
    async with waiting(Polled(*before, last), every(2)) as wait:
        with pytest.raises(WaitTimeoutError, match="last error: connection refused") as caught:
            await wait(REF, timeout=9)
    assert (caught.value.last_error, caught.value.polls) == (REFUSED, len(before) + 1)


@pytest.mark.looptime
@pytest.mark.parametrize("before", [[], ["active"], [REFUSED, "active"]], ids=len)
async def test_timeout_without_a_cause(waiting: Waiting, before: list[object]) -> None:
    """That the last poll was cut is told where nothing else is known since the last good answer."""
    async with waiting(Polled(*before, never), every(2)) as wait:
        with pytest.raises(WaitTimeoutError, match="no answer until the wait ended") as caught:
            await wait(REF, timeout=9)
    assert isinstance(caught.value.last_error, TransportError)


REFUSALS: Final = (
    response(NotFoundError, 404),
    response(NotFoundError, 410),
    response(AuthError, 401),
    response(AuthError, 403),
    response(RejectedError, 302),
    response(ServerError, 501),
    ProtocolError("not_json", "<html>"),
)


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
async def test_refusals_of_a_job_that_was_seen(waiting: Waiting, refusal: Exception) -> None:
    """Once a poll has shown the job, any other answer is ridden out for the grace since then, and raised after it."""
    get_job = Polled("active", *[refusal] * 9, "active", refusal)
    async with waiting(get_job, every(2, answer_grace=20, not_found_grace=1)) as wait:
        with pytest.raises(type(refusal)) as caught:
            await wait(REF)
    assert caught.value is refusal
    assert get_job.at()[-1] == pytest.approx(20 + 20, abs=0.3)


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
async def test_known_from_its_create_is_not_seen(waiting: Waiting, refusal: Exception) -> None:
    """A job that is known from its create only has not been seen: a wrong `get_path` shows at once."""
    policy = every(2, not_found_grace=0, max_bad_answers=1)
    async with waiting(Polled(refusal), policy) as wait:
        began = clock()
        with pytest.raises(type(refusal)):
            await wait(ACTIVE)
        assert clock() == began


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
async def test_refusals_after_an_outage(waiting: Waiting, refusal: Exception) -> None:
    """A service that refuses while it comes back from a long outage has the whole grace, whatever flickers then."""
    outage: list[object] = [response(ServerError, 502)] * 50
    back: list[object] = [refusal, response(ServerError, 502)] * 4
    get_job = Polled("active", *outage, *back, "completed")
    async with waiting(get_job, every(2, answer_grace=15)) as wait:
        assert (await wait(REF)).succeeded
    get_job = Polled("active", *outage, *back * 4, "completed")
    async with waiting(get_job, every(2, answer_grace=15, not_found_grace=0)) as wait:
        with pytest.raises(type(refusal)):
            await wait(REF)
    assert get_job.at()[-1] == pytest.approx(102 + 16, abs=0.8)


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
async def test_rare_polls(waiting: Waiting, refusal: Exception) -> None:
    """A single refusal ends no wait that has seen its job, however rare its polls; the next one in a row does."""
    get_job = Polled("active", refusal, "active", refusal, refusal)
    async with waiting(get_job, every(100)) as wait:
        with pytest.raises(type(refusal)):
            await wait(REF)
    assert len(get_job.asked) == 5


@pytest.mark.looptime
@pytest.mark.parametrize(("not_found_grace", "answer_grace", "ends_at"), [(30, 10, 30), (10, 30, 30), (20, 0, 20)])
async def test_longer_grace(waiting: Waiting, not_found_grace: float, answer_grace: float, ends_at: float) -> None:
    """A job that was seen and is missing then is ridden out for the longer of the two graces."""
    get_job = Polled("active", response(NotFoundError, 404))
    async with waiting(get_job, every(2, not_found_grace=not_found_grace, answer_grace=answer_grace)) as wait:
        with pytest.raises(NotFoundError):
            await wait(REF)
    assert get_job.at()[-1] == pytest.approx(ends_at, abs=0.3)


@pytest.mark.looptime
async def test_on_update(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """`on_update` sees the job at first sight and at each change; what it raises is logged once."""
    seen: list[AgentJob] = []

    def faulty(job: AgentJob) -> None:
        seen.append(job)
        raise ZeroDivisionError

    get_job = Polled("active", "active", CHANGED, OSError(), CHANGED, "completed")
    async with waiting(get_job, every(1)) as wait:
        await wait(REF, on_update=faulty)
        assert seen == [ACTIVE, CHANGED, DONE]
        await wait(DONE, on_update=seen.append)
        await wait(CHANGED, on_update=seen.append)
        assert seen[3:] == [DONE, CHANGED, DONE]
    assert [record.message.split(";")[0] for record in caplog.records] == ["on_update raised ZeroDivisionError"]


@pytest.mark.looptime
async def test_unknown_status(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown status is no end, and is warned about once."""
    async with waiting(Polled("reviewing", "reviewing", "completed"), every(1)) as wait:
        assert (await wait(REF)).succeeded
    assert ["unknown status reviewing" in record.message for record in caplog.records] == [True]


@pytest.mark.looptime
@pytest.mark.parametrize("retry", [tenacity.retry_always, tenacity.retry_if_exception_message(match="passing")])
async def test_accepted_exceptions(waiting: Waiting, retry: Any) -> None:
    """What the policy's retry accepts of the callable's own exceptions is ridden out."""
    get_job = Polled(LookupError("passing"), LookupError("passing"), "completed")
    async with waiting(get_job, every(1, retry=retry)) as wait:
        assert (await wait(REF)).succeeded


@pytest.mark.looptime
@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "5", None])
async def test_strategy_that_gives_no_delay(waiting: Waiting, delay: Any) -> None:
    """A delay that is no finite number from 0 on ends the wait."""
    async with waiting(Polled(), PollPolicy(wait=lambda _: delay)) as wait:
        with pytest.raises(InvalidInputError, match=r"policy\.wait"):
            await wait(REF)


@pytest.mark.looptime
@pytest.mark.parametrize("first", ["active", LookupError()])
async def test_strategy_that_raises(waiting: Waiting, first: object) -> None:
    """What a strategy raises ends the wait, as it is."""
    error = RuntimeError("mine")

    def fail(_state: object) -> Any:
        raise error

    async with waiting(Polled(first), PollPolicy(wait=fail, retry=fail)) as wait:
        with pytest.raises(RuntimeError) as caught:
            await wait(REF)
    assert caught.value is error


@pytest.mark.looptime
async def test_what_strategies_see(waiting: Waiting) -> None:
    """Strategies see the attempt, its outcome and loop times."""
    seen: list[tuple[int, object, float, float | None]] = []

    def wait_(state: tenacity.RetryCallState) -> float:
        assert state.outcome is not None
        outcome = state.outcome.exception() or state.outcome.result()
        seen.append((state.attempt_number, outcome, state.start_time, state.outcome_timestamp))
        return 2

    await asyncio.sleep(3)
    error = OSError()
    async with waiting(Polled("active", error, "completed", latency=1), PollPolicy(wait=wait_)) as wait:
        await wait(REF)
    assert seen == [(1, ACTIVE, 3, 4), (2, error, 3, 7)]


@pytest.mark.looptime
@pytest.mark.parametrize("when", [1, 3, 5])
async def test_cancelled(waiting: Waiting, when: float) -> None:
    """Cancelling leaves at once, in a poll and between polls; nothing is asked after it and no task stays."""
    get_job = Polled("active", never, latency=2)
    async with waiting(get_job, every(2)) as wait:
        task = asyncio.ensure_future(wait(REF))
        await asyncio.sleep(when)
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), clock()) == (True, when)
        asked = len(get_job.asked)
        await asyncio.sleep(60)
        assert len(get_job.asked) == asked
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"job": None}, "job"),
        ({"job": 5}, "job"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"on_update": 5}, "on_update"),
        ({"on_update": asyncio.sleep}, "on_update"),
    ],
)
async def test_arguments_that_make_no_sense(waiting: Waiting, settings: dict[str, Any], name: str) -> None:
    """An argument that makes no sense is refused by name before anything is asked."""
    get_job = Polled()
    async with waiting(get_job) as wait:
        with pytest.raises(InvalidInputError, match=f"^{name} must be"):
            await wait(**{"job": REF} | settings)
    assert get_job.asked == []


# The tracker's own.


@pytest.mark.parametrize(
    ("arguments", "settings", "name"),
    [
        ((None,), {}, "get_job"),
        ((never,), {"policy": 5}, "policy"),
        ((never,), {"budget": 5}, "budget"),
        ((never,), {"budget": PollPolicy()}, "budget"),
        ((never,), {"hooks": [5]}, "a hook"),
        ((never,), {"hooks": print}, "hooks"),
        ((never,), {"hooks": [asyncio.sleep]}, "a hook"),
    ],
)
def test_settings_that_make_no_sense(arguments: Any, settings: Any, name: str) -> None:
    """A setting that makes no sense is refused by name when the tracker is made."""
    with pytest.raises(InvalidInputError, match=f"^{name} must be"):
        JobTracker(*arguments, **settings)


CALLS: Final[list[Callable[[JobTracker], Any]]] = [
    lambda tracker: tracker.wait_for_job(REF),
    lambda tracker: tracker.watch(REF),
    lambda tracker: tracker.watch(DONE),
    lambda tracker: tracker.as_completed([REF]).__aenter__(),
    lambda tracker: tracker.updates(REF).__aenter__(),
    lambda tracker: tracker.notify(REF),
    lambda tracker: tracker.stats(),
    lambda tracker: tracker.__aenter__(),
]


async def called(call: Callable[[JobTracker], Any], tracker: JobTracker) -> object:
    found = call(tracker)
    return await found if asyncio.iscoroutine(found) else found


@pytest.mark.parametrize("call", CALLS)
async def test_closed(call: Callable[[JobTracker], Any]) -> None:
    """A closed tracker refuses every call, and is closed again without harm."""
    tracker = JobTracker(never)
    async with tracker:
        pass
    with pytest.raises(SessionClosedError, match="the tracker is closed"):
        await called(call, tracker)
    await tracker.aclose()


@pytest.mark.parametrize("call", [*CALLS, JobTracker.aclose])
def test_another_loop(call: Callable[[JobTracker], Any]) -> None:
    """A tracker belongs to the loop of its first use; made it may be without any."""

    async def use() -> None:
        assert tracker.stats().jobs == 0

    tracker = JobTracker(never)
    asyncio.run(use())
    with pytest.raises(SessionClosedError, match="another event loop"):
        asyncio.run(called(call, tracker))


@pytest.mark.parametrize("call", [*CALLS, JobTracker.aclose])
async def test_another_process(call: Callable[[JobTracker], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child can't use its parent's tracker."""
    tracker = JobTracker(never)
    tracker.stats()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        with pytest.raises(SessionClosedError, match="forked"):
            await called(call, tracker)
    await tracker.aclose()


async def test_never_used() -> None:
    """A tracker that was never used closes, with and without a loop."""
    await JobTracker(never).aclose()
    with pytest.raises(StopIteration):
        JobTracker(never).aclose().send(None)


@pytest.mark.looptime
async def test_closing_in_the_middle() -> None:
    """Closing ends every wait at once with its error, whatever it is at, and leaves nothing behind; twice is once."""
    events: list[Any] = []
    get_job = Polled("active", latency=2)
    tracker = JobTracker(get_job, policy=every(5), budget=PollBudget(in_flight=3), hooks=[events.append])
    asleep = [tracker.watch(ref) for ref in refs(3)]
    await asyncio.sleep(4)
    flying = [tracker.watch(JobRef("docs", f"flying_{number}")) for number in range(3)]
    queued = [tracker.watch(JobRef("docs", f"queued_{number}")) for number in range(3)]
    leaving = tracker.watch(flying_ref := JobRef("docs", "flying_0"))
    waiting = asyncio.ensure_future(tracker.wait_for_job(flying_ref))
    await asyncio.sleep(1)
    assert (tracker.stats().in_flight, tracker.stats().due) == (3, 3)
    leaving.cancel()
    began = clock()
    await asyncio.gather(tracker.aclose(), tracker.aclose())
    assert clock() == began
    results = await asyncio.gather(*asleep, *flying, *queued, waiting, return_exceptions=True)
    assert {type(error) for error in results} == {SessionClosedError}
    assert len(set(map(id, results))) == len(results)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    asked = len(get_job.asked)
    await asyncio.sleep(100)
    assert len(get_job.asked) == asked == 6
    assert Counter(type(event).__name__ for event in events) == {
        "WaitStarted": 11,
        "JobPolled": 3,
        "PollFailed": 3,
        "WaitEnded": 11,
    }


@pytest.mark.looptime
async def test_closing_lets_cut_polls_leave() -> None:
    """Closing right after waits were cancelled lets their polls leave, with what they clean up."""
    cleaned: list[JobRef] = []

    async def tidy(ref: JobRef) -> Any:
        try:
            return await never(ref)
        finally:
            await asyncio.sleep(0)
            cleaned.append(ref)

    async with JobTracker(tidy) as tracker:
        waits = [tracker.watch(ref) for ref in refs(3)]
        await asyncio.sleep(1)
        waits[0].cancel()
    assert sorted(ref.job_id for ref in cleaned) == ["job_0", "job_1", "job_2"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await asyncio.gather(*waits, return_exceptions=True)


@pytest.mark.looptime
async def test_closed_by_a_hook_and_by_a_callable() -> None:
    """A tracker may be closed by a task that a hook begins, and by its own callable."""
    closing: list[asyncio.Task[None]] = []

    async def closes(_ref: JobRef) -> Any:
        await tracker.aclose()
        return "completed"

    tracker = JobTracker(closes)
    with pytest.raises(SessionClosedError):
        await tracker.wait_for_job(REF)
    tracker = JobTracker(Polled(), hooks=[lambda _: closing.append(asyncio.ensure_future(tracker.aclose()))])
    with pytest.raises(SessionClosedError):
        await tracker.wait_for_job(REF)
    await asyncio.gather(*closing)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_loop_that_ends_without_closing(caplog: pytest.LogCaptureFixture) -> None:
    """A program that ends amid its waits ends quietly: no task is begun while all are cancelled."""
    trackers = []

    async def use() -> None:
        tracker = JobTracker(never, budget=PollBudget(in_flight=1))
        trackers.append(tracker)
        for ref in refs(5):
            _ = tracker.watch(ref)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(use())
        trackers.clear()
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_worker_that_is_thrown_away(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is thrown away with its loop, amid a poll, ends at once: it neither goes on nor complains."""

    async def use() -> None:
        _ = tracker.watch(REF)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    tracker = JobTracker(never)
    loop.run_until_complete(use())
    (worker,) = asyncio.all_tasks(loop)
    coroutine: Any = worker.get_coro()
    coroutine.close()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
    assert asyncio.all_tasks(loop) == {worker}
    worker._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be
    loop.close()
    assert caplog.records == []


@pytest.mark.looptime
async def test_stats() -> None:
    """The snapshot tells what is watched, due and in flight, what was polled, and what was not seen for longest."""
    get_job = Polled(jobs={"job_0": [response(ServerError, 500)]}, latency=1)
    async with JobTracker(get_job, policy=every(4), budget=PollBudget(in_flight=2)) as tracker:
        assert tracker.stats() == TrackerStats(0, 0, 0, 0, 0, 0, 0)
        waits = [tracker.watch(ref, timeout=None) for ref in refs(5)]
        await asyncio.sleep(0.5)
        assert tracker.stats() == TrackerStats(5, 3, 2, 0, 0, 0, 0)
        await asyncio.sleep(3)
        stats = tracker.stats()
        assert (stats.jobs, stats.due, stats.in_flight, stats.polls, stats.errors) == (5, 0, 0, 5, 1)
        assert stats.rate == pytest.approx(5 / 3.5)
        assert 2 <= stats.oldest_unobserved <= 3.5
        await asyncio.sleep(96.5)
        stats = tracker.stats()
        assert stats.rate == pytest.approx(1, abs=0.3)
        assert 98 <= stats.oldest_unobserved <= 100
        for wait in waits:
            wait.cancel()
        stats = tracker.stats()
        assert (stats.jobs, stats.due, stats.in_flight, stats.oldest_unobserved) == (0, 0, 0, 0)
    assert 0 <= len(get_job.asked) - stats.polls <= 2  # those that were cut were never answered


@pytest.mark.looptime
async def test_notify_by_job_and_by_ref() -> None:
    """A hint may name the job or its ref; what is neither is refused."""
    get_job = Polled("active", "active", "completed")
    async with JobTracker(get_job, policy=every(600)) as tracker:
        watch = tracker.watch(REF)
        for job in (REF, ACTIVE):
            await asyncio.sleep(5)
            tracker.notify(job)
        assert (await watch).succeeded
        with pytest.raises(InvalidInputError, match="job must be"):
            tracker.notify("job_1")  # type: ignore[arg-type]  # refused at run time, too
    assert get_job.at() == [0, 5, 10]


@pytest.mark.looptime
async def test_end_of_what_needs_no_wait() -> None:
    """A wait for a job that has ended already tells the hooks its start and its end, and the future is done."""
    events: list[object] = []
    async with JobTracker(never, hooks=[events.append]) as tracker:
        watch = tracker.watch(DONE)
        assert (watch.done(), watch.result()) == (True, DONE)
        assert await tracker.wait_for_job(DONE) is DONE
    assert events == [WaitStarted(REF), WaitEnded(REF, DONE, None, 0, 0.0)] * 2


# Any history.


async def swallows(_ref: JobRef) -> str:
    """Take 30 s, whoever cancels it."""
    end = clock() + 30
    while (left := end - clock()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
    return "active"


async def slow(_ref: JobRef) -> str:
    await asyncio.sleep(0.7)
    return "active"


async def slow_end(_ref: JobRef) -> str:
    await asyncio.sleep(1.5)
    return "completed"


ANSWERS: Final[list[object]] = [
    *("active", "active", "reviewing", "completed", "failed"),
    *(slow, slow, slow_end, never, swallows),
    *(response(ServerError, 500), response(ServerError, 503, 2.0), response(RateLimitedError, 429, 3.0)),
    *(response(NotFoundError, 404), response(AuthError, 401), response(NotFoundError, 410)),
    *(NotSentError("refused"), NotSentError("refused"), TransportError("reset")),
    *(ProtocolError("bad_json", "x"), None, {"id": "job_9", "status": "completed"}),
    *(OSError("mine"), LookupError("mine"), asyncio.CancelledError("mine")),
]
JOBS: Final = st.integers(0, 3).map(lambda number: JobRef("docs", f"job_{number}"))
TIMEOUTS: Final = st.sampled_from([0.3, 1.0, 4.0, 20.0, 60.0])
STEPS: Final = st.one_of(
    st.tuples(st.just("watch"), JOBS, TIMEOUTS | st.none()),
    st.tuples(st.just("watch"), JOBS, TIMEOUTS),
    st.tuples(st.just("wait"), JOBS, TIMEOUTS),
    st.tuples(st.just("group"), st.lists(JOBS, max_size=5), st.integers(0, 4)),
    st.tuples(st.just("updates"), JOBS, st.integers(0, 3)),
    st.tuples(st.just("cancel"), st.integers(0, 30), st.none()),
    st.tuples(st.just("notify"), JOBS, st.integers(1, 3)),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0, 15.0]), st.none()),
    st.tuples(st.just("still"), st.sampled_from([0.5, 10.0]), st.none()),
)


class History:
    """Drives one history through a tracker, and checks as it goes."""

    def __init__(self, answers: dict[str, list[object]], budget: PollBudget) -> None:
        self.get_job = Polled(jobs=answers)
        self.events: list[Any] = []
        self.waits: list[asyncio.Future[Any]] = []
        self.late: list[float] = []
        self.for_nobody: list[JobRef] = []
        self.still = 0.0
        policy = every(1, not_found_grace=3, max_bad_answers=3)
        self.tracker = JobTracker(self._asked, policy=policy, budget=budget, hooks=[self.events.append])
        self.scheduler = self.tracker._scheduler()

    async def _asked(self, ref: JobRef) -> Any:
        if ref not in self.scheduler._jobs:
            self.for_nobody.append(ref)
        return await self.get_job(ref)

    async def step(self, kind: str, what: Any, how: Any) -> None:
        match kind:
            case "watch":
                self._timed(self.tracker.watch(what, timeout=how), how)
            case "wait":
                self._timed(asyncio.ensure_future(self.tracker.wait_for_job(what, timeout=how)), how)
            case "group":
                self.waits.append(asyncio.ensure_future(self._group(what, how)))
            case "updates":
                self.waits.append(asyncio.ensure_future(self._updates(what, how)))
            case "cancel" if self.waits:
                self.waits[what % len(self.waits)].cancel()
            case "notify":
                for _ in range(how):
                    self.tracker.notify(what)
            case "sleep":
                await asyncio.sleep(what)
            case "still":
                stand_still(what)
                self.still += what

    def _timed(self, wait: asyncio.Future[Any], timeout: float | None) -> None:
        self.waits.append(wait)
        if timeout is not None:
            deadline = clock() + timeout
            wait.add_done_callback(lambda _: self.late.append(clock() - deadline))

    async def _group(self, jobs: Sequence[JobRef], count: int) -> None:
        async with self.tracker.as_completed(jobs, timeout=10) as finished:
            async for _ in finished:
                if (count := count - 1) <= 0:
                    break

    async def _updates(self, job: JobRef, count: int) -> None:
        async with self.tracker.updates(job, timeout=10) as changes:
            async for _ in changes:
                await asyncio.sleep(0.5)
                if (count := count - 1) <= 0:
                    break

    async def end(self) -> None:
        """Let everything end, and look for what is left."""
        await asyncio.sleep(200)
        for wait in self.waits:
            wait.cancel()  # of those that wait for ever
        await asyncio.gather(*self.waits, return_exceptions=True)
        assert max(self.late, default=0) <= 0.25 + self.still
        await asyncio.sleep(200)
        stats = self.tracker.stats()
        assert (stats.jobs, stats.due, stats.in_flight, stats.oldest_unobserved) == (0, 0, 0, 0)
        self._nothing_left()
        await self.tracker.aclose()
        self._nothing_left()

    def _nothing_left(self) -> None:
        scheduler = self.scheduler
        queue = scheduler._queue
        assert asyncio.all_tasks() == {asyncio.current_task()}
        workers = scheduler._workers
        held: list[Sized] = [
            scheduler._jobs,
            scheduler._contexts,
            scheduler._answers._notified,
            workers._workers,
            workers._leaving,
        ]
        held += [scheduler._deadlines._timers._timers, workers._timers._timers]
        held += [queue._timers._timers, queue._due.ready, queue._due.urgent]
        held += [
            scheduler._deadlines._chunks,
            scheduler._deadlines._due,
            scheduler._ending._left,
            queue._buckets._buckets,
        ]
        assert [len(holder) for holder in held] == [0] * len(held)
        assert (workers._starting, queue._due.stale) == (None, 0)
        assert sum(scheduler._counters._observed.values()) == 0


async def _lived(answers: dict[str, list[object]], budget: PollBudget, steps: list[tuple[str, Any, Any]]) -> History:
    history = History(answers, budget)
    for step in steps:
        await history.step(*step)
    await history.end()
    return history


def _virtual_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    assert isinstance(loop, asyncio.BaseEventLoop)
    return looptime.patch_event_loop(loop, start=0)


@settings(max_examples=150)
@given(
    answers=st.fixed_dictionaries(
        {f"job_{number}": st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=8) for number in range(4)}
    ),
    budget=st.sampled_from([PollBudget(), PollBudget(in_flight=1), PollBudget(in_flight=2, per_second=3)]),
    steps=st.lists(STEPS, max_size=25),
)
def test_any_history(answers: dict[str, list[object]], budget: PollBudget, steps: list[tuple[str, Any, Any]]) -> None:
    """In any history one poll per job is in flight, and only for a waiter; every wait ends in time; nothing leaks."""
    with asyncio.Runner(loop_factory=_virtual_loop) as runner:
        history = runner.run(_lived(answers, budget, steps))
    assert (history.get_job.doubled, history.for_nobody) == (set(), [])
    told = Counter(
        event.ref.job_id if isinstance(event, PollFailed) else event.job.id
        for event in history.events
        if isinstance(event, PollFailed | JobPolled)
    )
    assert told == Counter(job_id for _, job_id in history.get_job.asked)
