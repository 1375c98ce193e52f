"""One wait: what it rides out, what ends it, when it asks again, and what it tells."""

import asyncio
import gc
import logging
import random
import weakref
from collections.abc import Callable, Coroutine, Mapping
from itertools import pairwise
from traceback import walk_tb
from typing import Any

import pytest
import tenacity
from hypothesis import given
from hypothesis import strategies as st
from looptime import LoopTimeEventLoop

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AuthError,
    HttpTimeouts,
    InvalidInputError,
    JobChanged,
    JobPolled,
    JobRef,
    JobStatus,
    JobTracker,
    NotFoundError,
    PollFailed,
    PollPolicy,
    ProtocolError,
    RateLimitedError,
    RejectedError,
    ServerError,
    TransportError,
    WaitEnded,
    WaitStarted,
    WaitTimeoutError,
    wait_for_job,
)
from agentjobs_async._polling.wait import _Wait
from agentjobs_async.models import JobWithRetryAfter
from agentjobs_async.testing import Emulator, JobScript
from tests.polled import Polled, response
from tests.scripted import Reply, Scripted, http, job, reply

REF = JobRef("docs", "job_1")
ACTIVE = AgentJob("job_1", "docs", "active")
DONE = AgentJob("job_1", "docs", "completed")
BODY_OF_9 = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"


def clock() -> float:
    return asyncio.get_running_loop().time()


def every(seconds: float, **settings: Any) -> PollPolicy:
    return PollPolicy(wait=tenacity.wait_fixed(seconds), **settings)


class Reads:
    """A get-job callable that gives, raises or does one step after the other, the last for ever.

    Attributes:
        at: When it was called, in seconds from its making.
    """

    def __init__(self, *steps: object) -> None:
        self._steps = steps
        self._made = clock()
        self.at: list[float] = []

    async def __call__(self, ref: JobRef) -> AgentJob | Mapping[str, object]:
        assert ref == REF
        self.at.append(round(clock() - self._made, 3))
        step: Any = self._steps[min(len(self.at), len(self._steps)) - 1]
        if isinstance(step, BaseException):
            raise step
        found: AgentJob | Mapping[str, object] = await step() if callable(step) else step
        return found


async def never() -> AgentJob:
    await asyncio.Event().wait()
    raise AssertionError


async def after_2_s() -> AgentJob:
    await asyncio.sleep(2)
    return ACTIVE


async def swallows() -> AgentJob:
    try:
        await asyncio.sleep(100)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        return ACTIVE
    raise AssertionError


async def swallows_and_finds_the_end() -> AgentJob:
    await swallows()
    return DONE


@pytest.mark.looptime
@pytest.mark.parametrize(
    "fault",
    [
        *(pytest.param(reply(status), id=str(status)) for status in (408, 425, 429, 500, 502, 503, 504, 507, 599)),
        pytest.param(Reply(then="reset"), id="reset"),
        pytest.param(Reply(then="fin"), id="closed"),
        pytest.param(Reply(then="hang"), id="silence"),
        pytest.param(Reply(BODY_OF_9, "fin"), id="cut"),
        pytest.param(Reply(BODY_OF_9, "hang"), id="hangs in the body"),
        pytest.param(Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", endless=b" ", pause=1), id="drip"),
        pytest.param(Reply(b"HTTP/1.1 200 OK\r\n", endless=b"X: y\r\n"), id="endless headers"),
        pytest.param(Reply(b"HTTP/1.1 200 OK\r\n\r\n", endless=b" " * 65536), id="endless body"),
        pytest.param(Reply(b"garbage\r\n\r\n", "fin"), id="garbage"),
        *(pytest.param(reply(status), id=str(status)) for status in (200, 204, 205, 206, 600)),
        pytest.param(Reply(http(200, b"<html>")), id="html"),
        pytest.param(Reply(http(200, b"\x1f\x8b", ("Content-Encoding", "gzip"))), id="broken encoding"),
        pytest.param(job(job_id="job_2"), id="another job's id"),
        pytest.param(reply(404), id="not visible yet"),
    ],
)
async def test_rides_out(fault: Reply) -> None:
    """A passing fault, three times in a row, does not keep a wait from its job."""
    events: list[Any] = []
    async with (
        Scripted(fault, fault, fault, job("completed")) as server,
        server.session(policy=every(2), timeouts=HttpTimeouts(request=5), hooks=[events.append]) as session,
    ):
        assert (await session.wait_for_job("job_1")).succeeded
    assert len(server.requests) == 4
    assert [type(event) for event in events] == [WaitStarted] + [PollFailed] * 3 + [JobPolled, WaitEnded]
    assert [event.polls for event in events[1:]] == [1, 2, 3, 4, 4]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("first", "kind"),
    [
        *((reply(status), RejectedError) for status in (301, 303, 308, 400, 405, 409, 422)),
        *((reply(status), AuthError) for status in (401, 403)),
        *((reply(status), ServerError) for status in (501, 505)),
        (reply(410), NotFoundError),
    ],
)
async def test_permanent(first: Reply, kind: type[AgentJobsError]) -> None:
    """An answer after which asking again is no use ends the wait at once, with the hooks told."""
    events: list[Any] = []
    async with Scripted(first, job("completed")) as server, server.session(hooks=[events.append]) as session:
        with pytest.raises(kind) as caught:
            await session.wait_for_job("job_1")
    assert len(server.requests) == 1
    assert caught.value.outcome is None
    started, failed, ended = events
    assert started == WaitStarted(REF)
    assert (failed, ended.error, ended.job) == (PollFailed(REF, caught.value, 1), caught.value, None)


