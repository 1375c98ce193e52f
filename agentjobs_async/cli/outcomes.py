"""How each job of a command ended, and the exit code that all of them make."""

import re
from collections.abc import Iterable
from enum import IntEnum, StrEnum
from typing import Final

from attrs import frozen

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AuthError,
    CreateOutcome,
    InvalidInputError,
    JobRef,
    NotFoundError,
    SessionClosedError,
    WaitTimeoutError,
)
from agentjobs_async._text import one_line

__all__ = ["ExitCode", "Outcome", "Result", "described", "exit_code", "exit_code_of"]


class ExitCode(IntEnum):
    """What a command ends with. A signal gives 128 and its number, a reader of the output who left 141."""

    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    AUTHENTICATION = 3
    UNFINISHED = 4
    BROKEN_PIPE = 141


class Outcome(StrEnum):
    """How one job, or the attempt to create it, ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    ARCHIVED = "archived"
    REJECTED = "rejected"
    """The service refused the create: no agent was started."""
    NOT_SENT = "not_sent"
    """Nothing was sent: no agent was started."""
    UNKNOWN = "unknown"
    """An agent may have been started, and nobody can tell."""
    TIMED_OUT = "timed_out"
    """The wait's time ran out; the job goes on."""
    UNFINISHED = "unfinished"
    """The wait ended in another way; the job goes on, as far as known."""

    @property
    def shown(self) -> str:
        """The outcome in words."""
        return self.replace("_", " ")


_OPTIONS: Final = {
    "base_url and get_path, or your own get_job": "--base-url",
    "allow_insecure=True": "--allow-insecure",
    "base_url": "--base-url",
    "project_id": "--project",
    "api_key": "the API key",
    "JobRef.to_token() gives": "agentjobs create prints",
}
_SETTING: Final = re.compile("|".join(map(re.escape, _OPTIONS)))

_GOES_ON = frozenset({Outcome.TIMED_OUT, Outcome.UNFINISHED})
_OPEN = _GOES_ON | {Outcome.UNKNOWN, Outcome.NOT_SENT}


@frozen
class Result:
    """What became of one prompt, or of one job that was waited for.

    Attributes:
        number: Its place among the prompts or jobs, from 1.
        prompt: `None` when the job was not created by this command.
        ref: `None` when no job is known.
        job: What the last good answer showed; `None` without one.
        error: What ended it; `None` with a job that has ended, and for what was never begun.
    """

    number: int
    prompt: str | None
    ref: JobRef | None = None
    job: AgentJob | None = None
    error: Exception | None = None

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        if self.job is not None and self.job.is_terminal:
            return Outcome(self.job.status)
        if self.ref is not None:
            return Outcome.TIMED_OUT if isinstance(self.error, WaitTimeoutError) else Outcome.UNFINISHED
        if self.error is None:
            return Outcome.NOT_SENT
        outcome = self.error.outcome if isinstance(self.error, AgentJobsError) else None
        return Outcome(outcome or CreateOutcome.UNKNOWN)

    @property
    def goes_on(self) -> bool:
        """Whether waiting for the job again makes sense."""
        return self.outcome in _GOES_ON and not isinstance(self.error, NotFoundError)

    @property
    def stopped(self) -> bool:
        """Whether it ended only because the command did, or was never begun."""
        if isinstance(self.error, SessionClosedError):
            return True
        return self.error is None and self.outcome in _OPEN

    @property
    def pr_link(self) -> str | None:
        """The pull request of the job, if there is one."""
        return None if self.job is None else self.job.pr_link


def exit_code(results: Iterable[Result]) -> ExitCode:
    """Return the code for all results: a refused key counts most, then what is open, then what failed."""
    ended = tuple(results)
    outcomes = {result.outcome for result in ended}
    if any(isinstance(result.error, AuthError) for result in ended):
        return ExitCode.AUTHENTICATION
    if outcomes & _OPEN:
        return ExitCode.UNFINISHED
    return ExitCode.FAILED if outcomes - {Outcome.COMPLETED} else ExitCode.COMPLETED


def exit_code_of(error: Exception) -> ExitCode:
    """Return the code for an error that ended a whole command."""
    if isinstance(error, InvalidInputError):
        return ExitCode.USAGE
    if isinstance(error, AuthError):
        return ExitCode.AUTHENTICATION
    rejected = isinstance(error, AgentJobsError) and error.outcome is CreateOutcome.REJECTED
    return ExitCode.FAILED if rejected else ExitCode.UNFINISHED


def described(error: Exception) -> str:
    """Return an error as one line that leaves its job unnamed: what it is shown beside names it.

    The library's names of settings become the command line's options. Here a session is closed only because the
    command is told to stop.
    """
    if isinstance(error, SessionClosedError):
        return "stopped; nothing was sent" if error.outcome is CreateOutcome.NOT_SENT else "stopped"
    if isinstance(error, AgentJobsError):
        message = _in_option_words(error.message) if isinstance(error, InvalidInputError) else error.message
        return one_line("; ".join(filter(None, (message, _in_option_words(error.advice)))))
    return one_line(f"{type(error).__name__}: {error}")


def _in_option_words(text: str) -> str:
    return _SETTING.sub(lambda found: _OPTIONS[found[0]], text)
