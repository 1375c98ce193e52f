"""What a wait means, the same for the free wait, for a tracker and for a session."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from math import inf, nan
from typing import Any, Final, Protocol

import pytest

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    AuthError,
    CreateOutcomeUnknownError,
    InvalidInputError,
    JobRef,
    JobTracker,
    NotFoundError,
    NotSentError,
    PollPolicy,
    ProtocolError,
    RateLimitedError,
    RejectedError,
    ResponseError,
    ServerError,
    SessionClosedError,
    TransportError,
    WaitTimeoutError,
    wait_for_job,
)
from tests.polled import (
    ACTIVE,
    DONE,
    REF,
    Polled,
    changed,
    clock,
    every,
    gaps,
    in_memory,
    living,
    never,
    response,
    stand_still,
)
from tests.rows import failures_at_once


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


@in_memory
async def test_ends(waiting: Waiting) -> None:
    """Every end is a result; nothing is asked after it, and nothing at all about a job that has ended already."""

    async def check(status: str) -> None:
        get_job = Polled("active", status)
        async with waiting(get_job, every(2)) as wait:
            job = await wait(REF)
            assert job.status == status
            assert await wait(job) is job
            await asyncio.sleep(60)
        assert get_job.at() == [0, 2]

    assert await failures_at_once(check, "completed", "archived", "failed") == {}


@in_memory
async def test_for_ever(waiting: Waiting) -> None:
    """With `timeout=None` a wait goes on as long as the job does."""
    get_job = living(job_1=100_000)
    async with waiting(get_job, every(5000)) as wait:
        assert (await wait(REF, timeout=None)).succeeded
    assert get_job.at() == pytest.approx(range(0, 100_001, 5000), abs=25)


@in_memory
async def test_default_pace(waiting: Waiting) -> None:
    """By default a wait asks after 3.3 s, and more slowly as it grows older, up to every 9 s, give or take a tenth."""
    get_job = Polled()
    async with waiting(get_job) as wait:
        with pytest.raises(WaitTimeoutError) as caught:
            await wait(REF)
    between = gaps(get_job.at())[:-1]
    assert caught.value.elapsed == pytest.approx(1800)
    assert 2.968 <= between[0] <= 3.65  # the clock shows whole milliseconds, and polls of a tracker hundredths
    assert all(8.098 <= gap <= 9.92 for gap in between[50:])
    assert 190 <= len(between) <= 240


TRANSIENT: Final[list[Exception]] = [
    NotSentError("refused"),
    NotSentError("bad certificate", "certificate"),
    TransportError("reset"),
    *(ResponseError(status) for status in (404, 408, 425, 429, 500)),
    RejectedError(408),
    RejectedError(425),
    RateLimitedError(429),
    NotFoundError(404),
    *(ServerError(status) for status in (500, 502, 503, 504, 507, 511, 599)),
]

PERMANENT: Final[list[Exception]] = [
    *(RejectedError(status) for status in (300, 301, 302, 303, 304, 307, 308, 399)),
    *(RejectedError(status) for status in (400, 402, 405, 409, 413, 418, 421, 422, 426, 431, 451, 499)),
    *(AuthError(401), AuthError(403), NotFoundError(410), ResponseError(410)),
    *(ServerError(501), ServerError(505), ResponseError(501)),
]

FOREIGN: Final[list[Exception]] = [
    SessionClosedError("closed"),
    CreateOutcomeUnknownError("of another call"),
    InvalidInputError("a broken callable"),
    LookupError("mine"),
    ExceptionGroup("mine", [OSError()]),
]
"""What is no answer of the service's."""


@in_memory
async def test_does_not_ride_out(waiting: Waiting) -> None:
    """What asking again is no use after comes out at once, without a grace: the object itself, with no context."""

    async def check(fault: Exception, grace: float) -> None:
        get_job = Polled("active", fault)
        async with waiting(get_job, every(2, answer_grace=grace)) as wait:
            with pytest.raises(type(fault)) as caught:
                await wait(REF)
        assert caught.value is fault
        assert (fault.__cause__, fault.__context__) == (None, None)
        assert get_job.at() == [0, 2]

    rows = [*((fault, 0) for fault in PERMANENT), *((fault, 60) for fault in FOREIGN)]
    assert await failures_at_once(check, *rows) == {}


@in_memory
async def test_cancelled_by_its_callable(waiting: Waiting) -> None:
    """A CancelledError of the callable's own comes out as one."""
    async with waiting(Polled("active", asyncio.CancelledError()), every(2)) as wait:
        with pytest.raises(asyncio.CancelledError):
            await wait(REF)


