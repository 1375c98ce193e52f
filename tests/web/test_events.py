"""The changes of a job as events: what is sent, when it ends, and that leaving leaves at once."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import pytest
from attrs import evolve
from tenacity import retry_never, wait_fixed

from agentjobs_async import AgentJob, InvalidInputError, JobRef, JobTracker, PollPolicy
from agentjobs_async.web import job_events, sse_events
from tests.polled import REF
from tests.until import until

pytestmark = pytest.mark.looptime

ACTIVE = AgentJob("job_1", "docs", "active")
COMPLETED = AgentJob("job_1", "docs", "completed", model="a\nb")
FAST = PollPolicy(wait=wait_fixed(0.01))


def tracker_of(*states: AgentJob) -> JobTracker:
    """Return a tracker whose polls show one state after the other, then always the last."""
    left = list(states)

    async def get_job(_ref: JobRef) -> AgentJob:
        await asyncio.sleep(0)
        return left.pop(0) if len(left) > 1 else left[0]

    return JobTracker(get_job, policy=FAST)


def parsed(frame: bytes) -> dict[str, Any]:
    """Read a frame as a browser does."""
    assert frame.endswith(b"\n\n")
    fields = dict(line.split(": ", 1) for line in frame.decode()[:-2].split("\n"))
    return fields | {"data": json.loads(fields["data"])}


async def test_dicts_for_web_sockets() -> None:
    """The same events come as dicts, of which none breaks a line of the frames."""
    async with tracker_of(ACTIVE, COMPLETED) as tracker:
        events = [event async for event in job_events(tracker, REF)]
    assert [(event["event"], event["data"]) for event in events] == [
        ("job", ACTIVE.to_dict()),
        ("job_end", COMPLETED.to_dict()),
    ]
    async with tracker_of(ACTIVE, COMPLETED) as tracker:
        frames = [parsed(frame) async for frame in sse_events(tracker, REF)]
    assert frames == events


async def test_last_event_id() -> None:
    """The state that the client has is not sent first, but for an end: the client would connect for ever."""
    async with tracker_of(ACTIVE, COMPLETED) as tracker:
        first, last = [event async for event in job_events(tracker, REF)]
    async with tracker_of(ACTIVE, COMPLETED) as tracker:
        assert [event async for event in job_events(tracker, REF, last_event_id=first["id"])] == [last]
    async with tracker_of(COMPLETED) as tracker:
        assert [event async for event in job_events(tracker, REF, last_event_id=last["id"])] == [last]
    async with tracker_of(ACTIVE, COMPLETED) as tracker:
        assert [event async for event in job_events(tracker, REF, last_event_id="other")] == [first, last]
    states = [ACTIVE, evolve(ACTIVE, status="paused"), ACTIVE, COMPLETED]
    async with tracker_of(*states) as tracker:
        later = [event async for event in job_events(tracker, REF, last_event_id=first["id"])]
    assert [event["data"] for event in later] == [state.to_dict() for state in states[1:]]


async def test_heartbeats() -> None:
    """A comment comes after each silence, and changes still come after it."""
    states = [ACTIVE]

    async def get_job(_ref: JobRef) -> AgentJob:
        await asyncio.sleep(0)
        return states[-1]

    async with JobTracker(get_job, policy=FAST) as tracker:
        frames = sse_events(tracker, REF, heartbeat=0.02)
        assert parsed(await anext(frames))["event"] == "job"
        assert [await anext(frames) for _ in range(3)] == [b": heartbeat\n\n"] * 3
        states.append(COMPLETED)
        rest = [frame async for frame in frames]
    assert parsed(rest[-1])["event"] == "job_end"
    assert set(rest[:-1]) <= {b": heartbeat\n\n"}


async def test_errors_are_events() -> None:
    """The error that ends a wait is told as an answer to end users, and is the last event."""
    async with tracker_of(ACTIVE) as tracker:
        last = parsed([frame async for frame in sse_events(tracker, REF, timeout=0.05, heartbeat=0.01)][-1])
        assert "id" not in last
        assert (last["event"], last["data"]["error"]) == ("job_error", "not_ended")
        assert last["data"]["job"] == ACTIVE.to_dict()
        events = job_events(tracker, REF)
        assert (await anext(events))["event"] == "job"
        await tracker.aclose()
        assert [event["data"]["error"] async for event in events] == ["restarting"]


async def test_foreign_error_is_an_event(caplog: pytest.LogCaptureFixture) -> None:
    """What a get_job of the user's raises is told as an internal error, without its text; the log has its traceback."""
    errors = [LookupError("secret"), TimeoutError("secret")]

    async def get_job(_ref: JobRef) -> AgentJob:
        raise errors.pop()

    while errors:
        caplog.clear()
        async with JobTracker(get_job, policy=PollPolicy(retry=retry_never)) as tracker:
            events = [event async for event in job_events(tracker, REF)]
        assert [event["data"]["error"] for event in events] == ["internal"]
        assert "secret" not in str(events)
        (record,) = [record for record in caplog.records if record.name == "agentjobs_async.web"]
        assert (record.levelname, record.exc_info is not None) == ("ERROR", True)


async def test_error_of_ours_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An error of ours is an event, and no line in the log."""
    async with tracker_of(ACTIVE) as tracker:
        assert [event["event"] async for event in job_events(tracker, REF, timeout=0.05)][-1] == "job_error"
    assert [record for record in caplog.records if record.name == "agentjobs_async.web"] == []


@pytest.mark.parametrize("events", [sse_events, job_events])
async def test_aclose_leaves_at_once(events: Callable[..., AsyncGenerator[object]]) -> None:
    """After `aclose` nothing waits for the job."""
    async with tracker_of(ACTIVE) as tracker:
        stream = events(tracker, REF)
        await anext(stream)
        await stream.aclose()
        assert tracker.stats().jobs == 0


@pytest.mark.parametrize("events", [sse_events, job_events])
async def test_cancel_leaves_at_once(events: Callable[..., AsyncGenerator[object]]) -> None:
    """After the task that iterates was cancelled, nothing waits for the job."""
    async with tracker_of(ACTIVE) as tracker:
        stream = events(tracker, REF)
        await anext(stream)
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert tracker.stats().jobs == 0


async def test_dropped_iterator_leaves() -> None:
    """An iterator that a framework only drops leaves its wait too."""
    async with tracker_of(ACTIVE) as tracker:
        stream = sse_events(tracker, REF)
        await anext(stream)
        del stream
        await until(lambda: not tracker.stats().jobs)
        assert tracker.stats().jobs == 0


async def test_invalid_arguments_are_raised_at_once() -> None:
    """An invalid argument is raised by the call, while a handler can still answer with a status."""
    async with tracker_of(ACTIVE) as tracker:
        with pytest.raises(InvalidInputError, match="heartbeat"):
            sse_events(tracker, REF, heartbeat=0)
        with pytest.raises(InvalidInputError, match="last_event_id"):
            sse_events(tracker, REF, last_event_id=1)  # type: ignore[arg-type]  # the wrong type is the test
        with pytest.raises(InvalidInputError, match="timeout"):
            job_events(tracker, REF, timeout=-1)
        with pytest.raises(InvalidInputError, match="JobRef"):
            job_events(tracker, "docs~.job_1")
