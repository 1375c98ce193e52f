"""Answers on their way to a chat, for which nobody waits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Final

from agentjobs_async._loop.cancel_scope import wait_until_left
from agentjobs_async._loop.tasks import is_cancelled
from agentjobs_async._text import error_text
from agentjobs_async.chat.place import Place
from agentjobs_async.durable import RetryLater

_CLOSING_SECONDS: Final = 5.0  # for which answers are waited for at the end
_ERROR_BYTES: Final = 500

_logger: Final = logging.getLogger("agentjobs_async.chat")


class Replies:
    """Sends answers, each in a task of its own: a chat that is slow or asks to wait keeps no other from its answer.

    Args:
        send: Sends a text to a place.
    """

    def __init__(self, send: Callable[[Place, str], Awaitable[object]]) -> None:
        self._send = send
        self._under_way: dict[asyncio.Task[None], Place] = {}
        self._is_left = False

    def send(self, place: Place, text: str) -> None:
        """Begin to send an answer. Once the block was left, it is lost: the bot's own client may be closed by then."""
        if self._is_left:
            _logger.warning("an answer to user %s in chat %s is lost: the bot is ending", place.user, place.chat)
            return
        task = asyncio.get_running_loop().create_task(self._send_until_done(place, text))
        self._under_way[task] = place
        task.add_done_callback(self._under_way.pop)

    async def leave(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Wait up to 5 s for the answers under way, after a cancellation not at all; then cancel and log the others.

        One whose function swallows its cancellation is left behind.
        """
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        try:
            if not is_cancelled:
                await self._until_sent()
        finally:
            self._is_left = True
            left = dict(self._under_way)
            words = "an answer to user %s in chat %s may be lost: the bot is ending"
            for task, place in left.items():
                task.cancel()
                _logger.warning(words, place.user, place.chat)
            await wait_until_left(lambda: not all(task.done() for task in left))

    async def _until_sent(self) -> None:
        """Wait up to 5 s until no answer is under way, with those of commands that are being done meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                while self._under_way:
                    await asyncio.wait(self._under_way)

    async def _send_until_done(self, place: Place, text: str) -> None:
        """Send an answer, again where the chat asks to wait. One that fails is lost: its job is planned anyway."""
        while True:
            try:
                await self._send(place, text)
            except RetryLater as later:
                await asyncio.sleep(later.seconds)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise  # any other cancellation is the function's own error
                why = error_text(error, _ERROR_BYTES)
                _logger.warning("an answer to user %s in chat %s is lost: %s", place.user, place.chat, why)
                return
            else:
                return