@in_memory
async def test_timeout(waiting: Waiting) -> None:
    """The last poll is `min(1 s, timeout / 10)` before the deadline; the error tells what is known."""

    async def check(seconds: float, pace: float, at: list[float]) -> None:
        get_job = Polled(OSError(), "active")
        async with waiting(get_job, every(pace)) as wait:
            with pytest.raises(WaitTimeoutError, match="wait for it again by its ref") as caught:
                await wait(REF, timeout=seconds)
        error = caught.value
        assert get_job.at() == pytest.approx(at, abs=0.011)
        assert (error.ref, error.last_job, error.last_error, error.polls) == (REF, ACTIVE, None, len(at))
        assert error.elapsed == pytest.approx(seconds, abs=0.02)

    rows = (100, 30, [0, 30, 60, 90, 99]), (2, 30, [0, 1.8]), (0.5, 30, [0, 0.45]), (9, 4, [0, 4, 8, 8.1])
    assert await failures_at_once(check, *rows, (60, 70, [0, 59])) == {}
    async with waiting(living(job_1=clock() + 58.5), every(70)) as wait:
        assert (await wait(REF, timeout=60)).succeeded


@in_memory
async def test_end_in_hand_when_the_loop_stood_still(waiting: Waiting) -> None:
    """An end that was in hand when the loop stood still over the deadline is given."""

    async def late(_ref: JobRef) -> str:
        asyncio.get_running_loop().call_later(1, stand_still, 60)
        await asyncio.sleep(2)
        return "completed"

    async with waiting(Polled("active", late), every(2)) as wait:
        assert (await wait(REF, timeout=10)).succeeded


@in_memory
async def test_one_poll_after_the_loop_stood_still(waiting: Waiting) -> None:
    """A loop that stood still for long asks once, not once for each poll it missed."""

    async def still(_ref: JobRef) -> str:
        stand_still(30)
        return "active"

    get_job = Polled("active", still, "active", "active", "completed")
    async with waiting(get_job, every(2)) as wait:
        await wait(REF)
    assert get_job.at() == [0, 2, 34, 36, 38]


@in_memory
async def test_wish(waiting: Waiting) -> None:
    """The next poll is not before what the server wishes, capped, nor before the policy's own pace."""

    async def check(fault: Exception, gap: float, cap: float = 20) -> None:
        get_job = Polled(fault, "completed")
        async with waiting(get_job, every(3, max_retry_after=cap)) as wait:
            await wait(REF)
        assert get_job.at() == [0, gap]

    rows: list[tuple[Exception, float]] = [
        *((response(ServerError, 503, wish), 3) for wish in (0, 1, -5, nan)),
        *((response(ServerError, 503, wish), 20) for wish in (20, 21, 999, inf)),
        (response(ServerError, 503, 7), 7),
        (response(ServerError, 500, 7), 7),
        (response(RateLimitedError, 429, 7), 7),
        (response(RejectedError, 408, 7), 7),
        (response(NotFoundError, 404, 7), 7),
        (ProtocolError("bad_json", "x", 7), 7),
    ]
    assert await failures_at_once(check, *rows, (response(ServerError, 503, 7), 3, 0)) == {}


@in_memory
async def test_429_without_a_wish(waiting: Waiting) -> None:
    """A 429 that asks for no pause that counts is waited out for 1 s, doubling, until a good answer."""

    async def check(wish: float | None, **settings: Any) -> None:
        refused = response(RateLimitedError, 429, wish)
        get_job = Polled(*[refused] * 4, "active", refused, "completed")
        async with waiting(get_job, every(0.5, **settings)) as wait:
            await wait(REF)
        assert get_job.at() == pytest.approx([0, 1, 3, 7, 15, 15.5, 16.5], abs=0.05)

    async def check_ignored(wish: float) -> None:
        await check(wish, max_retry_after=0)

    assert await failures_at_once(check, None, 0, -5, nan) == {}
    assert await failures_at_once(check_ignored, 7) == {}


@in_memory
async def test_wish_beyond_the_deadline(waiting: Waiting) -> None:
    """What a server does not wish before the deadline is not asked, by no last poll either."""
    fault = response(ServerError, 503, 30)
    async with waiting(Polled(fault, "completed"), every(3)) as wait:
        with pytest.raises(WaitTimeoutError) as caught:
            await wait(REF, timeout=10)
    assert (caught.value.last_error, caught.value.polls) == (fault, 1)
    assert caught.value.elapsed == pytest.approx(10)


@in_memory
async def test_grace(waiting: Waiting) -> None:
    """A 404 is ridden out from the start or the last answer that showed the job, after that for the longer grace."""

    async def check(first: list[object], not_found_grace: float, answer_grace: float, ends_at: float) -> None:
        get_job = Polled(*first, response(NotFoundError, 404))
        async with waiting(get_job, every(2, not_found_grace=not_found_grace, answer_grace=answer_grace)) as wait:
            with pytest.raises(NotFoundError):
                await wait(REF)
        assert get_job.at()[-1] == pytest.approx(ends_at, abs=0.3)

    seen = ["active"]
    rows = [([], 0, 60, 0), ([], 29, 60, 30), ([], 30, 60, 30), (seen * 2, 32, 0, 34)]
    rows += [(seen, 30, 10, 30), (seen, 10, 30, 30), (seen, 20, 0, 20)]
    assert await failures_at_once(check, *rows) == {}


