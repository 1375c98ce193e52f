"""A user's callback, plain or async: contained, and its first error logged."""

import asyncio
import logging
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Final

from agentjobs_async import InvalidInputError

__all__ = ["Callback"]

_logger: Final = logging.getLogger("agentjobs_async.durable")


class Callback:
    """Calls a user's function, awaits what it returns if that can be awaited, and contains its errors.

    Args:
        name: The name of the function in messages.
        function: A plain or an async function.

    Raises:
        InvalidInputError: `function` is a class, or can't be called.
    """

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        if isinstance(function, type) or not callable(function):
            raise InvalidInputError(f"{name} must be a plain or an async function, not {function!r:.100}")
        self._name = name
        self._function = function
        self._logged = False

    async def __call__(self, *arguments: Any) -> bool:
        """Call the function; return whether it has returned. The first error that it raises is logged."""
        try:
            result = self._function(*arguments)
            if isawaitable(result):
                await result
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # the durable jobs are left; any other cancellation is the function's own error
            self._log(error)
            return False
        return True

    def _log(self, error: BaseException) -> None:
        if not self._logged:
            self._logged = True
            _logger.warning(
                "%s raised %s; it is still called, but further errors of it are not logged",
                self._name,
                type(error).__name__,
                exc_info=error,
            )
