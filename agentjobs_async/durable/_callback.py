"""A user's callback, plain or async: contained, and the first error of each type logged."""

import asyncio
import logging
from collections.abc import Callable
from inspect import isawaitable, signature
from typing import Final

from attrs import frozen

from agentjobs_async import AgentJob, InvalidInputError
from agentjobs_async._loop.tasks import is_cancelled
from agentjobs_async._text import error_text
from agentjobs_async.durable.delivery import RetryLater, Undeliverable
from agentjobs_async.durable.entry import DurableEntry

_MOST_TEXT_BYTES: Final = 500  # of the words of an error of the caller's own
_logger: Final = logging.getLogger("agentjobs_async.durable")


@frozen
class Called:
    """How a call of a callback ended.

    Attributes:
        is_done: Whether it has returned, or what it had to tell can never be delivered.
        again_in: The seconds after which it wants to be called again; `None` where it named none.
    """

    is_done: bool
    again_in: float | None = None


class Callback:
    """Calls a user's function, awaits what it returns if that can be awaited, and contains its errors.

    Args:
        name: The name of the function in messages.
        function: A plain or an async function of an entry, and of a job or an error.

    Raises:
        InvalidInputError: `function` is a class, can't be called, or does not accept two arguments.
    """

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        if isinstance(function, type) or not callable(function):
            raise InvalidInputError(f"{name} must be a plain or an async function, not {function!r:.100}")
        if not _accepts_two(function):
            raise InvalidInputError(f"{name} must accept two arguments: the entry, and the job or the error")
        self._name = name
        self._function = function
        self._logged: set[type[BaseException]] = set()

    async def __call__(self, entry: DurableEntry, found: AgentJob | Exception) -> Called:
        """Call the function, and return how that ended. The first error of each type that it raises is logged.

        One that has swallowed the cancellation of its task has not returned in time.
        """
        try:
            result = self._function(entry, found)
            if isawaitable(result):
                await result
        except (KeyboardInterrupt, SystemExit):
            raise
        except RetryLater as later:
            return Called(is_done=False, again_in=_pause_of(later))
        except Undeliverable as error:
            why = error_text(error, _MOST_TEXT_BYTES)
            _logger.warning("%s of %r can't be delivered, and is not called again: %s", self._name, entry.key, why)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise  # any other cancellation is the function's own error
            if type(error) not in self._logged:
                self._logged.add(type(error))
                _logger.warning(
                    "%s raised %s for %r; it is still called, but further errors of this type are not logged",
                    self._name,
                    type(error).__name__,
                    entry.key,
                    exc_info=error,
                )
            return Called(is_done=False)
        return Called(is_done=not is_cancelled())


def _pause_of(later: RetryLater) -> float | None:
    """Return the seconds that an error names; `None` where one of a subclass names none that are valid."""
    try:
        return RetryLater(getattr(later, "seconds", None)).seconds  # type: ignore[arg-type]  # it checks them
    except Exception:  # noqa: BLE001 - a property of a subclass may raise anything, and the end is told all the same
        return None


def _accepts_two(function: Callable[..., object]) -> bool:
    try:
        signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a function in C may not say what it accepts
        pass
    return True
