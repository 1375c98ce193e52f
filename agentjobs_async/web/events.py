"""The changes of a job as events: server-sent ones as bytes, or dicts for web sockets."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from hashlib import sha256
from typing import Any, Final, Protocol, TypeVar, cast

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, InvalidInputError, JobRef, JobTracker
from agentjobs_async._validation import checked_seconds
from agentjobs_async.web.answers import http_answer

__all__ = ["job_events", "sse_events"]

_logger: Final = logging.getLogger("agentjobs_async.web")

HEARTBEAT: Final = b": heartbeat\n\n"
"""A comment as a frame: browsers ignore it, and proxies see that the connection is in use."""
_ID_DIGITS: Final = 16  # of a state's hash: enough that two states of one job never share an id


class _State(Protocol):
    """A job, or the entry of a durable one."""

    @property
    def is_terminal(self) -> bool: ...

    def to_dict(self) -> dict[str, Any]: ...


class _Entry(Protocol):
    """The entry of a durable job."""

    def to_dict(self, *, user: str) -> dict[str, Any]: ...


_Document = Callable[[_State], dict[str, Any]]
"""Returns what is sent of a state."""
_Changes = AbstractAsyncContextManager[AsyncIterator[_State]]


class _Updating(Protocol):
    """A session, a tracker, or durable jobs, which name a job by its key."""

    def updates(self, job: Any, /, *, timeout: float | None = ...) -> _Changes: ...


_Session = TypeVar("_Session", bound=_Updating)
"""The session's own type: for a parameter that is the protocol itself, mypy does not infer the type of `app[KEY]`."""


def sse_events(
    session: _Session,
    job: AgentJob | JobRef | str,
    *,
    heartbeat: float = 15.0,
    last_event_id: str | None = None,
    timeout: float | None = 1800.0,
    user: str | None = None,
) -> AsyncGenerator[bytes]:
    r"""Return the state of a job and each change until its end, as frames of server-sent events.

    Every frame is ``id: …\nevent: …\ndata: …\n\n``. The events are those of `job_events`; `data` is their JSON. A
    browser's EventSource connects again when a stream ends: close it at `job_end`, and at `job_error` too unless the
    job may continue.

    Leaving the iterator ends the wait at once: by cancelling the task that iterates, or by `aclose()`.

    Args:
        session: A session or a tracker; or `DurableJobs`, which follow a job by its key, from planned to the end.
        job: What its `updates` accepts: a bare id on a session only, a key on `DurableJobs`.
        heartbeat: Seconds of silence, above 0, after which a comment is sent. Keep it below the time-outs of proxies.
        last_event_id: The request's Last-Event-ID header: if the first state has this id, it is not sent again, unless
            it is an end. `None`, or an unknown id, sends every state.
        timeout: Seconds above 0; `None` waits for ever.
        user: Of `DurableJobs`, the user for whom the events are: as in `DurableEntry.to_dict`, they name the job by the
            user's own key. `None` leaves every key as it is.

    Raises:
        InvalidInputError: An argument is invalid. Raised at once; all other errors are events.
    """
    checked_seconds("heartbeat", heartbeat)
    last_event_id, document = _checked_event_id(last_event_id), _document_for(session, user)
    return _frames(_events(session.updates(job, timeout=timeout), heartbeat, last_event_id, document))


def job_events(
    session: _Session,
    job: AgentJob | JobRef | str,
    *,
    last_event_id: str | None = None,
    timeout: float | None = 1800.0,
    user: str | None = None,
) -> AsyncGenerator[dict[str, Any]]:
    """Return the state of a job and each change until its end, as dicts of plain JSON types, for web sockets.

    ===========  =======================================  =========================================
    `event`      `id`                                     `data`
    ===========  =======================================  =========================================
    `job`        of this state, the same after a restart  the job by `to_dict`
    `job_end`    as above                                 the job, which has ended; the last event
    `job_error`  `None`                                   the body of `http_answer`; the last event
    ===========  =======================================  =========================================

    An error that is not of this package is logged with its traceback, by the logger `agentjobs_async.web`.

    Of `DurableJobs`, `data` is the entry by `DurableEntry.to_dict`; an `unknown` one is a `job`: it may be settled yet.

    The arguments are those of `sse_events`. There are no heartbeats: web sockets have pings of their own, and only one
    that is read as well, by another task, tells that its client has left.

    Raises:
        InvalidInputError: An argument is invalid. Raised at once; all other errors are events.
    """
    last_event_id, document = _checked_event_id(last_event_id), _document_for(session, user)
    return _without_heartbeats(_events(session.updates(job, timeout=timeout), None, last_event_id, document))


async def _frames(events: AsyncGenerator[dict[str, Any] | None]) -> AsyncGenerator[bytes]:
    async with aclosing(events):  # else it would be left to the garbage collector, and its wait would continue
        async for event in events:
            yield HEARTBEAT if event is None else frame(event["event"], json.dumps(event["data"]), event["id"])


async def _without_heartbeats(events: AsyncGenerator[dict[str, Any] | None]) -> AsyncGenerator[dict[str, Any]]:
    async with aclosing(events):
        async for event in events:
            if event is not None:
                yield event


async def _events(
    updates: _Changes, heartbeat: float | None, last_event_id: str | None, document: _Document
) -> AsyncGenerator[dict[str, Any] | None]:
    """Return the events; `None` after each `heartbeat` seconds without one, if that is not `None`."""
    error: Exception | None = None
    try:
        async with updates as changes:
            async for state in _with_silences(changes, heartbeat):
                event = None if state is None else _event(state, document(state))
                if event is None or event["event"] == "job_end" or event["id"] != last_event_id:
                    yield event
                if event is not None:
                    last_event_id = event["id"]  # a change that is not shown is not sent either
    except Exception as raised:  # noqa: BLE001 - the response has begun: what ended the wait can be told only in it
        error = raised
    if error is not None:
        log = None if isinstance(error, AgentJobsError) else _logger  # a fault of the program is seen nowhere else
        yield {"event": "job_error", "id": None, "data": http_answer(error, log=log).body}


async def _with_silences(changes: AsyncIterator[_State], heartbeat: float | None) -> AsyncGenerator[_State | None]:
    """Return the changes, and `None` after each `heartbeat` seconds without one."""
    while True:
        try:
            async with asyncio.timeout(heartbeat) as silence:
                state: _State | None = await anext(changes)  # cancelling it loses no change
        except TimeoutError:
            if not silence.expired():
                raise  # of the wait, or of the caller's own `get_job`
            state = None
        except StopAsyncIteration:
            return
        yield state


def _document_for(session: _Updating, user: str | None) -> _Document:
    """Return what makes the document of a state.

    Raises:
        InvalidInputError: A user is named whose keys the session does not know.
    """
    if user is None:
        return lambda state: state.to_dict()
    if isinstance(session, AgentJobsSession | JobTracker):
        raise InvalidInputError("user is for DurableJobs, whose keys may be those of users: leave it out")
    return lambda state: cast("_Entry", state).to_dict(user=user)


def _event(state: _State, document: dict[str, Any]) -> dict[str, Any]:
    digest = sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return {"event": "job_end" if state.is_terminal else "job", "id": digest[:_ID_DIGITS], "data": document}


def frame(event: str, data: str, event_id: str | None = None) -> bytes:
    """Return a server-sent event as bytes. None of its texts may have a line break."""
    name = "" if event_id is None else f"id: {event_id}\n"
    return f"{name}event: {event}\ndata: {data}\n\n".encode()


def _checked_event_id(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidInputError(f"last_event_id must be a string or None, not {type(value).__name__}")
