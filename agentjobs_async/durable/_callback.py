"""A user's callback, plain or async: contained, and the first error of each type logged."""

import asyncio
import logging
from collections.abc import Callable
from inspect import isawaitable, signature
from typing import Final

from agentjobs_async import AgentJob, InvalidInputError
from agentjobs_async.durable.entry import DurableEntry

__all__ = ["Callback"]

_logger: Final = logging.getLogger("agentjobs_async.durable")


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

    async def __call__(self, entry: DurableEntry, found: AgentJob | Exception) -> bool:
        """Call the function; return whether it has returned. The first error of each type that it raises is logged."""
        try:
            result = self._function(entry, found)
            if isawaitable(result):
                await result
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the durable jobs are left; any other cancellation is the function's own error
            self._log(entry.key, error)
            return False
        return True

    def _log(self, key: str, error: BaseException) -> None:
        if type(error) not in self._logged:
            self._logged.add(type(error))
            _logger.warning(
                "%s raised %s for %r; it is still called, but further errors of this type are not logged",
                self._name,
                type(error).__name__,
                key,
                exc_info=error,
            )


def _accepts_two(function: Callable[..., object]) -> bool:
    try:
        signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a function in C may not say what it accepts
        pass
    return True
