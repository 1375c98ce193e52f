"""Notices at the end of a command: jobs that continue, unknown creates, and the command that resumes the wait."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from agentjobs_async.cli._output.screen import Screen, shortened
from agentjobs_async.cli.outcomes import Outcome, Result

__all__ = ["resume_command", "show_leftovers", "wait_command"]

_PROMPT_COLUMNS = 60


def show_leftovers(screen: Screen, results: Sequence[Result], options: Sequence[str] | None, *, stopped: bool) -> None:
    """Show which jobs continue remotely, which creates are unknown, and how many prompts were not sent.

    Args:
        screen: The screen to write to.
        results: The result of each prompt or job.
        options: The options with which `agentjobs wait` reaches the same service; `None` for the emulator, which ends
            with the command.
        stopped: Whether a signal stopped the command.
    """
    if stopped:
        screen.notice("Stopped watching.")
    _show_unknown(screen, [result for result in results if result.outcome is Outcome.UNKNOWN])
    unsent = sum(result.outcome is Outcome.NOT_SENT for result in results)
    if unsent:
        screen.notice(f"{_counted(unsent, 'prompt was', 'prompts were')} not sent.")
    open_jobs = [result for result in results if result.goes_on]
    if open_jobs and options is None:
        screen.notice("The emulator ends with this command, and its jobs with it; a real service's jobs would go on.")
    elif open_jobs:
        tokens = [result.ref.to_token() for result in open_jobs if result.ref is not None]
        screen.notice(f"{_counted(len(open_jobs), 'job goes', 'jobs go')} on remotely; take up the wait again with:")
        screen.command(f"  {wait_command(tokens, options or ())}")


def _program() -> str:
    """Return the start of a shell command that runs this program again."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m agentjobs_async"
    found = shutil.which(started.name)
    return shlex.quote(started.name if found and Path(found) == started.absolute() else sys.argv[0])


def wait_command(tokens: Sequence[str], options: Sequence[str]) -> str:
    """Return the command that waits for jobs."""
    end_of_options = ["--"] * any(token.startswith("-") for token in tokens)
    return f"{_program()} wait {shlex.join([*options, *end_of_options, *tokens])}"


def _show_unknown(screen: Screen, results: Sequence[Result]) -> None:
    if results:
        screen.notice(
            f"{_counted(len(results), 'create', 'creates')} may have started an agent, and nobody can tell;"
            " look at the project before creating again:"
        )
    for result in results:
        screen.notice(f"  prompt {result.number}: {shortened(result.prompt or '', _PROMPT_COLUMNS)}")


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def resume_command(journal: str, options: Sequence[str]) -> str:
    """Return the command that resumes a journal."""
    return f"{_program()} resume {shlex.join(['--journal', journal, *options])}"
