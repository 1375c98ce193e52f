"""Commands, and what their help pages say of exit codes and of JSON."""

from collections.abc import Callable
from typing import Any, Final

import click

from agentjobs_async.cli._input.options import WRITTEN_FILE, journal_files
from agentjobs_async.cli._output.files import check_file

_EXIT_CODES: Final = """\b
Exit codes:
  0    {success}
{failed}  2    wrong usage, nothing was sent
  3    the API key was refused
  4    {left}
  129  by SIGHUP; 130 by Ctrl-C; 143 by SIGTERM; the jobs continue remotely
  141  the reader of the output has left, as after | head
If several apply: 3, then 4, then 1.
"""
_JOURNAL_EXIT_CODES: Final = """\b
Exit codes:
{ended}  2    wrong usage, nothing was changed
  4    the journal can't be read or written
  129  by SIGHUP; 130 by Ctrl-C; 143 by SIGTERM
  141  the reader of the output has left, as after | head
"""
_JSON_LINES: Final = """\b
With --json each line of output is one JSON object:
{created}  status   number key project job_id status
  trouble  project job_id error, when it can't be read
  ended    number key project job_id status state pr_link error prompt
  summary  states exit_code, the last line

Its name is in "event", a job's token in "job". A state is
unknown, failed, rejected, refused (the input), timed_out,
active, sending, planned, abandoned, archived or completed.
"""
_ITEM_LINES: Final = """
The number of an item is that of its row in the journal; the summary counts
all items of the journal. An ended line has the times of its item, its polls and
tries, and a "context" if it has one: the fields of its record that are
neither key nor part of the prompt. An item
that is refused before it is planned has an ended line with number null.
"""


def exit_codes(
    success: str,
    failed: str | None = "some failed, were archived, or were refused by the service",
    left: str = "some are active (or timed out), unknown or planned",
) -> str:
    """Return what the help of a command that asks the service says of 0, 1 (`None`: never) and 4."""
    return _EXIT_CODES.format(success=success, failed="" if failed is None else f"  1    {failed}\n", left=left)


def journal_exit_codes(success: str | None, refused: str | None = None) -> str:
    """Return what the help of a command that asks nothing of the service says of its exit codes.

    Args:
        success: When it is 0; `None` for never.
        refused: When it is 1; `None` for never.
    """
    ended = (f"  {code}    {when}\n" for code, when in enumerate((success, refused)) if when is not None)
    return _JOURNAL_EXIT_CODES.format(ended="".join(ended))


ALL_COMPLETED: Final = exit_codes("all items are completed or abandoned")
RUN_PAGE: Final = "\n".join(
    (_JSON_LINES.format(created="  created  number key project job_id status prompt\n"), _ITEM_LINES, ALL_COMPLETED)
)
"""What the pages of `run` and `resume` end with."""
WAIT_PAGE: Final = f"{_JSON_LINES.format(created='')}\n{ALL_COMPLETED}"
_READ_FILES: Final = {"file": "the input", "key_file": "the file of the API key", "service_file": "the service file"}
"""What an option names that is read."""


def command(name: str, page: str, example: str) -> Callable[[Callable[..., int]], click.Command]:
    """Return a decorator that makes a command.

    Args:
        name: Its name.
        page: What follows the options on its help page.
        example: The last line of the page: a command that is valid as it stands.
    """
    return click.command(name, cls=_Command, epilog=f"{page}\n\b\nExample:\n  {example}")


class _Command(click.Command):
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; no file that an option names to be written is the journal, or one that is read."""
        journal = ctx.params.get("location") or ctx.params.get("journal")
        read = {what: ctx.params[name] for name, what in _READ_FILES.items() if ctx.params.get(name) is not None}
        for parameter in self.params:
            file = ctx.params.get(parameter.name or "")
            if parameter.type is WRITTEN_FILE and file is not None:
                check_file(parameter.opts[0], file, () if journal is None else journal_files(journal), read)
        return super().invoke(ctx)
