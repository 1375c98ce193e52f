"""Hooks, their events, and the logger."""

import asyncio
import logging
from typing import Any

import pytest
from attrs import fields
from attrs.exceptions import FrozenInstanceError

from agentjobs_async.errors import CreateOutcome, InvalidInputError, NotSentError, TransportError, WaitTimeoutError
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry import (
    CreateFailed,
    Event,
    GuardedCallback,
    Hooks,
    JobChanged,
    JobCreated,
    JobPolled,
    LoggingHook,
    PollFailed,
    StatusWarnings,
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


class Recorder:
    """A hook that keeps what it gets, and raises after that if it is told to."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.events: list[Any] = []
        self.error = error

    def __call__(self, event: Any, /) -> None:
        self.events.append(event)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    "error", [ValueError("x"), asyncio.CancelledError(), GeneratorExit(), ExceptionGroup("g", [OSError()])]
)
def test_faulty_hook(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """A hook that raises is logged once with its traceback, goes on being called, and disturbs no other."""
    faulty, sound = Recorder(error), Recorder()
    hooks = Hooks([faulty, sound])
    for event in (JobPolled(JOB, 1), JobPolled(JOB, 2)):
        hooks.emit(event)
    assert [event.polls for event in faulty.events] == [1, 2]
    assert sound.events == faulty.events
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert type(error).__name__ in record.message
    assert record.exc_info is not None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_leaving(error: BaseException) -> None:
    """What ends the program is not held back."""
    with pytest.raises(type(error)):
        GuardedCallback("a hook", Recorder(error))(None)


def test_each_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each faulty hook is logged, not just the first."""
    hooks = Hooks([Recorder(ValueError()), Recorder(KeyError())])
    hooks.emit(JobPolled(JOB, 1))
    hooks.emit(JobPolled(JOB, 2))
    assert len(caplog.records) == 2


def test_no_hooks() -> None:
    """Without hooks there is nobody to make events for."""
    assert not Hooks()
    assert Hooks([Recorder()])


@pytest.mark.parametrize("hooks", [Recorder(), None, 7], ids=lambda value: type(value).__name__)
def test_no_sequence(hooks: Any) -> None:
    """Hooks come in a sequence; a bare one is refused with a hint."""
    with pytest.raises(InvalidInputError, match=r"^hooks must be a sequence of hooks, not \w+: put it into a list$"):
        Hooks(hooks)


async def coroutine_function(event: Any) -> None: ...


@pytest.mark.parametrize(
    ("observer", "words"),
    [
        (None, "must be callable, not NoneType"),
        ("x", "must be callable, not str"),
        (coroutine_function, "plain function"),
        (Recorder, r"an instance, not the class itself: Recorder\(\)"),
    ],
)
def test_no_observer(observer: Any, words: str) -> None:
    """What can't be called, or would have to be awaited, is refused by its name."""
    with pytest.raises(InvalidInputError, match=f"^on_update must be.*{words}|^on_update {words}"):
        GuardedCallback("on_update", observer)
    with pytest.raises(InvalidInputError, match=r"^a hook must be"):
        Hooks([observer])


def test_unknown_status(caplog: pytest.LogCaptureFixture) -> None:
    """Each unknown status is warned about once, on one line, with the job's token; a known one is not."""
    warnings = StatusWarnings()
    for status in ("paused\n\x07", "paused\n\x07", "failed"):
        warnings.check(AgentJob("job 1", "docs", status))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == r"job docs/job%201 has the unknown status paused\n\x07: taken as not ended"


def test_flood_of_statuses(caplog: pytest.LogCaptureFixture) -> None:
    """A server that makes up ever new statuses gets a hundred warnings, and no memory beyond them."""
    warnings = StatusWarnings()
    for number in range(1000):
        warnings.check(AgentJob("job", "docs", f"paused {number}"))
    assert len(caplog.records) == 100
