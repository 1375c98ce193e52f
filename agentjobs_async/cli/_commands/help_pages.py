"""Help pages for terminals of any width, and what they say of exit codes and of JSON."""

import shutil
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import click

from agentjobs_async.cli._commands.journal_arguments import journal_files
from agentjobs_async.cli._commands.options import WRITTEN_FILE
from agentjobs_async.cli._output.files import check_file
from agentjobs_async.cli.wrapping import wrapped

_WIDEST_HELP: Final = 80  # columns
_NARROW: Final = 58  # columns below which an option's help does not fit beside it

EXIT_CODES: Final = """\b
Exit codes:
  0    {success}
  1    some failed, were archived, or were refused by the service
  2    wrong usage, nothing was sent
  3    the API key was refused
  4    some are unfinished (timed out, unreadable), unknown, or were not sent
  130  stopped by Ctrl-C; 143 by SIGTERM; the jobs continue remotely
  141  the reader of the output has left, as after | head
If several apply: 3, then 4, then 1.
"""
ALL_COMPLETED: Final = EXIT_CODES.format(success="all completed")
_JOURNAL_EXIT_CODES: Final = """\b
Exit codes:
{ended}  2    wrong usage, nothing was changed
  4    the journal can't be read or written
  130  stopped by Ctrl-C; 143 by SIGTERM
  141  the reader of the output has left, as after | head
"""
_JSON_LINES: Final = """\b
With --json each line of output is one JSON object:
{created}  status   number key job status           when first seen, and on each change
  trouble  job error                       it can't be read for the time being
  ended    number key job status prompt outcome pr_link error
  summary  outcomes exit_code              the last line
Its name is in "event"; an outcome is one of completed, failed, archived,
rejected, not_sent, unknown, timed_out, unfinished, abandoned.
"""
_ITEM_LINES: Final = """\b
The number of an item is its place in the journal; the summary counts all
items of the journal. An ended line has a "context" if its item has one: the
fields of its record that are neither key nor part of the prompt. An item
that is refused before it is planned has an ended line with number null.
--out gets the ended lines, each end of an item exactly once.
"""
RUN_EPILOG: Final = "\n".join(
    (_JSON_LINES.format(created="  created  number key job status prompt\n"), _ITEM_LINES, ALL_COMPLETED)
)
WAIT_EPILOG: Final = f"{_JSON_LINES.format(created='')}\n{ALL_COMPLETED}"


def journal_exit_codes(success: str | None, refused: str | None = None) -> str:
    """Return what the help of a command that asks nothing of the service says of its exit codes.

    Args:
        success: When it is 0; `None` for never.
        refused: When it is 1; `None` for never.
    """
    ended = (f"  {code}    {when}\n" for code, when in enumerate((success, refused)) if when is not None)
    return _JOURNAL_EXIT_CODES.format(ended="".join(ended))


class _Formatter(click.HelpFormatter):
    """Fits the terminal; click's own needs at least 50 columns."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        columns = min(shutil.get_terminal_size().columns, max_width or _WIDEST_HELP)
        super().__init__(indent_increment, columns - 2 if width is None else width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        fitting = [(self._term(term), words) for term, words in rows]
        if self.width >= _NARROW:
            super().write_dl(fitting, col_max, col_spacing)
            return
        for term, words in fitting:
            self.write(f"{' ' * self.current_indent}{term}\n")
            self.write(f"{wrapped(words, self.width, indent=self.current_indent + 2)}\n" if words else "")

    def _term(self, term: str) -> str:
        """Return an option with its value in lines that fit: a choice is broken between its words."""
        if len(term) <= self.width - self.current_indent:
            return term
        apart = term.replace(" [", "  [").replace("|", "| ")  # as cells and words that `wrapped` may break between
        return wrapped(apart, self.width, indent=self.current_indent).replace("| ", "|").lstrip().replace("  [", " [")

    def write_text(self, text: str) -> None:
        before = len(self.buffer)
        super().write_text(text)
        lines = "".join(self.buffer[before:]).splitlines()
        self.buffer[before:] = [f"{wrapped(line, self.width)}\n" for line in lines]


class _Context(click.Context):
    formatter_class = _Formatter


class _Command(click.Command):
    context_class = _Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; an option whose value may be left out never takes the argument that follows it."""
        optional = {
            name: f"{name}={parameter.flag_value}"
            for parameter in self.params
            if isinstance(parameter, click.Option) and not parameter.is_flag and isinstance(parameter.flag_value, str)
            for name in parameter.opts
        }
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*(optional.get(word, word) for word in args[:end]), *args[end:]])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; no file that an option names to be written is the journal, which comes first or by name."""
        journal = ctx.params.get("place") or ctx.params.get("journal")
        for parameter in self.params:
            file = ctx.params.get(parameter.name or "")
            if parameter.type is WRITTEN_FILE and file is not None:
                check_file(parameter.opts[0], file, () if journal is None else journal_files(journal))
        return super().invoke(ctx)


class CommandGroup(click.Group):
    """A group whose help pages fit the terminal."""

    context_class = _Context


command: Final = partial(click.command, cls=_Command)
"""As `click.command`, for a command whose help pages fit the terminal."""
