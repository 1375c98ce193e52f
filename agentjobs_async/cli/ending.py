"""The end of a run: its facts are gathered here, and what they mean is shown."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from attrs import frozen

from agentjobs_async import JobRef, JournalError
from agentjobs_async.batch import Journal, State
from agentjobs_async.cli._input.own_journals import count_of_retried
from agentjobs_async.cli._output.endings import Contents, Ended, Facts, HowItRuns, ended
from agentjobs_async.cli._output.hints import resume_command
from agentjobs_async.cli._output.lines import Lines
from agentjobs_async.cli._output.notices import show_notices
from agentjobs_async.cli._output.results import Result, row_result
from agentjobs_async.cli.display import RunDisplay
from agentjobs_async.cli.hooks import OpenJobs
from agentjobs_async.cli.process import Context

_READING_SECONDS: Final = 30.0  # for all rows, as below
_LOOK_SECONDS: Final = 5.0  # a database that is gone does not hold up the end


@frozen
class Ending:
    """The end of a run, in whatever way it ends.

    Attributes:
        context: The screen, and whether a signal stopped the run.
        journal: The open journal.
        how: What was settled before the run began.
        jobs: The open jobs of this run.
        lines: What showed the run.
        display: Has the results whose time was up.
    """

    context: Context
    journal: Journal
    how: HowItRuns
    jobs: OpenJobs
    lines: Lines
    display: RunDisplay

    async def show(self, refused_prompts: int, fault: Exception | None) -> int:
        """Show what the journal holds and what is to be done, and return the exit code.

        Args:
            refused_prompts: How many prompts were refused before they were planned.
            fault: What ended the run early; `None` for nothing.

        Raises:
            Exception: `fault`, after all is shown.
        """
        end: Ended = ended(await self.facts(refused_prompts, fault))
        show_notices(self.context.screen, self.lines, end.notices)
        if fault is not None:
            raise fault
        return end.exit_code

    async def facts(self, refused_prompts: int, fault: Exception | None) -> Facts:
        """Gather what decides how the run ends; a journal that can't be read within seconds counts as unreadable."""
        contents = await self._contents()
        is_at_its_place = self._is_at_its_place
        return Facts(
            how=self.how,
            contents=contents,
            is_at_its_place=is_at_its_place,
            open_jobs=await self._open_jobs(is_readable=contents is not None, is_at_its_place=is_at_its_place),
            refused_prompts=refused_prompts,
            timed_out=list(self.display.timed_out.values()),
            advice=self.display.advice,
            key_error=self.display.refused,
            fault=fault,
            stopped_with=self.context.interruption.exit_code,
        )

    def last_words(self) -> None:
        """Show, before a second signal ends the process, what nothing else shows."""
        is_at_its_place = self._is_at_its_place
        for ref in self.jobs.unrecorded if is_at_its_place else self.jobs.all:
            self.context.screen.write_unbuffered(
                f"{ref.to_token()} was created, and the journal may not have it: keep this."
            )
        if self.how.can_be_resumed and is_at_its_place:
            self.context.screen.write_unbuffered(f"Resume with: {resume_command(self.how.address, self.how.to_resume)}")

    @property
    def _is_at_its_place(self) -> bool:
        return self.journal._opened.is_at_location

    async def _contents(self) -> Contents | None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                counts = await self.journal.counts()
                unknown = await self.journal.unknown()
                retried = await count_of_retried(self.journal, self.how.max_tries)
        except (JournalError, TimeoutError):
            return None
        results = await self._all_results() if self.how.is_own else []
        return Contents(counts, unknown, retried, tuple(results))

    async def _all_results(self) -> list[Result]:
        """Return all items, or as many as can be read in time: the summary counts the others as well."""
        timed_out = self.display.timed_out
        results: list[Result] = []
        with suppress(JournalError, TimeoutError):
            async with asyncio.timeout(_READING_SECONDS):
                async for page in self.journal.rows().pages():
                    results += [timed_out.get(row.key) or row_result(row) for row in page]
        return results

    async def _open_jobs(self, *, is_readable: bool, is_at_its_place: bool) -> Sequence[JobRef]:
        """Return the jobs that continue where the journal can't tell them; a removed file can still be read."""
        if is_readable and is_at_its_place:
            return ()
        refs = dict.fromkeys(self.jobs.all)
        if is_readable:
            with suppress(JournalError, TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    async for row in self.journal.rows(State.ACTIVE):
                        if row.job_id is not None:
                            refs[JobRef(row.project_id, row.job_id)] = None
        return list(refs)
