"""Hooks, their events, and the logger."""

import asyncio
import logging

import pytest
from attrs import fields
from attrs.exceptions import FrozenInstanceError

from agentjobs_async.errors import CreateOutcome, NotSentError, TransportError, WaitTimeoutError
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry import (
    CreateFailed,
    Event,
    JobChanged,
    JobCreated,
    JobPolled,
    LoggingHook,
    PollFailed,
    WaitEnded,
    WaitStarted,
    logger,
)

JOB = AgentJob("job 1", "docs", "active")
DONE = AgentJob("job 1", "docs", "completed")
REF = JOB.ref

LOGGED: list[tuple[Event, int, str]] = [
    (JobCreated(JOB, 0.25), logging.INFO, "created docs/job%201 in 0.250 s"),
    (
        CreateFailed("my docs", CreateOutcome.NOT_SENT, NotSentError("nothing was sent: refused")),
        logging.WARNING,
        "create in my%20docs ended as not_sent: nothing was sent: refused",
    ),
    (
        CreateFailed("docs", CreateOutcome.UNKNOWN, asyncio.CancelledError()),
        logging.WARNING,
        "create in docs ended as unknown: CancelledError: CancelledError",
    ),
    (JobPolled(JOB, 3), logging.DEBUG, "poll 3 of docs/job%201: active"),
    (JobChanged(DONE, JOB), logging.INFO, "docs/job%201 went from active to completed"),
    (PollFailed(REF, TransportError("reset"), 4), logging.DEBUG, "poll 4 of docs/job%201 failed: reset"),
    (
        PollFailed(REF, ValueError("two\nlines\x1b[31m"), 4),
        logging.DEBUG,
        r"poll 4 of docs/job%201 failed: ValueError: two\nlines\x1b[31m",
    ),
    (WaitStarted(REF), logging.DEBUG, "wait for docs/job%201 started"),
    (
        WaitEnded(REF, DONE, None, 5, 61.0),
        logging.INFO,
        "wait for docs/job%201 ended after 61.0 s and 5 polls: completed",
    ),
    (
        WaitEnded(REF, None, TransportError("reset"), 5, 1.0),
        logging.WARNING,
        "wait for docs/job%201 ended after 1.0 s and 5 polls: reset",
    ),
    (
        WaitEnded(REF, None, WaitTimeoutError(REF, JOB, None, 5, 1.0), 5, 1.0),
        logging.INFO,
        "wait for docs/job%201 ended after 1.0 s and 5 polls: it did not end within 1.0 s (5 polls, last seen active)",
    ),
    (
        WaitEnded(REF, None, asyncio.CancelledError(), 5, 1.0),
        logging.INFO,
        "wait for docs/job%201 ended after 1.0 s and 5 polls: CancelledError: CancelledError",
    ),
    (
        JobChanged(AgentJob("j", "p", "odd\x1b[2J\n"), JOB),
        logging.INFO,
        r"p/j went from active to odd\x1b[2J\n",
    ),
]


@pytest.mark.parametrize(("event", "level", "text"), LOGGED)
def test_logging_hook(event: Event, level: int, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each event becomes one printable line under `agentjobs_async`, at the level of its weight."""
    with caplog.at_level(logging.DEBUG, "agentjobs_async"):
        LoggingHook()(event)
    assert caplog.record_tuples == [("agentjobs_async", level, text)]
    assert text.isprintable()


def test_silent_by_default() -> None:
    """The package's logger has a handler that does nothing, so that nothing is printed unasked."""
    assert logger.name == "agentjobs_async"
    assert any(isinstance(handler, logging.NullHandler) for handler in logger.handlers)


@pytest.mark.parametrize("event", [event for event, _, _ in LOGGED], ids=lambda event: type(event).__name__)
def test_events_are_frozen(event: Event) -> None:
    """An event is a frozen record: no hook can change what the next one sees."""
    with pytest.raises(FrozenInstanceError):
        setattr(event, fields(type(event))[0].name, None)
