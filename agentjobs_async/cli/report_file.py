"""The file of a report: checked before anything is sent, written at the end of a run or by `agentjobs report`."""

import asyncio
from io import StringIO
from typing import Final, Self

from attrs import frozen

from agentjobs_async import AgentJobsError, JournalError
from agentjobs_async.batch import Journal
from agentjobs_async.cli._output.files import whole_file
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli._output.workflow_commands import without_commands_in_json
from agentjobs_async.cli.outcomes import ExitCode, described
from agentjobs_async.cli.process import Context
from agentjobs_async.report.writing import check_format, format_of, write_report

__all__ = ["ReportFile", "write_file", "write_to_screen"]

_LONGEST_SECONDS: Final = 120.0  # at the end of a run: a database that is gone does not hold it up for ever


@frozen
class ReportFile:
    """The file of a report, and the form of it.

    Attributes:
        file: The path of the file.
        form: The format.
        prompts: Whether it shows the prompts.
    """

    file: str
    form: str
    prompts: bool = True

    @classmethod
    def of(cls, file: str, form: str | None = None, *, prompts: bool = True) -> Self:
        """Return the file of a report; without `form`, its suffix names the format.

        Raises:
            ModuleNotFoundError: The extra `report` is not installed, and a page needs it.
        """
        check_format(form or format_of(file))
        return cls(file, form or format_of(file), prompts)

    async def write(self, journal: Journal) -> None:
        """Write the report of an open journal; what was in the file before is replaced once all is written.

        Raises:
            AgentJobsError: The file can't be written.
            JournalError: The journal can't be read.
        """
        with whole_file(self.file) as stream:
            await write_report(journal, stream, format=self.form, prompts=self.prompts)

    async def write_at_the_end(self, journal: Journal, screen: Screen) -> None:
        """Write the report of a run that ends; what goes wrong is shown, and changes nothing about the run's end."""
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                await self.write(journal)
        except (AgentJobsError, JournalError) as error:
            screen.notice(f"The report was not written: {described(error)}")
        except TimeoutError:
            screen.notice("The report was not written: the journal does not answer.")
        else:
            screen.notice(f"The report is in {self.file}.")


async def write_to_screen(context: Context, journal: str, form: str, *, prompts: bool) -> int:
    """Write the report of a journal to standard output."""
    text = StringIO()
    async with Journal.open(journal, read_only=True) as opened:
        await write_report(opened, text, format=form, prompts=prompts)
    # An escape by `raw_text` would end the trace's being JSON.
    told = without_commands_in_json(text.getvalue()) if form == "trace" else text.getvalue()
    context.screen.raw_text(told)
    return ExitCode.COMPLETED


async def write_file(context: Context, journal: str, file: ReportFile) -> int:
    """Write the report of a journal to a file."""
    async with Journal.open(journal, read_only=True) as opened:
        await file.write(opened)
    context.screen.notice(f"The report is in {file.file}.")
    return ExitCode.COMPLETED