@in_memory
async def test_bad_answers(waiting: Waiting) -> None:
    """So many unusable answers in a row end a wait with the last; a transient one between them starts anew."""

    async def check(between: Exception) -> None:
        bad, last = ProtocolError("bad_json", "x"), ProtocolError("not_json", "y")
        get_job = Polled(bad, bad, between, bad, bad, last, "completed")
        async with waiting(get_job, every(1, max_bad_answers=3)) as wait:
            with pytest.raises(ProtocolError) as caught:
                await wait(REF)
        assert caught.value is last
        assert len(get_job.asked) == 6

    assert await failures_at_once(check, *TRANSIENT) == {}


REFUSED: Final = NotSentError("connection refused", "refused")


async def fails_when_cut(_ref: JobRef) -> object:
    try:
        return await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise OSError("cancelled") from None


@in_memory
async def test_cause_of_a_timeout(waiting: Waiting) -> None:
    """A poll that never ends is cut at the deadline; the wait tells what failed since the last good answer, if any."""

    async def check(text: str, *polls: object) -> None:
        async with waiting(Polled(*polls), every(2)) as wait:
            with pytest.raises(WaitTimeoutError, match=f"last error: {text}") as caught:
                await wait(REF, timeout=9)
        error = caught.value.last_error
        assert error is REFUSED if text == "connection refused" else type(error) is TransportError
        assert (caught.value.last_job, caught.value.polls) == (ACTIVE if "active" in polls else None, len(polls))
        assert caught.value.elapsed == pytest.approx(9)

    rows: list[tuple[object, ...]] = [("no answer until the wait ended", *first, never) for first in ([], ["active"])]
    rows.append(("no answer until the wait ended", REFUSED, "active", never))
    for cut in (never, fails_when_cut):
        rows += [("connection refused", *first, REFUSED, cut) for first in ([OSError()], ["active", REFUSED])]
    assert await failures_at_once(check, *rows) == {}
    assert asyncio.all_tasks() == {asyncio.current_task()}


REFUSALS: Final = (*PERMANENT, NotFoundError(404), ProtocolError("not_json", "<html>"))


@in_memory
async def test_refusals_of_a_job_that_was_seen(waiting: Waiting) -> None:
    """Once a poll has shown the job, any other answer is ridden out for the grace since then, and raised after it."""

    async def check(refusal: Exception) -> None:
        get_job = Polled("active", *[refusal] * 9, "active", refusal)
        async with waiting(get_job, every(2, answer_grace=20, not_found_grace=1)) as wait:
            with pytest.raises(type(refusal)) as caught:
                await wait(REF)
        assert caught.value is refusal
        assert get_job.at()[-1] == pytest.approx(20 + 20, abs=0.3)

    assert await failures_at_once(check, *REFUSALS) == {}


@in_memory
async def test_known_from_its_create_is_not_seen(waiting: Waiting) -> None:
    """A job that is known from its create only has not been seen: a wrong `get_path` shows at once."""

    async def check(refusal: Exception) -> None:
        async with waiting(Polled(refusal), every(2, not_found_grace=0, max_bad_answers=1)) as wait:
            began = clock()
            with pytest.raises(type(refusal)):
                await wait(ACTIVE)
            assert clock() == began

    assert await failures_at_once(check, *REFUSALS) == {}


@in_memory
async def test_refusals_after_an_outage(waiting: Waiting) -> None:
    """A service that refuses while it comes back from a long outage has the whole grace, whatever flickers then."""
    outage: list[object] = [response(ServerError, 502)] * 50

    async def check(refusal: Exception) -> None:
        back: list[object] = [refusal, response(ServerError, 502)] * 4
        get_job = Polled("active", *outage, *back, "completed")
        async with waiting(get_job, every(2, answer_grace=15)) as wait:
            assert (await wait(REF)).succeeded
        get_job = Polled("active", *outage, *back * 4, "completed")
        async with waiting(get_job, every(2, answer_grace=15, not_found_grace=0)) as wait:
            with pytest.raises(type(refusal)):
                await wait(REF)
        assert get_job.at()[-1] == pytest.approx(102 + 16, abs=0.8)

    assert await failures_at_once(check, *REFUSALS) == {}


