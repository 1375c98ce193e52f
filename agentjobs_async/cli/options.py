"""The options that several commands share."""

from typing import Final

from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.cli._output.reports import JobLines, JsonLines, Report
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.service import Service

__all__ = ["ANY_TRIES", "DEFAULT_ACTIVE", "DEFAULT_TIMEOUT", "Options", "most_tries"]

DEFAULT_ACTIVE: Final = 20
"""The jobs that are active at once by default."""
DEFAULT_TIMEOUT: Final = 1800.0
"""The seconds that each job may take by default."""
ANY_TRIES: Final = "any"
"""The value of `--retry-failed` without one."""


@frozen
class Options:
    """The options that several commands share.

    Attributes:
        service: The service to talk to.
        timeout: Seconds for each job; `None` waits for ever.
        as_json: Whether to write JSON.
        has_timeout: Whether `timeout` was given, and is not the default.
    """

    service: Service
    timeout: float | None
    as_json: bool
    has_timeout: bool = True

    def report(self, screen: Screen) -> Report:
        """Return what shows the progress of jobs that have no keys."""
        return JsonLines(screen) if self.as_json else JobLines(screen)

    def timeout_option(self) -> list[str]:
        """Return the option that gives another command the same time; nothing for the default."""
        if self.timeout == DEFAULT_TIMEOUT:
            return []
        return ["--timeout", "none" if self.timeout is None else repr(self.timeout).removesuffix(".0")]

    def wait_options(self) -> list[str] | None:
        """Return the options of `agentjobs wait` for the same service; `None` for an emulator of this command."""
        if self.service.emulated:
            return None
        return [*self.service.options(), *self.timeout_option(), *["--json"] * self.as_json]


def most_tries(text: str | None) -> int | None:
    """Return how many tries an item may have in all; `None` for any number.

    Raises:
        InvalidInputError: It is no whole number of at least 1.
    """
    if text == ANY_TRIES:
        return None
    if text is None:
        return 1
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise InvalidInputError(f"--retry-failed: {one_line(text, 60)} is not a number of tries of at least 1")
    return int(text)