@pytest.mark.parametrize("status", ["completed", "archived", "failed"])
async def test_ended_job_needs_no_request(status: str) -> None:
    """A job that has ended already comes back as it is, without a read; `on_update` sees it."""
    ended, seen = AgentJob("job_1", "docs", status), list[AgentJob]()
    reads = Reads(DONE)
    async with Emulator() as emulator, emulator.session() as session:
        assert await session.wait_for_job(ended, on_update=seen.append) is ended
    assert await wait_for_job(ended, get_job=reads, on_update=seen.append) is ended
    assert (emulator.requests, reads.at, seen) == ((), [], [ended, ended])


@pytest.mark.looptime
@pytest.mark.parametrize("outcome", ["completed", "archived", "failed"])
async def test_every_end_is_a_result(outcome: Any) -> None:
    """A job that ends is given, failed ones too; nothing is read after its end."""
    async with (
        Emulator(script=JobScript(duration=100, outcome=outcome)) as emulator,
        emulator.session(project_id="docs") as session,
    ):
        created = await session.create_job("Fix it")
        began = clock()
        assert (await session.wait_for_job(created)).status == outcome
        assert 99 < clock() - began < 117
        polls = len(emulator.requests)
        await asyncio.sleep(100)
    assert len(emulator.requests) == polls


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
async def test_timeout_and_last_poll(seconds: float, pace: float, at: list[float]) -> None:
    """The last poll is `min(1 s, timeout / 10)` before the deadline; the error tells what is known."""
    reads = Reads(OSError(), ACTIVE)
    with pytest.raises(WaitTimeoutError, match="wait for it again by its ref") as caught:
        await wait_for_job(REF, get_job=reads, policy=every(pace), timeout=seconds)
    error = caught.value
    assert reads.at == at
    assert (error.ref, error.last_job, error.last_error, error.polls) == (REF, ACTIVE, None, len(at))
    assert error.elapsed == pytest.approx(seconds)


@pytest.mark.looptime
async def test_last_poll_finds_the_end() -> None:
    """A job that ends shortly before the deadline is found by the last poll."""
    async with (
        Emulator(script=JobScript(duration=98)) as emulator,
        emulator.session(project_id="docs", policy=every(60)) as session,
    ):
        created = await session.create_job("Fix it")
        assert (await session.wait_for_job(created, timeout=100)).succeeded


@pytest.mark.looptime
@pytest.mark.parametrize("step", [never, swallows])
async def test_cut_at_the_deadline(step: object) -> None:
    """A read that never ends is cut at the deadline, even if it swallows that, and counts as a failed poll."""
    reads = Reads(ACTIVE, step)
    with pytest.raises(WaitTimeoutError) as caught:
        await wait_for_job(REF, get_job=reads, policy=every(2), timeout=5)
    assert caught.value.elapsed == pytest.approx(5)
    assert (caught.value.polls, caught.value.last_job) == (2, ACTIVE)
    assert isinstance(caught.value.last_error, TransportError) is (step is never)


@pytest.mark.looptime
async def test_swallowed_cut_with_the_end_in_hand() -> None:
    """A job that has ended is given even if its read went on over the deadline."""
    assert await wait_for_job(REF, get_job=Reads(swallows_and_finds_the_end), timeout=5) is DONE