@in_memory
async def test_rare_polls(waiting: Waiting) -> None:
    """A single refusal ends no wait that has seen its job, however rare its polls; the next one in a row does."""

    async def check(refusal: Exception) -> None:
        get_job = Polled("active", refusal, "active", refusal, refusal)
        async with waiting(get_job, every(100)) as wait:
            with pytest.raises(type(refusal)):
                await wait(REF)
        assert len(get_job.asked) == 5

    assert await failures_at_once(check, *REFUSALS) == {}


@in_memory
async def test_on_update(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """`on_update` sees the job at first sight and at each change; what it raises is logged once."""
    seen: list[AgentJob] = []

    def faulty(job: AgentJob) -> None:
        seen.append(job)
        raise ZeroDivisionError

    get_job = Polled("active", "active", changed("m"), OSError(), changed("m"), "completed")
    async with waiting(get_job, every(1)) as wait:
        await wait(REF, on_update=faulty)
        assert seen == [ACTIVE, changed("m"), DONE]
        await wait(DONE, on_update=seen.append)
        await wait(changed("m"), on_update=seen.append)
        assert seen[3:] == [DONE, changed("m"), DONE]
    assert [record.message.split(";")[0] for record in caplog.records] == ["on_update raised ZeroDivisionError"]


@in_memory
async def test_unknown_status(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """An unknown status is no end, and each is warned about once, also when a poll gives the very job that is known."""
    given = AgentJob("job_1", "docs", "paused")
    async with waiting(Polled(given, given, "reviewing", "reviewing", "completed"), every(1)) as wait:
        assert (await wait(given)).succeeded
    messages = [record.message for record in caplog.records]
    assert ["unknown status paused" in message for message in messages] == [True, False]
    assert ["unknown status reviewing" in message for message in messages] == [False, True]


@in_memory
async def test_strategy_that_gives_no_delay(waiting: Waiting) -> None:
    """A delay that is no finite number from 0 on ends the wait, with a short line."""

    async def check(delay: Any) -> None:
        for first in ("active", TransportError("reset")):
            async with waiting(Polled(first), PollPolicy(wait=lambda _: delay)) as wait:
                with pytest.raises(InvalidInputError, match=r"policy\.wait .* from 0 on, not ") as caught:
                    await wait(REF)
            assert len(str(caught.value)) < 120

    assert await failures_at_once(check, -1, -0.001, nan, inf, -inf, True, "5", None, 5j, 10**400, [1]) == {}


@in_memory
async def test_strategy_that_raises(waiting: Waiting) -> None:
    """What a strategy raises ends the wait, as it is; it is not asked again."""

    async def check(first: object, error: Exception) -> None:
        calls: list[object] = []

        def fail(state: object) -> Any:
            calls.append(state)
            raise error

        async with waiting(Polled(first), PollPolicy(wait=fail, retry=fail)) as wait:
            with pytest.raises(type(error)) as caught:
                await wait(REF)
        assert caught.value is error
        assert len(calls) == 1

    reset = TransportError("reset")
    firsts, errors = (reset, LookupError(), "active"), (ZeroDivisionError(), RuntimeError("mine"))
    assert await failures_at_once(check, *((first, error) for first in firsts for error in errors)) == {}


@in_memory
async def test_strategy_that_runs_out(waiting: Waiting) -> None:
    """A strategy that raises StopIteration, as `next` does on what is used up, ends the wait like any other error."""
    delays = iter([1.0, 1.0])
    async with waiting(get_job := Polled(), PollPolicy(wait=lambda _: next(delays))) as wait:
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            await wait(REF)
    assert isinstance(caught.value.__cause__, StopIteration)
    assert get_job.at() == [0, 1, 2]


@in_memory
async def test_cancelled(waiting: Waiting) -> None:
    """Cancelling leaves at once, in a poll and between polls; nothing is asked after it and no task stays."""

    async def check(when: float) -> None:
        get_job = Polled("active", never, latency=2)
        async with waiting(get_job, every(2)) as wait:
            began = clock()
            task = asyncio.ensure_future(wait(REF))
            await asyncio.sleep(when)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert (clock() - began, caught.value.__context__) == (when, None)
            asked = len(get_job.asked)
            await asyncio.sleep(60)
            assert len(get_job.asked) == asked

    assert await failures_at_once(check, 1, 3, 5) == {}
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_memory
async def test_arguments_that_make_no_sense(waiting: Waiting) -> None:
    """An argument that makes no sense is refused by name before anything is asked."""
    get_job = Polled()

    async def check(name: str, value: Any) -> None:
        with pytest.raises(InvalidInputError, match=f"^{name} must be"):
            await wait(**{"job": REF} | {name: value})

    rows: list[tuple[str, Any]] = [("job", None), ("job", 5), ("on_update", 5), ("on_update", asyncio.sleep)]
    rows += [("timeout", value) for value in (0, -1, True, nan, inf, "5")]
    async with waiting(get_job) as wait:
        assert await failures_at_once(check, *rows) == {}
    assert get_job.asked == []
