"""What loggers record while a command runs, as lines on standard error."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from agentjobs_async._text import one_line
from agentjobs_async.cli._output.screen import Screen


class LogLines(logging.Handler):
    """Shows records, one line for each, with the time of day; a critical one is shown as an error.

    Args:
        screen: Where the lines go.
        names: The names of the loggers.
        level: The least level of a record that is shown.
    """

    def __init__(self, screen: Screen, *names: str, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._screen = screen
        self._loggers = [logging.getLogger(name) for name in names]

    def words(self, record: logging.LogRecord) -> str | None:
        """Return what is shown of a record; `None` for nothing."""
        message = record.getMessage()
        return message if record.levelno >= logging.CRITICAL else one_line(message)  # never cut: it may have job ids

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        words = self.words(record)
        if words is None:
            return
        if record.levelno >= logging.CRITICAL:
            self._screen.notice(("Error: ", "bold red"), words)
        else:
            self._screen.notice(f"{time.strftime('%H:%M:%S', time.localtime(record.created))} {words}")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the records while the block runs."""
        levels = [logger.level for logger in self._loggers]
        for logger in self._loggers:
            logger.addHandler(self)
            if not logger.isEnabledFor(self.level):
                logger.setLevel(self.level)
        try:
            yield
        finally:
            for logger, level in zip(self._loggers, levels, strict=True):
                logger.setLevel(level)
                logger.removeHandler(self)
