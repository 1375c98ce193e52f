"""Users' callables for events and jobs: checked once, and called so that no error of theirs gets out."""

import logging
from collections.abc import Callable, Iterable
from contextvars import Context
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from agentjobs_async._deferred import deferred
from agentjobs_async._validation import is_async
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.telemetry.no_hooks import Hooks

if TYPE_CHECKING:  # loaded with the first hook
    from agentjobs_async.telemetry.events import Event
else:
    Event = deferred("agentjobs_async.telemetry.events", "Event")

__all__ = ["GuardedCallback", "Hook", "SpanHook", "call_in", "checked_observer", "hooks_of", "logger"]

T = TypeVar("T")

logger: Final = logging.getLogger("agentjobs_async")
logger.addHandler(logging.NullHandler())


class Hook(Protocol):
    """Called with each event as it happens, in the event loop, so that it must be quick.

    What a hook raises is logged once and has no other effect.

    Events of a create come in the caller's context; those of a wait, in a copy of the caller's context from the wait's
    start. `JobPolled`, `JobChanged` and `PollFailed` belong to the job, for which many callers may wait: they come in
    an empty context, with no context variable set.
    """

    def __call__(self, event: "Event", /) -> object:
        """Process `event`; the returned value is ignored."""
        ...


@runtime_checkable
class SpanHook(Hook, Protocol):
    """A hook that makes spans: it is also called with `RunStarted`, `CreateStarted` and `RunEnded`.

    These only repeat what other events say, at the moments at which a span must begin and end.

    Attributes:
        makes_spans: Whether it makes spans; if not, it is called as any other hook. Each session or tracker reads it
            once.
    """

    makes_spans: bool


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
        except BaseException as error:
            if not self._logged:
                self._logged = True
                logger.warning(
                    "%s raised %s; it is still called, but further errors of it are not logged",
                    self._name,
                    type(error).__name__,
                    exc_info=error,
                )
            return None


def call_in(context: Context, call: Callable[[T], object], value: T) -> None:
    """Call `call` with `value` in `context`, or in a copy while something runs in it already.

    `call` must contain what its own callback raises.
    """
    try:
        context.run(call, value)
    except RuntimeError:  # entered already: a callback that runs in it ended its own wait, say
        context.copy().run(call, value)


def hooks_of(hooks: object, server_address: str | None = None) -> Hooks:
    """Return what calls the hooks of a session or tracker; without hooks, what makes no event.

    Raises:
        InvalidInputError: A hook is a class, not callable, or async, or `hooks` is not iterable.
    """
    if not isinstance(hooks, Iterable):
        raise InvalidInputError(f"hooks must be a sequence of hooks, not {type(hooks).__name__}: put it into a list")
    given = tuple(hooks)
    if not given:
        return Hooks()
    made: Hooks = import_module("agentjobs_async.telemetry.hooks").EventHooks(given, server_address)  # loads the events
    return made
