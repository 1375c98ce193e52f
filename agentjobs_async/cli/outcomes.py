"""How each prompt, task or job of a command ended, and the exit code that follows."""

import re
from collections.abc import Collection, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final

from attrs import field, frozen

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateOutcome,
    InvalidInputError,
    JobRef,
    SessionClosedError,
)
from agentjobs_async._text import one_line

__all__ = ["ExitCode", "Outcome", "Result", "described", "exit_code"]


class ExitCode(IntEnum):
    """The exit codes of all commands. A signal gives 128 plus its number; 141 means that the reader has left."""

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
    """The create was refused, by the server or before anything was sent: no agent was started."""
    NOT_SENT = "not_sent"
    """Nothing was sent: no agent was started."""
    UNKNOWN = "unknown"
    """The create was sent and not answered: an agent may have been started."""
    TIMED_OUT = "timed_out"
    """The time for the job was up; the job itself continues."""
    UNFINISHED = "unfinished"
    """The wait ended in another way; as far as known, the job itself continues."""
    ABANDONED = "abandoned"
    """A person gave the item up: it is not sent again, and no exit code shows it."""

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
    " (for a token, use JobRef.from_token)": "",
    "pass JobRef.from_token(text) if it is a token, JobRef(project_id, job_id) if it is an id": "write project/job",
}
_SETTING: Final = re.compile("|".join(map(re.escape, _OPTIONS)))

_OPEN: Final = frozenset({Outcome.NOT_SENT, Outcome.UNKNOWN, Outcome.TIMED_OUT, Outcome.UNFINISHED})


@frozen
class Result:
    """How one prompt, task or job ended: what every line, table and file of results is made of.

    Attributes:
        number: Its place among the prompts, tasks or jobs, from 1; `None` for a task that was refused before it was
            planned.
        outcome: How it ended.
        key: The key of its item; `None` for a job that was only waited for, and for a refused task without a key.
        prompt: `None` for a job that was only waited for, and for a refused task.
        ref: `None` when no job is known.
        status: The last known status of the job; `None` without one.
        pr_link: The pull request of the job; `None` without one.
        error: Why there is no ended job, as one line; `None` when there is one, or when nothing was sent yet.
        context: The context of its item; `None` without one.
        tries: How often its item was planned; `None` for what has no row in a journal.
    """

    number: int | None
    outcome: Outcome
    key: str | None = None
    prompt: str | None = None
    ref: JobRef | None = None
    status: str | None = None
    pr_link: str | None = None
    error: str | None = None
    context: Mapping[str, Any] | None = field(default=None, hash=False)
    tries: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended for good: it can be resumed, or has to be resolved."""
        return self.outcome in _OPEN


def exit_code(outcomes: Collection[Outcome] = (), error: Exception | None = None) -> ExitCode:
    """Return the exit code of a command.

    Args:
        outcomes: The outcomes that occurred.
        error: What ended the command, or the error of a job that decides before all outcomes: a refused API key counts
            most, then wrong usage; any other error counts as an outcome. `None` without one.
    """
    if isinstance(error, AuthError):
        return ExitCode.AUTHENTICATION
    if isinstance(error, InvalidInputError):
        return ExitCode.USAGE
    occurred = {*outcomes, *([] if error is None else [_outcome_of(error)])}
    if occurred & _OPEN:
        return ExitCode.UNFINISHED
    return ExitCode.FAILED if occurred - {Outcome.COMPLETED, Outcome.ABANDONED} else ExitCode.COMPLETED


def _outcome_of(error: Exception) -> Outcome:
    rejected = isinstance(error, AgentJobsError) and error.outcome is CreateOutcome.REJECTED
    return Outcome.REJECTED if rejected else Outcome.UNFINISHED


def described(error: BaseException) -> str:
    """Return an error as one line that does not name its job: the line that shows it does.

    The library's names of settings become the command line's options. A session of the command line is closed only by a
    signal.
    """
    if isinstance(error, SessionClosedError):
        return "stopped; nothing was sent" if error.outcome is CreateOutcome.NOT_SENT else "stopped"
    if isinstance(error, AgentJobsError):
        message = _in_option_words(error.message) if isinstance(error, InvalidInputError) else error.message
        return one_line("; ".join(filter(None, (message, _in_option_words(error.advice)))))
    return one_line(f"{type(error).__name__}: {error}")


def _in_option_words(text: str) -> str:
    return _SETTING.sub(lambda found: _OPTIONS[found[0]], text)
