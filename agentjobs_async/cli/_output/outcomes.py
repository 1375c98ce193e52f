"""How each item or job of a command ended, and the exit code that follows."""

import re
from collections.abc import Collection
from enum import IntEnum, StrEnum
from typing import Final

from agentjobs_async import (
    AgentJobsError,
    AuthError,
    CreateOutcome,
    InvalidInputError,
    JournalError,
    NotSentError,
    SessionClosedError,
)
from agentjobs_async._text import one_line


class ExitCode(IntEnum):
    """The exit codes of all commands. A signal gives 128 plus its number; 141 means that the reader has left."""

    COMPLETED = 0
    FAILED = 1
    USAGE = 2
    AUTHENTICATION = 3
    UNFINISHED = 4
    BROKEN_PIPE = 141


class Outcome(StrEnum):
    """How an item or a job stands at the end of a command: the states of a journal in their order, and two more."""

    UNKNOWN = "unknown"
    """An agent may have been started; or the job that was to be waited for was never seen."""
    FAILED = "failed"
    REJECTED = "rejected"
    """The service refused the create: no agent was started."""
    REFUSED = "refused"
    """The input can't be sent: it is in no journal."""
    TIMED_OUT = "timed_out"
    """The time for the job was up; the job itself continues."""
    ACTIVE = "active"
    """As far as known, the job continues."""
    SENDING = "sending"
    PLANNED = "planned"
    """Nothing was sent: no agent was started."""
    ABANDONED = "abandoned"
    """A person gave the item up: it is not sent again, and no exit code shows it."""
    ARCHIVED = "archived"
    COMPLETED = "completed"

    @property
    def shown(self) -> str:
        """The outcome in words."""
        return self.replace("_", " ")

    @property
    def is_unfinished(self) -> bool:
        """Whether it is no end: it can be resumed, or has to be resolved."""
        return self in _UNFINISHED


_OPTIONS: Final = {
    "base_url and get_path, or your own get_job": "--base-url",
    "allow_insecure=True": "--allow-insecure",
    "pass other_service=True": "give --other-service",
    "give the item one, or a default": "give --project ID or set AGENTJOBS_PROJECT_ID",
    "base_url": "--base-url",
    "project_id": "--project",
    "the callable api_key raised InvalidInputError: ": "",
    "api_key": "the API key",
    "states has ": "--state ",
    "all_tries is for": "--tries all is for",
    "read it with read_only=True": "look at it with agentjobs status FILE",
    "JobRef.to_token() gives": "agentjobs create prints",
    " (for a token, use JobRef.from_token)": "",
    "pass it to create_job if it is a prompt, JobRef(project_id, job_id) if it is an id": (
        "give it to agentjobs create if it is a prompt, write project~.job if it is an id"
    ),
}
_SETTING: Final = re.compile("|".join(map(re.escape, _OPTIONS)))

_UNFINISHED: Final = frozenset({Outcome.UNKNOWN, Outcome.TIMED_OUT, Outcome.ACTIVE, Outcome.SENDING, Outcome.PLANNED})


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
    if occurred & _UNFINISHED:
        return ExitCode.UNFINISHED
    return ExitCode.FAILED if occurred - {Outcome.COMPLETED, Outcome.ABANDONED} else ExitCode.COMPLETED


def names_unrecorded(error: Exception | None) -> bool:
    """Return whether an error names jobs that no journal has: its exit code comes before that of a signal."""
    return isinstance(error, JournalError) and bool(error.unrecorded)


def _outcome_of(error: Exception) -> Outcome:
    rejected = isinstance(error, AgentJobsError) and error.outcome is CreateOutcome.REJECTED
    return Outcome.REJECTED if rejected else Outcome.ACTIVE


def described(error: BaseException) -> str:
    """Return an error as one line that does not name its job: what happened, then what to do about it."""
    return "; ".join(filter(None, (reason_of(error), advice_of(error))))


def reason_of(error: BaseException) -> str:
    """Return what happened, as one line.

    The library's names of settings become the command line's options. A session of the command line is closed only by a
    signal.
    """
    if isinstance(error, SessionClosedError):
        return "stopped; nothing was sent" if error.outcome is CreateOutcome.NOT_SENT else "stopped"
    if isinstance(error, AgentJobsError):
        is_own = isinstance(error, InvalidInputError | JournalError) or _is_of_key_file(error)
        return one_line(_in_option_words(error.message) if is_own else error.message)
    return one_line(f"{type(error).__name__}: {error}")


def _is_of_key_file(error: AgentJobsError) -> bool:
    return isinstance(error, NotSentError) and error.reason == "key"


def advice_of(error: BaseException) -> str:
    """Return what to do about an error; nothing where it says so itself."""
    if isinstance(error, AgentJobsError) and not isinstance(error, SessionClosedError):
        return _in_option_words(error.advice)
    return ""


def _in_option_words(text: str) -> str:
    return _SETTING.sub(lambda found: _OPTIONS[found[0]], text)
