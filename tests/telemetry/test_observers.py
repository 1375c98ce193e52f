"""Hooks and callbacks of users: checked, and contained when they raise."""

import asyncio
import logging
from typing import Any

import pytest

from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry import JobPolled, RunEnded, RunStarted
from agentjobs_async.telemetry.observers import GuardedCallback, Hooks, RunEvents
from tests.rows import failures

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


def test_faulty_hook(caplog: pytest.LogCaptureFixture) -> None:
    """A hook that raises is logged once with its traceback, goes on being called, and disturbs no other."""
    errors = [ValueError("x"), asyncio.CancelledError(), GeneratorExit(), ExceptionGroup("g", [OSError()])]
    faulty, sound = [Recorder(error) for error in errors], Recorder()
    hooks = Hooks([*faulty, sound])
    for event in (JobPolled(JOB, 1), JobPolled(JOB, 2)):
        hooks.emit(event)
    assert [event.polls for event in sound.events] == [1, 2]
    assert [hook.events for hook in faulty] == [sound.events] * len(errors)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * len(errors)
    for error, record in zip(errors, caplog.records, strict=True):
        assert type(error).__name__ in record.message
        assert record.exc_info is not None


def test_leaving() -> None:
    """What ends the program is not held back."""
    for error in (KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)):
            GuardedCallback("a hook", Recorder(error))(None)


def test_no_hooks() -> None:
    """Without hooks there is nobody to make events for; hooks come in a sequence, and a bare one gets a hint."""
    assert not Hooks()
    assert Hooks([Recorder()])
    bare: list[Any] = [Recorder(), None, 7]
    words = r"^hooks must be a sequence of hooks, not \w+: put it into a list$"
    for hooks in bare:
        with pytest.raises(InvalidInputError, match=words):
            Hooks(hooks)


async def coroutine_function(event: Any) -> None: ...


def test_no_observer() -> None:
    """What can't be called, or would have to be awaited, is refused by its name."""

    def check(observer: Any, words: str) -> None:
        with pytest.raises(InvalidInputError, match=f"^on_update must be.*{words}|^on_update {words}"):
            GuardedCallback("on_update", observer)
        with pytest.raises(InvalidInputError, match=r"^a hook must be"):
            Hooks([observer])

    rows = [
        (None, "must be callable, not NoneType"),
        ("x", "must be callable, not str"),
        (coroutine_function, "plain function"),
        (Recorder, r"an instance, not the class itself: Recorder\(\)"),
    ]
    assert failures(check, *rows) == {}


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
