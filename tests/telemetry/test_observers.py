"""Hooks and callbacks of users: checked, and contained when they raise."""

import asyncio
import logging
from contextvars import Context, ContextVar
from functools import partial
from inspect import signature
from typing import Any
from unittest.mock import Mock

import pytest

from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry import JobChanged, JobPolled, PollFailed, RunEnded, RunStarted
from agentjobs_async.telemetry.hooks import EventHooks
from agentjobs_async.telemetry.no_hooks import Hooks
from agentjobs_async.telemetry.observers import GuardedCallback, call_in, hooks_of
from tests.rows import failures

JOB = AgentJob("job 1", "docs", "active")
ENDED = AgentJob("job 1", "docs", "completed")
NAME: ContextVar[str] = ContextVar("NAME")


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
    hooks = EventHooks([*faulty, sound], None)
    for number in (1, 2):
        hooks.polled(JOB, None, number, 0.0, None, None)
    assert [event.poll_number for event in sound.events] == [1, 2]
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
    """Without hooks no event is made; hooks come in a sequence, and a bare one gets a hint."""
    assert type(hooks_of([])) is Hooks
    assert type(hooks_of([Recorder()])) is EventHooks
    bare: list[Any] = [Recorder(), None, 7]
    words = r"^hooks must be a sequence of hooks, not \w+: put it into a list$"
    for hooks in bare:
        with pytest.raises(InvalidInputError, match=words):
            hooks_of(hooks)


async def coroutine_function(event: Any) -> None: ...


def test_no_observer() -> None:
    """What can't be called, or would have to be awaited, is refused by its name."""

    def check(observer: Any, words: str) -> None:
        with pytest.raises(InvalidInputError, match=f"^on_update must be.*{words}|^on_update {words}"):
            GuardedCallback("on_update", observer)
        with pytest.raises(InvalidInputError, match=r"^a hook must be"):
            hooks_of([observer])

    rows = [
        (None, "must be callable, not NoneType"),
        ("x", "must be callable, not str"),
        (coroutine_function, "plain function"),
        (Recorder, r"an instance, not the class itself: Recorder\(\)"),
    ]
    assert failures(check, *rows) == {}


def test_counted_polls() -> None:
    """A hook of the package that counts polls is called with ends, changes and failures, and counts the other polls."""
    counted: list[str] = []

    class Counting(Recorder):
        def _count_poll(self, project_id: str) -> None:
            counted.append(project_id)

    plain, counting, mock = Recorder(), Counting(), Mock()
    hooks = EventHooks([plain, counting, mock], None)
    hooks.polled(JOB, None, 1, 0.0, None, None)
    hooks.poll_failed(JOB.ref, ValueError("x"), 2, 0.0, None)
    hooks.polled(ENDED, JOB, 3, 0.0, None, 1.0)
    assert [type(event) for event in plain.events] == [JobPolled, PollFailed, JobPolled, JobChanged]
    assert (counting.events, counted) == (plain.events[1:], ["docs"])
    assert [call.args[0] for call in mock.call_args_list] == plain.events


async def test_events_of_a_run() -> None:
    """A run begins and ends with an event, with its job or with the error that left its block, for hooks that ask."""
    plain, recorder = Recorder(), Recorder(makes_spans=True)
    hooks = EventHooks([plain, recorder], None)
    assert await hooks.run("docs", "order-17", asyncio.sleep(0, JOB)) is JOB
    with pytest.raises(ValueError, match="x") as caught:
        await hooks.run(7, None, failing())
    started, ended, _, failed = recorder.events
    assert started == RunStarted("docs", label="order-17")
    assert ended == RunEnded("docs", JOB, None, ended.elapsed, label="order-17")
    assert failed == RunEnded(None, None, caught.value, failed.elapsed)
    assert plain.events == []


async def test_what_is_reported_without_hooks() -> None:
    """Without hooks all reports can be made, and a run gives what its work gives."""
    none, ref = Hooks(), JOB.ref
    reports = {name for name, value in vars(EventHooks).items() if not name.startswith("_") and callable(value)}
    assert reports == {name for name in vars(Hooks) if not name.startswith("_")}
    for name in reports:
        assert signature(getattr(Hooks, name)) == signature(getattr(EventHooks, name))
    none.wait_started("a wait", ref, None)
    none.wait_ended("a wait", ref, ENDED, 1, 0.0, None, shared=False)
    none.polled(JOB, None, 1, 0.0, None, None)
    assert await none.run("docs", None, asyncio.sleep(0, JOB)) is JOB
    with pytest.raises(ValueError, match="x"):
        await none.run("docs", None, failing())


async def failing() -> AgentJob:
    raise ValueError("x")


def test_call_within_its_own_call() -> None:
    """A call that comes while its context is in use sees the same variables, however the calls are nested."""
    context, other, seen = Context(), Context(), list[str | None]()

    def nested(calls: list[Any]) -> None:
        if calls:
            calls[0](nested, calls[1:])
        else:
            seen.append(NAME.get())

    for each, name in ((context, "mine"), (other, "other")):
        call_in(each, NAME.set, name)  # what a call sets stays there
    call_in(context, nested, [partial(call_in, context)])
    call_in(context, nested, [partial(call_in, other), partial(call_in, context)])
    assert (seen, NAME.get(None)) == (["mine", "mine"], None)