@pytest.mark.looptime
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Reply(then="hang"), id="silence"),
        pytest.param(Reply(BODY_OF_9, "hang"), id="hangs in the body"),
        pytest.param(Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", endless=b" ", pause=1), id="drip"),
        pytest.param(Reply(b"HTTP/1.1 200 OK\r\n", endless=b"X: y\r\n", pause=1), id="endless headers"),
        pytest.param(Reply(endless=b"HTTP/1.1 102 Wait\r\n\r\n", pause=1), id="endless 1xx"),
    ],
)
async def test_timeout_over_http(fault: Reply) -> None:
    """No server holds a wait beyond its deadline; each poll gives one event, the one that was cut too."""
    events: list[Any] = []
    async with (
        Scripted(job(), fault) as server,
        server.session(policy=every(2), hooks=[events.append]) as session,
    ):
        with pytest.raises(WaitTimeoutError) as caught:
            await session.wait_for_job("job_1", timeout=20)
    assert caught.value.elapsed == pytest.approx(20)
    assert isinstance(caught.value.last_error, TransportError)
    assert [type(event) for event in events] == [WaitStarted, JobPolled, PollFailed, WaitEnded]
    assert events[-1] == WaitEnded(REF, None, caught.value, 2, caught.value.elapsed, server_address="127.0.0.1")


@pytest.mark.looptime
async def test_end_in_hand_when_the_loop_stood_still() -> None:
    """An answer that came while the loop stood still counts, though the deadline is over when it is read."""

    def stand_still() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LoopTimeEventLoop)
        loop.setup_looptime(start=loop.time() + 10)

    late = Reply(job("completed").data, after=stand_still)
    async with Scripted(job(), late) as server, server.session(policy=every(2)) as session:
        began = clock()
        assert (await session.wait_for_job("job_1", timeout=5)).succeeded
        assert clock() - began == pytest.approx(12)


@pytest.mark.looptime
async def test_one_poll_after_the_loop_stood_still() -> None:
    """A loop that stood still for 30 s asks once, not once for each poll it missed."""

    async def stand_still() -> AgentJob:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LoopTimeEventLoop)
        loop.setup_looptime(start=loop.time() + 30)
        return ACTIVE

    reads = Reads(ACTIVE, stand_still, ACTIVE, ACTIVE, DONE)
    await wait_for_job(REF, get_job=reads, policy=every(2))
    assert reads.at == [0, 2, 34, 36, 38]


