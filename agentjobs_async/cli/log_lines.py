"""Records of a logger as lines on standard error."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agentjobs_async._text import one_line
from agentjobs_async.cli._output.screen import Screen

__all__ = ["LogLines"]


class LogLines(logging.Handler):
    """Shows what a logger records from INFO on, one line for each record, with the time of day.

    Args:
        screen: Where the lines go.
        name: The name of the logger.
    """

    def __init__(self, screen: Screen, name: str) -> None:
        super().__init__(logging.INFO)
        self._screen = screen
        self._logger = logging.getLogger(name)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        self._screen.notice(f"{clock} {one_line(record.getMessage())}")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the records of the logger while the block runs."""
        level = self._logger.level
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            self._logger.setLevel(level)
            self._logger.removeHandler(self)
