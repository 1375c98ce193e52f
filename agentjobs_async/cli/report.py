"""The commands `report` and `serve`: a journal as a page or a file; and the report of a run that ends."""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from io import StringIO
from typing import Any, Final, Self

import click
from attrs import frozen

from agentjobs_async import AgentJobsError, InvalidInputError
from agentjobs_async.batch import Journal
from agentjobs_async.cli._input.options import (
    PROMPTS_OPTION,
    WRITTEN_FILE,
    WholeNumber,
    all_tries_option,
    journal_argument,
)
from agentjobs_async.cli._output.files import whole_file
from agentjobs_async.cli._output.logs import LogLines
from agentjobs_async.cli._output.outcomes import ExitCode, described
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli._output.streams import without_commands_in_json
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.report import board, board_token
from agentjobs_async.report.html import check_installed
from agentjobs_async.report.serving import running
from agentjobs_async.report.writing import FORMATS, check_format, format_of, write_report

_LONGEST_SECONDS: Final = 120.0  # at the end of a run: a database that is gone does not hold it up for ever


@command(
    "report",
    journal_exit_codes("the report is written, whatever it says"),
    "agentjobs report run.db --out report.html",
)
@journal_argument("The journal; a run may be using it.", "agentjobs report FILE --out report.html")
@click.option("--out", metavar="FILE", type=WRITTEN_FILE, help="Where to write.  [default: standard output]")
@PROMPTS_OPTION
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="A page, a table, or a line for each item.  [default: by the suffix of --out, else html]",
)
@all_tries_option
def report(journal: str, out: str | None, form: str | None, *, prompts: bool, all_tries: bool) -> int:
    """Write what the journal FILE holds as a page to look at, which fetches nothing, or as a file for other programs.

    The page begins with how the journal stands. It has figures, charts and a table to search, and for each item the
    command that settles or retries it.
    """
    if out is not None:
        file = ReportFile.of(out, form, prompts=prompts, all_tries=all_tries)
        return run_action(lambda context: _write_file(context, journal, file))
    if form in {None, "html"} and sys.stdout.isatty():
        raise InvalidInputError("a page is not for a terminal: give --out report.html, or --format markdown")
    check_format(form or "html", all_tries=all_tries)
    how = {"format": form or "html", "prompts": prompts, "all_tries": all_tries}
    return run_action(lambda context: _write_to_screen(context, journal, how))


@frozen
class ReportFile:
    """The file of a report, and the form of it.

    Attributes:
        file: The path of the file.
        form: The format.
        prompts: Whether it shows the prompts.
        all_tries: Whether it has earlier tries of each item, too.
    """

    file: str
    form: str
    prompts: bool = True
    all_tries: bool = False

    @classmethod
    def of(cls, file: str, form: str | None = None, *, prompts: bool = True, all_tries: bool = False) -> Self:
        """Return the file of a report; without `form`, its suffix names the format.

        Raises:
            InvalidInputError: The format does not show earlier tries.
            ModuleNotFoundError: The extra `report` is not installed, and a page needs it.
        """
        form = form or format_of(file)
        check_format(form, all_tries=all_tries)
        return cls(file, form, prompts, all_tries)

    async def write(self, journal: Journal) -> None:
        """Write the report of an open journal; what was in the file before is replaced once all is written.

        Raises:
            AgentJobsError: The file can't be written.
            JournalError: The journal can't be read.
        """
        with whole_file(self.file) as stream:
            await write_report(journal, stream, format=self.form, prompts=self.prompts, all_tries=self.all_tries)

    async def write_at_the_end(self, journal: Journal, screen: Screen) -> None:
        """Write the report of a run that ends; what goes wrong is shown, and changes nothing about the run's end."""
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                await self.write(journal)
        except AgentJobsError as error:
            screen.notice(f"The report was not written: {described(error)}")
        except TimeoutError:
            screen.notice("The report was not written: the journal does not answer.")
        else:
            screen.notice(f"The report is in {self.file}.")


async def _write_to_screen(context: Context, journal: str, how: Mapping[str, Any]) -> int:
    """Write the report of a journal to standard output; `how` has settings of `write_report`."""
    text = StringIO()
    async with Journal.open(journal, read_only=True) as opened:
        await write_report(opened, text, **how)
    # An escape by `raw_text` would end a line's being JSON.
    written = without_commands_in_json(text.getvalue()) if how["format"] == "jsonl" else text.getvalue()
    context.screen.raw_text(written)
    return ExitCode.COMPLETED


async def _write_file(context: Context, journal: str, file: ReportFile) -> int:
    """Write the report of a journal to a file."""
    async with Journal.open(journal, read_only=True) as opened:
        await file.write(opened)
    context.screen.notice(f"The report is in {file.file}.")
    return ExitCode.COMPLETED


@command("serve", journal_exit_codes(None), "agentjobs serve run.db --port 0")
@journal_argument("The journal; a run or workers may be using it.", "agentjobs serve FILE")
@click.option(
    "--port", metavar="N", type=WholeNumber(0, 65535), default=8765, show_default=True, help="0 takes any that is free."
)
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let the page retry, resolve and abandon items, with the token of the printed address.",
)
@PROMPTS_OPTION
def serve(journal: str, port: int, *, allow_actions: bool, prompts: bool) -> int:
    """Show what the journal FILE holds as a page that follows it: changes are there within a second.

    It is the page of agentjobs report. Actions are written to standard error. Only this machine reaches the page:
    another one does by ssh -L 8765:localhost:8765 and the name of this one.
    """
    check_installed()
    return run_action(lambda context: _serve(context, journal, port, allow_actions=allow_actions, prompts=prompts))


async def _serve(context: Context, journal: str, port: int, *, allow_actions: bool, prompts: bool) -> int:
    """Serve the page of a journal until a signal stops it.

    Args:
        context: The command's output and signals.
        journal: The file or URL.
        port: The port; 0 chooses a free one.
        allow_actions: Whether the page may change items.
        prompts: Whether the page has the prompts.

    Raises:
        InvalidInputError: The port is in use, or the user may not use it.
        JournalError: The journal can't be read.
    """
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(Journal.open(journal, read_only=True))
        app = board(opened, allow_actions=allow_actions, prompts=prompts)
        try:
            bound = await stack.enter_async_context(running(app, port))
        except OSError as error:
            defect = f"port {port}: {os.strerror(error.errno or 0)}; give another --port (0 takes any that is free)"
        else:
            stack.enter_context(LogLines(context.screen, "agentjobs_async.report").shown())
            secret = f"#token={board_token(app)}" if allow_actions else ""
            context.screen.notice(f"The live page of {opened.name}; Ctrl-C stops it.")
            context.screen.raw_line(f"http://127.0.0.1:{bound}/{secret}")
            await context.interruption.stop_requested()
            return ExitCode.COMPLETED
    raise InvalidInputError(defect)
