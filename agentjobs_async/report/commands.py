"""The commands that settle or retry an item, or continue with it, ready to be pasted into a shell."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async._text import BETWEEN_IDS
from agentjobs_async._validation import checked_bare_id
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.texts import ACTING, shown

__all__ = ["COMMANDS", "Command", "commands_of", "found_job", "resume_command", "where_to_look"]

Command = tuple[str, tuple[str, ...]]
"""What a command is for, and its words: `{key}`, `{journal}` and `{token}` stand for those of the item.

`{service}` stands for the options that lead to the journal's service, of which there may be none.
"""

_RESUME: Final[Command] = ("Continue with the batch", ("agentjobs", "resume", "{journal}", "{service}"))
_GET: Final[Command] = ("Look at its job", ("agentjobs", "get", "{service}", "{token}"))
_RETRY: Final[Command] = ("Try it again", ("agentjobs", "retry", "--journal", "{journal}", "{key}"))


def _resolve(words: str, *options: str) -> Command:
    return words, ("agentjobs", "resolve", "--journal", "{journal}", *options, "{key}")


COMMANDS: Final[dict[State, tuple[Command, ...]]] = {
    State.UNKNOWN: (
        _resolve("You found its job in the project", "--job", "JOB"),
        _resolve("It has no job, or a second agent does no harm", "--send-again"),
        _resolve("Give it up, whatever became of it", "--abandon"),
    ),
    State.FAILED: (_RETRY, _RESUME),
    State.REJECTED: (_RETRY, _RESUME),
    State.ABANDONED: (_RETRY, _RESUME),
    State.ARCHIVED: (_RETRY, _RESUME),
    State.ACTIVE: (_RESUME, _GET),
    State.SENDING: (_RESUME,),
    State.PLANNED: (_RESUME, _resolve("Withdraw it: it is not sent then", "--abandon")),
    State.COMPLETED: (_GET,),
}
"""What can be done about an item, by its state; the page's script fills in the same words."""


def found_job(text: str) -> JobRef | str:
    """Return the job that a person found, from its token or its id.

    Raises:
        InvalidInputError: It is neither a token nor an id, or the word that stands for a job in the commands.
    """
    if text == "JOB":
        raise InvalidInputError("JOB stands for the job that you found: put its id there, or its token project~.job")
    return JobRef.from_token(text) if BETWEEN_IDS in text else checked_bare_id(text)


def where_to_look(row: JournalRow) -> str:
    """Return where a person finds the job of an item that is unknown, the first step before it is settled."""
    created = "" if row.sent_at is None else f" created about {row.sent_at:%H:%M:%S} UTC on {row.sent_at:%d %b %Y}"
    return f"Look in project {shown(row.project_id)}, for a job{created} with this prompt."


def resume_command(journal: str, service: Sequence[str]) -> str:
    """Return the line that continues with a journal; the arguments are those of `commands_of`."""
    return _line(_RESUME[1], {"{journal}": [journal], "{service}": service})


def commands_of(state: State, key: str, journal: str, service: Sequence[str]) -> list[tuple[str, str]]:
    """Return what each command of an item without a job is for, and its line.

    Args:
        state: The state of the item.
        key: Its key.
        journal: The address of its journal.
        service: The options that lead to the journal's service.
    """
    values: Mapping[str, Sequence[str]] = {"{key}": [key], "{journal}": [journal], "{service}": service}
    return [(words, _line(command, values)) for words, command in COMMANDS[state]]


def _line(command: Sequence[str], values: Mapping[str, Sequence[str]]) -> str:
    filled = [part for word in command for part in values.get(word, [word])]
    # A key that begins with a dash would be read as an option.
    separator = ["--"] * (command[-1] == "{key}" and filled[-1].startswith("-"))
    return " ".join(map(_quoted, [*filled[:-1], *separator, filled[-1]]))


def _quoted(word: str) -> str:
    """Return a word as a shell reads it; in one with characters that act on a screen, all but ASCII as escapes."""
    if not ACTING.search(word):
        return shlex.quote(word)
    word = word.replace("\\", "\\\\").replace("'", "\\'")
    escaped = re.sub("[^ -~]", _escaped, word)
    return f"$'{escaped}'"


def _escaped(found: re.Match[str]) -> str:
    byte = ord(found[0]) - 0xDC00  # of a path that is not UTF-8, as `os.fsdecode` returns it
    return f"\\x{byte:02x}" if byte in range(0x80, 0x100) else f"\\U{ord(found[0]):08x}"
