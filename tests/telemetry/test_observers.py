"""Hooks and callbacks of users: checked, and contained when they raise."""

import asyncio
import logging
from typing import Any

import pytest

from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry import JobPolled, RunEnded, RunStarted
from agentjobs_async.telemetry.observers import GuardedCallback, Hooks, RunEvents

JOB = AgentJob("job 1", "docs", "active")


class Recorder:
    """A hook that keeps what it gets, and raises after that if it is told to."""

    def __init__(self, error: BaseException | None = None, *, makes_spans: bool = False) -> None:
        self.events: list[Any] = []
        self.error = error
        self.makes_spans = makes_spans

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


async def test_events_of_a_run() -> None:
    """A run begins and ends with an event, with its job or with the error that left its block, for hooks that ask."""
    plain, recorder = Recorder(), Recorder(makes_spans=True)
    hooks = Hooks([plain, recorder])
    with RunEvents(hooks, "docs", "order-17") as run:
        run.job = JOB
    with pytest.raises(ZeroDivisionError) as caught, RunEvents(hooks, 7, None):
        raise ZeroDivisionError
    started, ended, _, failed = recorder.events
    assert started == RunStarted("docs", "order-17")
    assert ended == RunEnded("docs", JOB, None, ended.elapsed, "order-17")
    assert failed == RunEnded(None, None, caught.value, failed.elapsed)
    assert plain.events == []
