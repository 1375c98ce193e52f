"""The hook that logs, and its logger."""

import asyncio
import logging

import pytest

from agentjobs_async.errors import CreateOutcome, NotSentError, TransportError, WaitTimeoutError
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry import (
    CreateFailed,
    CreateRetried,
    CreateStarted,
    Event,
    JobChanged,
    JobCreated,
    JobPolled,
    LoggingHook,
    PollFailed,
    RunEnded,
    RunStarted,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async.telemetry.observers import logger

JOB = AgentJob("job 1", "docs", "active")
DONE = AgentJob("job 1", "docs", "completed")
REF = JOB.ref

LOGGED: list[tuple[Event, int, str]] = [
    (RunStarted("my docs"), logging.DEBUG, "run in my%20docs started"),
    (RunEnded("docs", JOB, None, 61.0), logging.DEBUG, "run in docs ended after 61.0 s: active"),
    (RunEnded(None, None, TransportError("reset"), 1.0), logging.DEBUG, "run in  ended after 1.0 s: reset"),
    (CreateStarted("docs", "api.example.com", label="order 17"), logging.DEBUG, "create in docs started [order 17]"),
    (JobCreated(JOB, 0.25), logging.INFO, "created docs~.job~201 in 0.250 s"),
    (
        CreateFailed("my docs", CreateOutcome.NOT_SENT, NotSentError("nothing was sent: refused")),
        logging.WARNING,
        "create in my%20docs ended as not_sent: nothing was sent: refused",
    ),
    (
        CreateFailed("docs", CreateOutcome.UNKNOWN, asyncio.CancelledError()),
        logging.INFO,
        "create in docs ended as unknown: CancelledError: CancelledError",
    ),
    (
        CreateRetried("docs", NotSentError("nothing was sent: refused"), 2, 0.25, "ab12", label="order 17"),
        logging.INFO,
        "create in docs is tried again in 0.2 s, after try 2: nothing was sent: refused [order 17]",
    ),
    (JobPolled(JOB, 3), logging.DEBUG, "poll 3 of docs~.job~201: active"),
    (JobChanged(DONE, JOB), logging.INFO, "docs~.job~201 went from active to completed"),
    (PollFailed(REF, TransportError("reset"), 4), logging.DEBUG, "poll 4 of docs~.job~201 failed: reset"),
    (
        PollFailed(REF, ValueError("two\nlines\x1b[31m"), 4),
        logging.DEBUG,
        r"poll 4 of docs~.job~201 failed: ValueError: two\nlines\x1b[31m",
    ),
    (WaitStarted(REF), logging.DEBUG, "wait for docs~.job~201 started"),
    (
        WaitEnded(REF, DONE, None, 5, 61.0),
        logging.INFO,
        "wait for docs~.job~201 ended after 61.0 s and 5 polls: completed",
    ),
    (
        WaitEnded(REF, None, TransportError("reset"), 5, 1.0),
        logging.WARNING,
        "wait for docs~.job~201 ended after 1.0 s and 5 polls: reset",
    ),
    (
        WaitEnded(REF, None, WaitTimeoutError(REF, JOB, None, 5, 1.0), 5, 1.0),
        logging.INFO,
        "wait for docs~.job~201 ended after 1.0 s and 5 polls: it did not end within 1 s (5 polls, last seen active)",
    ),
    (
        WaitEnded(REF, None, asyncio.CancelledError(), 5, 1.0),
        logging.INFO,
        "wait for docs~.job~201 ended after 1.0 s and 5 polls: CancelledError: CancelledError",
    ),
    (JobChanged(AgentJob("j", "p", "odd\x1b[2J\n"), JOB), logging.INFO, r"p~.j went from active to odd\x1b[2J\n"),
]


def test_logging_hook(caplog: pytest.LogCaptureFixture) -> None:
    """Each event becomes one printable line under `agentjobs_async`, at the level of its weight."""
    with caplog.at_level(logging.DEBUG, "agentjobs_async"):
        for event, _, _ in LOGGED:
            LoggingHook()(event)
    assert caplog.record_tuples == [("agentjobs_async", level, text) for _, level, text in LOGGED]
    assert [text for text in caplog.messages if not text.isprintable()] == []


def test_silent_by_default() -> None:
    """The package's logger has a handler that does nothing, so that nothing is printed unasked."""
    assert logger.name == "agentjobs_async"
    assert any(isinstance(handler, logging.NullHandler) for handler in logger.handlers)


EXTRAS: list[tuple[Event, str | None]] = [
    (RunStarted("docs", label="order-17"), None),
    (RunEnded("docs", JOB, None, 1.0, label="order-17"), "docs~.job~201"),
    (RunEnded("docs", None, TransportError("reset"), 1.0, label="order-17"), None),
    (CreateStarted("docs", "api.example.com", label="order-17"), None),
    (CreateRetried("docs", NotSentError("refused"), 1, 0.1, "ab12", label="order-17"), None),
    (CreateFailed("docs", CreateOutcome.UNKNOWN, asyncio.CancelledError(), label="order-17"), None),
    (JobCreated(JOB, 0.25, label="order-17"), "docs~.job~201"),
    (JobPolled(JOB, 3, label="order-17"), "docs~.job~201"),
    (JobChanged(DONE, JOB, label="order-17"), "docs~.job~201"),
    (PollFailed(REF, TransportError("reset"), 4, label="order-17"), "docs~.job~201"),
    (WaitStarted(REF, label="order-17"), "docs~.job~201"),
    (WaitEnded(REF, DONE, None, 5, 61.3, label="order-17"), "docs~.job~201"),
]


def test_attributes_of_records(caplog: pytest.LogCaptureFixture) -> None:
    """Each record has the event, the project, the job's token and the label, for logs in JSON."""
    with caplog.at_level(logging.DEBUG, "agentjobs_async"):
        for event, _ in EXTRAS:
            LoggingHook()(event)
    named = [[vars(record)[name] for name in ("event", "project", "job", "label")] for record in caplog.records]
    assert named == [[type(event).__name__, "docs", job, "order-17"] for event, job in EXTRAS]
    assert [text for text in caplog.messages if not text.endswith(" [order-17]")] == []


def test_no_control_characters_in_records(caplog: pytest.LogCaptureFixture) -> None:
    """What a record says of a job made by hand, or of a label, is printable."""
    with caplog.at_level(logging.INFO, "agentjobs_async"):
        LoggingHook()(JobCreated(AgentJob("j\x1b", "p\n", "active"), 0.25, label="\u202e"))
    attributes = vars(caplog.records[0])
    assert [attributes[name] for name in ("project", "job", "label")] == [r"p\n", "p~0A~.j~1B", r"\u202e"]