@pytest.mark.looptime
@pytest.mark.parametrize("status", [200, 429, 503])
@pytest.mark.parametrize(
    ("headers", "gap"),
    [
        ([("Retry-After", "7")], 7),
        ([("Retry-After", "1")], 3),
        ([("Retry-After", "999")], 20),
        ([("Retry-After", "4"), ("Retry-After", "8"), ("Retry-After", "soon")], 8),
        (
            [("Date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("Retry-After", "Sun, 06 Nov 1994 08:49:46 GMT")],
            9,
        ),
        ([("Retry-After", "Sun, 06 Nov 1994 08:49:46 GMT")], 3),
        ([("Retry-After", "-5")], 3),
        ([("Retry-After", "soon")], 3),
    ],
)
async def test_retry_after(status: int, headers: list[tuple[str, str]], gap: float) -> None:
    """The next poll is not before what the server wishes, capped, nor before the policy's own pace."""
    first = reply(status, {"id": "job_1", "status": "active"}, *headers)
    async with (
        Scripted(first, job("completed")) as server,
        server.session(policy=every(3, max_retry_after=20)) as session,
    ):
        await session.wait_for_job("job_1")
    assert server.requests[1].at - server.requests[0].at == pytest.approx(gap, abs=0.01)


@pytest.mark.looptime
async def test_retry_after_beyond_the_deadline() -> None:
    """What a server does not wish before the deadline is not asked, by no last poll either."""
    async with (
        Scripted(reply(503, None, ("Retry-After", "30")), job("completed")) as server,
        server.session() as session,
    ):
        with pytest.raises(WaitTimeoutError) as caught:
            await session.wait_for_job("job_1", timeout=10)
    assert len(server.requests) == 1
    assert isinstance(caught.value.last_error, ServerError)
    assert caught.value.elapsed == pytest.approx(10)


@pytest.mark.looptime
@pytest.mark.parametrize(("grace", "visible_after"), [(30.0, 0.5), (30.0, 25), (200.0, 150)])
async def test_not_visible_yet(grace: float, visible_after: float) -> None:
    """A job that the service does not show at once is waited for, as long as `not_found_grace` allows."""
    async with (
        Emulator(script=JobScript(duration=300, visible_after=visible_after)) as emulator,
        emulator.session(project_id="docs", policy=PollPolicy(not_found_grace=grace)) as session,
    ):
        assert (await session.run_job("Fix it")).succeeded


@pytest.mark.looptime
@pytest.mark.parametrize(("grace", "polls"), [(0, 1), (1, 2), (9, 6), (10, 6)])
async def test_never_visible(grace: float, polls: int) -> None:
    """A 404 at or after the end of the grace ends the wait; a grace of 0 is none."""
    async with Emulator() as emulator, emulator.session(policy=every(2, not_found_grace=grace)) as session:
        with pytest.raises(NotFoundError):
            await session.wait_for_job(REF)
    assert len(emulator.requests) == polls


@pytest.mark.looptime
async def test_not_found_after_it_was_seen() -> None:
    """The grace counts from the last answer that showed the job."""
    lost = [reply(404)] * 4
    async with (
        Scripted(*[job()] * 10, *lost, job(), *lost, job(), reply(404)) as server,
        server.session(policy=every(1, not_found_grace=5, answer_grace=0)) as session,
    ):
        with pytest.raises(NotFoundError):
            await session.wait_for_job(REF)
    assert len(server.requests) == 10 + 5 + 5 + 5


BAD = [
    Reply(http(200)),
    Reply(http(200, b"<html>")),
    Reply(http(200, b"\xff{}")),
    Reply(http(200, b'{"id": "job_1", "status": NaN}')),
    Reply(http(200, b'{"id": "job_1", "id": "job_1", "status": "active"}')),
    Reply(http(200, b"{}", ("Content-Encoding", "gzip"))),
    Reply(http(200, b" " * 1_048_577)),
    Reply(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 99_999),
    reply(200, []),
    reply(200, {"id": 7, "status": "active"}),
    reply(200, {"id": "job_1", "status": None}),
    reply(204),
    reply(205),
    reply(206),
    reply(600),
    job(job_id="job_2"),
]


@pytest.mark.looptime
@pytest.mark.parametrize("bad", BAD)
async def test_bad_answers_in_a_row(bad: Reply) -> None:
    """`max_bad_answers` unusable answers in a row end the wait, the last one raised."""
    async with Scripted(bad) as server, server.session(policy=every(1, max_bad_answers=3)) as session:
        with pytest.raises(ProtocolError):
            await session.wait_for_job("job_1")
    assert len(server.requests) == 3


@pytest.mark.looptime
@pytest.mark.parametrize("between", [job(), reply(503), Reply(then="reset"), reply(404)])
async def test_bad_answers_between_others(between: Reply) -> None:
    """A good or a transient answer between unusable ones starts their count anew."""
    script = [*BAD[:4], between, *BAD[4:8], between, *BAD[8:12], job("completed")]
    async with Scripted(*script) as server, server.session(policy=every(1)) as session:
        assert (await session.wait_for_job("job_1")).succeeded


@pytest.mark.looptime
async def test_on_update() -> None:
    """`on_update` gets the job at first sight, at each change, and at its end; polls without news are silent."""
    changed = AgentJob("job_1", "docs", "active", model="other")
    seen: list[AgentJob] = []
    reads = Reads(ACTIVE, ACTIVE, OSError(), ACTIVE, changed, changed, DONE)
    await wait_for_job(REF, get_job=reads, policy=every(1), on_update=seen.append)
    assert seen == [ACTIVE, changed, DONE]
    seen.clear()
    await wait_for_job(ACTIVE, get_job=Reads(ACTIVE, changed, DONE), policy=every(1), on_update=seen.append)
    assert seen == [ACTIVE, changed, DONE]


@pytest.mark.looptime
@pytest.mark.parametrize("error", [LookupError("mine"), asyncio.CancelledError()])
async def test_on_update_that_raises(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """What `on_update` raises is logged once, with its traceback; it goes on being called and the wait goes on."""
    seen: list[AgentJob] = []

    def update(found: AgentJob) -> None:
        seen.append(found)
        raise error

    reads = Reads(ACTIVE, DONE)
    assert await wait_for_job(REF, get_job=reads, policy=every(1), on_update=update) is DONE
    assert seen == [ACTIVE, DONE]
    (record,) = caplog.records
    assert "on_update raised" in record.message
    assert record.exc_info is not None
    assert record.exc_info[1] is error


@pytest.mark.parametrize("wrong", [Reads.__call__, 5, "print"])
async def test_on_update_that_cannot_be_called(wrong: Any) -> None:
    """An async `on_update`, which nobody would await, and what is no function, are refused before any read."""
    reads = Reads(DONE)
    with pytest.raises(InvalidInputError, match="on_update must be"):
        await wait_for_job(REF, get_job=reads, on_update=wrong)
    assert reads.at == []


@pytest.mark.looptime
async def test_unknown_status(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown status is no end, is kept as text, and each is warned about once."""
    seen: list[AgentJob] = []
    script = JobScript(duration=100, stages=((10, "reviewing\x1b"), (50, "merging")))
    async with Emulator(script=script) as emulator, emulator.session(project_id="docs", policy=every(5)) as session:
        assert (await session.run_job("Fix it", on_update=seen.append)).succeeded
    assert [found.status for found in seen] == ["active", "reviewing\x1b", "merging", "completed"]
    records = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert ["reviewing\\x1b" in record.message for record in records] == [True, False]
    assert ["merging" in record.message for record in records] == [False, True]


@pytest.mark.parametrize(
    "found",
    [
        DONE,
        {"id": "job_1", "status": "completed"},
        AgentJob("job_1", "elsewhere", "completed", raw={"id": "job_1", "more": 1}),
    ],
)
async def test_what_a_get_job_callable_may_give(found: Any) -> None:
    """A get-job callable gives an `AgentJob`, taken as it is, or the service's document as a mapping."""
    got = await wait_for_job(REF, get_job=Reads(found))
    assert (got.id, got.status) == ("job_1", JobStatus.COMPLETED)
    if isinstance(found, AgentJob):
        assert got is found
    else:
        assert (got.project_id, got.raw) == ("docs", found)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (AgentJob("job_2", "docs", "completed"), "wrong_id"),
        ({"id": "job_2", "status": "completed"}, "wrong_id"),
        ({"id": "job_1"}, "schema"),
        (None, "schema"),
        ([DONE], "schema"),
        ("job_1", "schema"),
    ],
)
async def test_what_a_get_job_callable_may_not_give(found: object, reason: str) -> None:
    """Anything but the job asked for is a bad answer."""
    reads = Reads(found)
    with pytest.raises(ProtocolError) as caught:
        await wait_for_job(REF, get_job=reads, policy=every(1))
    assert (caught.value.reason, len(reads.at)) == (reason, 5)


@pytest.mark.parametrize("sync", [lambda _: DONE, lambda _: None])
async def test_get_job_that_is_not_async(sync: Any) -> None:
    """A plain function as get-job callable is named as the mistake that it is, at its first call."""
    with pytest.raises(InvalidInputError, match="get_job must be async: it returned"):
        await wait_for_job(REF, get_job=sync)


class MineError(Exception):
    """An exception of the user's own."""


@pytest.mark.looptime
async def test_accepted_exceptions_are_ridden_out() -> None:
    """By default a get-job callable's OSError and TimeoutError are passing faults, until the deadline."""
    faults = (OSError(), TimeoutError(), ConnectionResetError())
    assert await wait_for_job(REF, get_job=Reads(*faults, DONE), policy=every(1)) is DONE
    with pytest.raises(WaitTimeoutError) as caught:
        await wait_for_job(REF, get_job=Reads(faults[0]), policy=every(1), timeout=7.5)
    assert (caught.value.last_error, caught.value.last_job, caught.value.polls) == (faults[0], None, 8)


@pytest.mark.parametrize("error", [MineError("mine"), ValueError("mine"), asyncio.CancelledError("mine")])
async def test_other_exceptions_pass(error: BaseException) -> None:
    """What a get-job callable raises and `policy.retry` does not accept comes out at once: the object itself."""
    reads = Reads(error)
    with pytest.raises(type(error)) as caught:
        await wait_for_job(REF, get_job=reads)
    assert caught.value is error
    assert (error.__cause__, error.__context__, len(reads.at)) == (None, None, 1)


async def _raising(_ref: JobRef) -> AgentJob:
    raise MineError("mine")


async def test_errors_hold_no_frame_of_a_worker() -> None:
    """An error of a get-job callable comes with that callable's frames, without that of the worker, which lives on."""
    async with JobTracker(_raising) as tracker:
        with pytest.raises(MineError) as caught:
            await tracker.wait_for_job(REF)
    names = [frame.f_code.co_name for frame, _ in walk_tb(caught.tb)]
    assert names[-1] == "_raising"
    assert "_poll_due" not in names


async def test_errors_are_freed_with_the_last_reference() -> None:
    """What a get-job callable raised, and a wait passed on, does not stay until the garbage collector runs."""
    gc.disable()
    try:
        with pytest.raises(MineError) as caught:
            await wait_for_job(REF, get_job=_raising)
        error = weakref.ref(caught.value)
        del caught
        assert error() is None
    finally:
        gc.enable()


ANSWERS = [
    *(ACTIVE, AgentJob("job_1", "docs", "active", model="m"), AgentJob("job_1", "docs", "reviewing"), DONE),
    *(ProtocolError("bad_json", "x"), OSError("reset"), TransportError("reset")),
    *(response(ServerError, 500), response(AuthError, 403), response(NotFoundError, 404)),
]
SECONDS = st.sampled_from([0.0, 0.5, 3.0, 20.0, 70.0])


def state_of(wait: _Wait) -> list[object]:
    return [getattr(wait, name, None) for name in _Wait.__slots__ if name not in {"_warnings", "_update"}]


@given(
    st.lists(st.tuples(SECONDS, st.sampled_from(ANSWERS), st.booleans()), max_size=12),
    st.sampled_from([None, 0.4, 5.0, 100.0]),
    st.sampled_from([ACTIVE, REF]),
)
def test_jobs_are_taken_as_decide_says(
    history: list[tuple[float, AgentJob | Exception, bool]], timeout: float | None, target: AgentJob | JobRef
) -> None:
    """An answer that is a job takes a shorter way than others, to the same state as by `decide`."""
    policy = every(2, not_found_grace=5, max_bad_answers=2, answer_grace=60)
    short, full = (_Wait(target, policy=policy, timeout=timeout, on_update=None) for _ in range(2))
    now = 100.0
    assert short.begin(now) is full.begin(now) is None
    for seconds, answer, cut in history:
        now += seconds
        short.poll()
        full.poll()
        as_any = JobWithRetryAfter(answer, 0.0) if isinstance(answer, AgentJob) else answer
        result = short.take(answer, now, cut=cut)
        assert result is full.take(as_any, now, cut=cut)
        assert state_of(short) == state_of(full)
        if result is not None:
            break


@pytest.mark.looptime
@pytest.mark.parametrize(
    "retry",
    [
        tenacity.retry_always,
        tenacity.retry_if_exception(lambda error: "passing" in str(error)),
        tenacity.retry_if_exception_message(match="passing"),
        tenacity.retry_if_exception_type(MineError),
        tenacity.retry_if_not_exception_type(ValueError),
        tenacity.retry_any(tenacity.retry_never, tenacity.retry_if_exception_type(MineError)),
        tenacity.retry_if_exception_type(MineError) & tenacity.retry_if_exception_message(match="passing"),
        lambda state: isinstance(state.outcome and state.outcome.exception(), MineError),
    ],
)
async def test_retry_strategies(retry: Any) -> None:
    """Any tenacity retry strategy says which exceptions of a get-job callable are passing faults."""
    reads = Reads(MineError("passing"), MineError("passing"), DONE)
    assert await wait_for_job(REF, get_job=reads, policy=every(1, retry=retry)) is DONE
    assert reads.at == [0, 1, 2]
    with pytest.raises(MineError):
        await wait_for_job(REF, get_job=Reads(MineError("passing")), policy=every(1, retry=tenacity.retry_never))


class _Own(tenacity.wait.wait_base):
    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        return retry_state.attempt_number * 2.0


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("wait", "at"),
    [
        (tenacity.wait_none(), [0, 0, 0, 0]),
        (tenacity.wait_fixed(5), [0, 5, 10, 15]),
        (tenacity.wait_random(1, 2), [0, 1.5, 3, 4.5]),
        (tenacity.wait_incrementing(1, 2), [0, 1, 4, 9]),
        (tenacity.wait_exponential(multiplier=1, max=3), [0, 1, 3, 6]),
        (tenacity.wait_random_exponential(multiplier=2), [0, 1, 3, 7]),
        (tenacity.wait_exponential_jitter(initial=1, jitter=2), [0, 2, 5, 10]),
        (tenacity.wait_chain(tenacity.wait_fixed(1), tenacity.wait_fixed(7)), [0, 1, 8, 15]),
        (tenacity.wait_fixed(1) + tenacity.wait_random(0, 1), [0, 1.5, 3, 4.5]),
        (tenacity.wait_combine(tenacity.wait_fixed(1), tenacity.wait_fixed(2)), [0, 3, 6, 9]),
        (tenacity.wait_exception(lambda error: 4 if isinstance(error, OSError) else 1), [0, 1, 5, 6]),
        (_Own(), [0, 2, 6, 12]),
        (lambda state: state.outcome_timestamp - state.start_time + 1, [0, 1, 3, 7]),
    ],
)
async def test_wait_strategies(wait: Any, at: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Any tenacity wait strategy paces a wait, after good answers and after errors alike."""
    monkeypatch.setattr(random, "random", lambda: 0.5)
    monkeypatch.setattr(random, "uniform", lambda low, high: (low + high) / 2)
    reads = Reads(ACTIVE, OSError(), ACTIVE, DONE)
    await wait_for_job(REF, get_job=reads, policy=PollPolicy(wait=wait))
    assert reads.at == pytest.approx(at, abs=0.01)


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), True, "5", None])
async def test_wait_strategy_that_gives_no_delay(delay: Any) -> None:
    """A delay that is no finite number from 0 on ends the wait, and the hooks are told."""
    events: list[Any] = []
    async with (
        Scripted(job()) as server,
        server.session(policy=PollPolicy(wait=lambda _: delay), hooks=[events.append]) as session,
    ):
        with pytest.raises(InvalidInputError, match=r"policy\.wait") as caught:
            await session.wait_for_job("job_1")
    assert [type(event) for event in events] == [WaitStarted, JobPolled, WaitEnded]
    assert events[-1].error is caught.value


async def test_strategies_that_raise() -> None:
    """What a strategy of the user's raises ends the wait, as it is."""
    error = RuntimeError("mine")

    def fail(_state: object) -> float:
        raise error

    for first in (ACTIVE, OSError()):
        with pytest.raises(RuntimeError) as caught:
            await wait_for_job(REF, get_job=Reads(first), policy=PollPolicy(wait=fail))
        assert caught.value is error


@pytest.mark.looptime
async def test_default_pace() -> None:
    """By default a wait asks after 3.3 s, and more slowly as it grows older, up to every 9 s, give or take a tenth."""
    reads = Reads(ACTIVE)
    with pytest.raises(WaitTimeoutError):
        await wait_for_job(REF, get_job=reads)
    gaps = [later - earlier for earlier, later in pairwise(reads.at)][:-1]
    assert 2.968 <= gaps[0] <= 3.632  # the clock shows whole milliseconds
    assert all(8.098 <= gap <= 9.902 for gap in gaps[50:])
    assert 190 <= len(gaps) <= 240


@pytest.mark.looptime
async def test_for_ever() -> None:
    """With `timeout=None` a wait goes on as long as the job does."""
    async with (
        Emulator(script=JobScript(duration=100_000)) as emulator,
        emulator.session(project_id="docs", policy=every(5000)) as session,
    ):
        began = clock()
        assert (await session.run_job("Fix it", timeout=None)).succeeded
        assert 100_000 <= clock() - began < 105_001


@pytest.mark.looptime
async def test_hooks_of_a_wait() -> None:
    """A wait tells its start, each poll once, each change against what was known, and its end."""
    events: list[Any] = []
    script = [job(), job(), reply(500), job(model="m"), reply(404), job("failed", model="m")]
    async with Scripted(*script) as server, server.session(policy=every(2), hooks=[events.append]) as session:
        began = clock()
        ended = await session.wait_for_job("job_1")
        elapsed = clock() - began
    first, second, third = (
        AgentJob("job_1", "docs", *rest) for rest in (("active",), ("active", None, "m"), ("failed", None, "m"))
    )
    failures = [event for event in events if isinstance(event, PollFailed)]
    assert [(type(event.error), event.polls) for event in failures] == [(ServerError, 3), (NotFoundError, 5)]
    assert [event for event in events if not isinstance(event, PollFailed)] == [
        WaitStarted(REF),
        JobPolled(first, 1),
        JobPolled(first, 2),
        JobPolled(second, 4),
        JobChanged(second, first),
        JobPolled(third, 6),
        JobChanged(third, second),
        WaitEnded(REF, ended, None, 6, elapsed, lateness=events[-1].lateness, server_address="127.0.0.1"),
    ]
    assert events[-1].lateness == pytest.approx(4)  # two polls before the last one did not show the job


@pytest.mark.looptime
async def test_hook_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """A hook that raises is logged once; the wait and the other hooks go on."""
    events: list[object] = []

    def fail(_event: object) -> None:
        raise MineError

    async with Scripted(job(), job("completed")) as server, server.session(hooks=[fail, events.append]) as session:
        assert (await session.wait_for_job("job_1")).succeeded
    assert len(events) == 5
    assert [record.message.split(";")[0] for record in caplog.records] == ["a hook raised MineError"]


@pytest.mark.looptime
@pytest.mark.parametrize(("when", "polls"), [(1, [PollFailed]), (3, [JobPolled]), (5, [JobPolled, PollFailed])])
async def test_cancelled(when: float, polls: list[type]) -> None:
    """Cancelling leaves at once, in a poll and between polls; each poll gives one event, and nothing is asked after."""
    events: list[Any] = []
    reads = Reads(after_2_s, never)
    async with (
        Emulator() as emulator,
        emulator.session(get_job=reads, policy=every(2), hooks=[events.append]) as session,
    ):
        waiting = asyncio.ensure_future(session.wait_for_job(REF))
        await asyncio.sleep(when)
        waiting.cancel()
        began = clock()
        with pytest.raises(asyncio.CancelledError) as caught:
            await waiting
        assert clock() == began
        await asyncio.sleep(60)
    assert len(reads.at) == len(polls)
    assert [type(event) for event in events] == [WaitStarted, *polls, WaitEnded]
    assert isinstance(events[-1].error, asyncio.CancelledError)
    assert caught.value.__context__ is None


@pytest.mark.looptime
async def test_cancelled_over_http() -> None:
    """A cancelled wait leaves no task, and closes the connection of the poll it was in."""
    async with (
        Scripted(job(), Reply(then="hang"), job("completed")) as server,
        server.session(policy=every(1)) as session,
    ):
        waiting = asyncio.ensure_future(session.wait_for_job("job_1"))
        await asyncio.sleep(5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(60)
        assert len(server.requests) == 2
        assert (await session.get_job("job_1")).succeeded
    assert [request.connection for request in server.requests] == [1, 1, 2]
    assert asyncio.all_tasks() == {asyncio.current_task()}


Refused = Callable[[Reads], Coroutine[Any, Any, AgentJob]]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda reads: wait_for_job("job_1", get_job=reads), "job"),  # type: ignore[arg-type]  # refused at run time, too
        (lambda reads: wait_for_job(None, get_job=reads), "job"),  # type: ignore[arg-type]  # as above
        (lambda _: wait_for_job(REF, get_job=None), "get_job"),  # type: ignore[arg-type]  # as above
        (lambda reads: wait_for_job(REF, get_job=reads, policy=5), "policy"),  # type: ignore[arg-type]  # as above
        (lambda reads: wait_for_job(REF, get_job=reads, timeout=0), "timeout"),
        (lambda reads: wait_for_job(REF, get_job=reads, timeout=-1), "timeout"),
        (lambda reads: wait_for_job(REF, get_job=reads, timeout=True), "timeout"),
        (lambda reads: wait_for_job(REF, get_job=reads, timeout=float("nan")), "timeout"),
        (lambda reads: wait_for_job(REF, get_job=reads, timeout=float("inf")), "timeout"),
        (lambda reads: wait_for_job(REF, get_job=reads, timeout="5"), "timeout"),  # type: ignore[arg-type]  # as above
    ],
)
async def test_bad_arguments(call: Refused, name: str) -> None:
    """An argument that makes no sense is refused by name before anything is read."""
    reads = Reads(DONE)
    with pytest.raises(InvalidInputError, match=f"^{name} must be"):
        await call(reads)
    assert reads.at == []


@pytest.mark.looptime
async def test_rate_limited_for_ever() -> None:
    """A service that answers 429 without end is asked at its own pace until the deadline, never faster."""
    async with Scripted(reply(429, None, ("Retry-After", "10"))) as server, server.session(policy=every(1)) as session:
        with pytest.raises(WaitTimeoutError) as caught:
            await session.wait_for_job("job_1", timeout=95)
    assert isinstance(caught.value.last_error, RateLimitedError)
    assert len(server.requests) == 10


@pytest.mark.looptime
async def test_unknown_status_of_a_job_that_was_given(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown status is warned of once, even when each poll returns the very object with which the wait began."""
    job = AgentJob("job_1", "docs", "reviewing")
    ended = await wait_for_job(job, get_job=Polled(job, job, "completed"), policy=every(1))
    assert ended.succeeded
    assert [record.levelname for record in caplog.records] == ["WARNING"]
