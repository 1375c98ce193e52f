"""What the libraries of the queue log while the database is gone: one line for each outage, in our words."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from agentjobs_async._text import one_line
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.engines._connector import database_error

__all__ = ["QueueLogs"]

_POOL: Final = "psycopg.pool"
_LOGGERS: Final = (_POOL, "procrastinate")
_OUTAGE_SECONDS: Final = 60.0  # since the last error: the next one belongs to another outage; tries are seconds apart
_LONGEST_REASON: Final = 200  # characters


class QueueLogs(logging.Handler):
    """Shows that the database can't be used, once, in place of the warnings and tracebacks of the queue's libraries.

    Args:
        screen: Where the line goes.
    """

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen
        self._last: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Show the first error of an outage; outside of one, the queue's other warnings, without a traceback."""
        now = time.monotonic()
        is_known = self._last is not None and now - self._last < _OUTAGE_SECONDS
        reason = database_error(record)
        if reason is not None:
            self._last = now
        if is_known or (reason is None and record.name == _POOL):  # the pool's other warnings call for no action
            return
        words = one_line(record.getMessage(), _LONGEST_REASON)
        if reason is not None:
            why = one_line(reason, _LONGEST_REASON)
            words = f"The database can't be used ({why}). The worker waits for it, and continues by itself."
        self._screen.notice(f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {words}")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show these records while the block runs, and keep Python from printing them itself."""
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        before = [logger.propagate for logger in loggers]
        for logger in loggers:
            logger.addHandler(self)
            logger.propagate = False
        try:
            yield
        finally:
            for logger, propagate in zip(loggers, before, strict=True):
                logger.propagate = propagate
                logger.removeHandler(self)
