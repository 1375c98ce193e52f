"""Users' callables for events and jobs: checked once, and called so that no error of theirs gets out."""

from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from typing import Any, Self

from agentjobs_async._validation import is_async
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.telemetry.contexts import call_apart, call_in
from agentjobs_async.telemetry.events import Event, Hook
from agentjobs_async.telemetry.logging_hook import logger

__all__ = ["GuardedCallback", "Hooks", "checked_observer"]


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
    """Calls a user's observer; contains its errors, and logs the first."""

    __slots__ = ("_logged", "_name", "_observer")

    def __init__(self, name: str, observer: Callable[[Any], object]) -> None:
        checked_observer(name, observer)
        self._name = name
        self._observer = observer
        self._logged = False

    def __call__(self, value: Any) -> None:
        """Call the observer with `value`."""
        try:
            self._observer(value)
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


class Hooks(tuple[GuardedCallback, ...]):
    """All hooks of one session or tracker, each contained. Falsy without hooks: callers then make no events.

    Raises:
        InvalidInputError: A hook is a class, not callable, or async, or `hooks` is not iterable.
    """

    __slots__ = ()

    def __new__(cls, hooks: Sequence[Hook] = ()) -> Self:
        """Check and contain `hooks`."""
        if not isinstance(hooks, Iterable):
            raise InvalidInputError(
                f"hooks must be a sequence of hooks, not {type(hooks).__name__}: put it into a list"
            )
        return super().__new__(cls, (GuardedCallback("a hook", hook) for hook in hooks))

    def emit(self, event: Event) -> None:
        """Call every hook with `event`, in the current context."""
        for hook in self:
            hook(event)

    def emit_in(self, context: Context, event: Event) -> None:
        """Call every hook with `event`, in the context of the caller to whom the event belongs."""
        call_in(context, self.emit, event)

    def emit_apart(self, event: Event) -> None:
        """Call every hook with an event that belongs to no caller, in an empty context."""
        call_apart(self.emit, event)
