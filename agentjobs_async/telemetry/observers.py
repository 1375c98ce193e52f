"""Users' callables for events and jobs: checked once, and called so that no error of theirs gets out."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from types import TracebackType
from typing import Any, Self

from agentjobs_async._validation import is_async
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry.contexts import call_apart, call_in
from agentjobs_async.telemetry.events import CreateStarted, Event, Hook, RunEnded, RunStarted
from agentjobs_async.telemetry.logging_hook import logger

__all__ = ["GuardedCallback", "Hooks", "RunEvents", "checked_observer"]


def checked_observer(name: str, observer: object) -> None:
    """Check a callable that is called with events or jobs; a coroutine function would never be awaited.

    Raises:
        InvalidInputError: `observer` is a class, not callable, or async.
    """
    if isinstance(observer, type):
        raise InvalidInputError(f"{name} must be an instance, not the class itself: {observer.__name__}()")
    if not callable(observer):
        raise InvalidInputError(f"{name} must be callable, not {type(observer).__name__}")
    if is_async(observer):
        raise InvalidInputError(f"{name} must be a plain function: to await something, start a task in it")


class GuardedCallback:
    """Calls a callable of the user's; contains its errors, and logs the first."""

    __slots__ = ("_logged", "_name", "_observer")

    def __init__(self, name: str, observer: Callable[..., Any]) -> None:
        checked_observer(name, observer)
        self._name = name
        self._observer = observer
        self._logged = False

    def __call__(self, *arguments: Any) -> Any:
        """Return what the observer returns; `None` if it raises."""
        try:
            return self._observer(*arguments)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a CancelledError would cancel a task that isn't its own
            if not self._logged:
                self._logged = True
                logger.warning(
                    "%s raised %s; it is still called, but further errors of it are not logged",
                    self._name,
                    type(error).__name__,
                    exc_info=error,
                )
            return None


class Hooks(tuple[GuardedCallback, ...]):  # noqa: SLOT001 - one per session; a tuple is tested for emptiness fastest
    """All hooks of one session or tracker, each contained. Falsy without hooks: callers then make no events.

    Attributes:
        server_address: The host of the service, for events; `None` where the jobs are read by a callable of the user's.

    Raises:
        InvalidInputError: A hook is a class, not callable, or async, or `hooks` is not iterable.
    """

    server_address: str | None
    _span_makers: tuple[GuardedCallback, ...]

    def __new__(cls, hooks: Sequence[Hook] = (), server_address: str | None = None) -> Self:
        """Check and contain `hooks`."""
        if not isinstance(hooks, Iterable):
            raise InvalidInputError(
                f"hooks must be a sequence of hooks, not {type(hooks).__name__}: put it into a list"
            )
        guarded = [(hook, GuardedCallback("a hook", hook)) for hook in hooks]
        made = super().__new__(cls, (callback for _, callback in guarded))
        made.server_address = server_address
        made._span_makers = tuple(callback for hook, callback in guarded if getattr(hook, "makes_spans", False))
        return made

    def emit(self, event: Event) -> None:
        """Call every hook with `event`, in the current context."""
        for hook in self:
            hook(event)

    def emit_span(self, event: CreateStarted | RunStarted | RunEnded) -> None:
        """Call the hooks that make spans with `event`, in the current context."""
        for hook in self._span_makers:
            hook(event)

    def emit_in(self, context: Context, event: Event) -> None:
        """Call every hook with `event`, in the context of the caller to whom the event belongs."""
        call_in(context, self.emit, event)

    def emit_apart(self, event: Event) -> None:
        """Call every hook with an event that belongs to no caller, in an empty context."""
        call_apart(self.emit, event)


class RunEvents:
    """Emits `RunStarted` when its block is entered, and `RunEnded` when it is left, with `job` or the block's error.

    The arguments of the call are those that the create is about to check.
    """

    def __init__(self, hooks: Hooks, project_id: object, label: object) -> None:
        self._hooks = hooks
        self._project_id = project_id if isinstance(project_id, str) else None
        self._label = label if isinstance(label, str) else None
        self._clock = asyncio.get_running_loop().time
        self._started = self._clock()
        self.job: AgentJob | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the call."""
        return self._clock() - self._started

    def __enter__(self) -> Self:
        if self._hooks:
            self._hooks.emit_span(RunStarted(self._project_id, self._label))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._hooks:
            self._hooks.emit_span(RunEnded(self._project_id, self.job, error, self.elapsed, self._label))
