"""What a command says at its end: which jobs continue without it, and the command that continues."""

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentjobs_async import JobRef
from agentjobs_async._text import local_time
from agentjobs_async.cli._output.columns import columns_of, in_words, shortened
from agentjobs_async.cli._output.notices import Command, Hint, Sentence

if TYPE_CHECKING:
    from agentjobs_async.batch import JournalRow

_COLUMNS: Final = 80  # of a line with the beginning of a prompt
_LEAST_PROMPT: Final = 24  # columns
_MOST_UNKNOWN: Final = 20  # lines
EMULATOR_ENDS: Final = Sentence(
    "The emulator ends with this command, and its jobs with it; a real service's jobs would continue."
)


def continuing_jobs(
    refs: Sequence[JobRef],
    options: Sequence[str] | None,
    *,
    is_only_record: bool = False,
    is_in_doubt: bool = False,
) -> list[Hint]:
    """Return which jobs continue remotely, and the command that waits for them.

    Args:
        refs: The jobs.
        options: The options with which `agentjobs wait` reaches the same service; `None` for the emulator, which ends
            with the command.
        is_only_record: Whether the ids are recorded nowhere else.
        is_in_doubt: Whether one of them was never seen, and may not exist.
    """
    if not refs:
        return []
    if options is None:
        return [EMULATOR_ENDS]
    one = len(refs) == 1
    continuing = "1 job continues" if one else f"{len(refs):,} jobs continue"
    wait = f"Keep the {'id' if one else 'ids'}; wait" if is_only_record else "Wait"
    doubt = f", if {'it exists' if one else 'they exist'}" if is_in_doubt else ""
    words = f"{continuing} remotely{doubt}. {wait} for {'it' if one else 'them'} with:"
    return [Sentence(words), Command(wait_command([ref.to_token() for ref in refs], options))]


def lost_jobs(active: int) -> list[Hint]:
    """Return how many active jobs belong to an emulator that has ended, if there are any."""
    if not active:
        return []
    words = (
        f"The jobs of an earlier emulator ended with it ({active:,} active): no other one knows them, and they fail"
        " as not found. --retry-failed tries such items again."
    )
    return [Sentence(words)]


def wait_command(tokens: Sequence[str], options: Sequence[str]) -> str:
    """Return the command that waits for jobs."""
    end_of_options = ["--"] * any(token.startswith("-") for token in tokens)
    return f"{_program()} wait {shlex.join([*options, *end_of_options, *tokens])}"


def resume_command(journal: str, options: Sequence[str]) -> str:
    """Return the command that resumes a journal."""
    return f"{_program()} resume {shlex.join([journal, *options])}"


def export_command(journal: str, options: Sequence[str] = ()) -> str:
    """Return the command that writes the items of a journal that the options name, without any all of them."""
    return f"{_program()} export {shlex.join([journal, *options])}"


def unknown_items(rows: Sequence["JournalRow"], journal: str | None, most: int = _MOST_UNKNOWN) -> list[Hint]:
    """Return the first `most` unknown items, and the command that settles each of them.

    If there are more, the command that writes all of them, too. No command where `journal`, its location, is `None`.
    """
    shown = rows[:most]
    if not shown:
        return []
    hints: list[Hint] = [Sentence("May have started an agent; look at the project for a job of this time:")]
    hints += [Sentence(_where_to_look(row)) for row in shown]
    left = len(rows) - len(shown)
    if left and journal is None:
        hints.append(Sentence(f"  … and {left:,} more"))
    if left and journal is not None:
        hints.append(Sentence(f"  … and {left:,} more; all of them are written by:"))
        hints.append(Command(export_command(journal, ["--state", "unknown"])))
    if journal is not None:
        hints.append(Sentence("Then settle each by its job, by --send-again or by --abandon:"))
        hints += [Command(_resolve_command(journal, row.key)) for row in shown]
    return hints


def late_answers(tries: Sequence["JournalRow"], items: Mapping[str, "JournalRow"]) -> list[Hint]:
    """Return tries whose creates were answered late, beside what became of their items, and what to do about them."""
    if not tries:
        return []
    words = (
        "Answered late, when the item had gone on: a second agent got the same prompt. Nothing stops it from here;"
        " look at both jobs, and keep the result of one:"
    )
    pairs = [f"  {in_words(row.key)}: {_job_of(row)}; {_job_of(items[row.key])}" for row in tries]
    return [Sentence(words), *map(Sentence, pairs)]


def retry_of(journal: str, number: int, options: Sequence[str], bound: Sequence[str] = ()) -> list[Hint]:
    """Return the command that tries `number` failed and rejected items again, if there are any."""
    if not number:
        return []
    items = "1 item" if number == 1 else f"{number:,} items"
    return [
        Sentence(f"Try {items} again with:"),
        Command(resume_command(journal, [*options, "--retry-failed", *bound])),
    ]


def advices(advice: Mapping[str, int]) -> list[Hint]:
    """Return what to do about errors, each advice once, with the number of items that it is for."""
    return [
        Sentence(f"{words[:1].upper()}{words[1:]}{f' ({number:,} items)' if number > 1 else ''}.")
        for words, number in advice.items()
    ]


def _job_of(row: "JournalRow") -> str:
    """Return which try of an item a row is, its state, and its job."""
    job = "" if row.job_id is None else f", {JobRef(row.project_id, row.job_id).to_token()}"
    return f"try {row.tries} is {row.state}{job}"


def _where_to_look(row: "JournalRow") -> str:
    """Return a line with what finds the job of an unknown item: its project, when it was sent, and its prompt."""
    words = [in_words(row.key), row.project_id]
    words += [] if row.sent_at is None else [f"sent {local_time(row.sent_at)}"]
    named = f"  {', '.join(words)}: "
    return f"{named}{shortened(row.prompt, max(_COLUMNS - columns_of(named), _LEAST_PROMPT))}"


def _resolve_command(journal: str, key: str) -> str:
    """Return the command that settles an item by its job; a key that begins like an option is kept apart from them."""
    words = f"--job JOB -- {shlex.quote(key)}" if key.startswith("-") else f"{shlex.quote(key)} --job JOB"
    return f"{_program()} resolve {shlex.quote(journal)} {words}"


def _program() -> str:
    """Return the start of a shell command that runs this program again."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m agentjobs_async"
    found = shutil.which(started.name)
    return shlex.quote(started.name if found and Path(found) == started.absolute() else sys.argv[0])
