"""The commands that run a batch: `run` and `resume`."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from attrs import evolve, frozen

from agentjobs_async import AgentJobsSession
from agentjobs_async.batch import Batch, Journal, State, Where, run_batch
from agentjobs_async.cli import own_journals
from agentjobs_async.cli._output.progress import RunDisplay, UnrecordedIds
from agentjobs_async.cli._output.reports import ItemLines, JsonLines, Report
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.batch_options import BatchOptions
from agentjobs_async.cli.documents import result_document
from agentjobs_async.cli.ending import Ending
from agentjobs_async.cli.item_results import refusal_result
from agentjobs_async.cli.job_changes import SilenceHook
from agentjobs_async.cli.limits import kept_limits
from agentjobs_async.cli.open_jobs import OpenJobs
from agentjobs_async.cli.options import Options
from agentjobs_async.cli.out import Out
from agentjobs_async.cli.plan import RETRIED
from agentjobs_async.cli.planning import planned
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.report_file import ReportFile
from agentjobs_async.cli.tasks import Refusal, Tasks, show_refusal, show_repeats

__all__ = ["NO_TASKS", "item_report", "run_tasks"]

NO_TASKS: Final = Tasks((), ())

_RETRIED: Final = Where(states=RETRIED)


async def run_tasks(context: Context, options: BatchOptions, tasks: Tasks) -> int:
    """Plan the tasks and run the journal to its end."""
    if any(item.project_id is None for item in tasks.items):
        options.shared.service.creating()
    async with AsyncExitStack() as stack:
        run = await _opened(context, options, stack)
        refusals = await run.plan(tasks)
        return await run.to_the_end(refusals)


def item_report(screen: Screen, options: Options) -> Report:
    """Return what shows the progress of items by their keys."""
    return JsonLines(screen) if options.as_json else ItemLines(screen)


async def _opened(context: Context, options: BatchOptions, stack: AsyncExitStack) -> "_Run":
    """Open the file of results, the session and the journal, in this order: invalid options leave no file."""
    screen, service = context.screen, options.shared.service
    stack.enter_context(UnrecordedIds(screen).shown())
    report_file = None if options.report is None else ReportFile.of(options.report)
    out = None if options.out is None else stack.enter_context(Out.opened(options.out))
    is_own = options.journal is None or own_journals.is_own(options.journal)
    report = options.shared.report(screen) if is_own else item_report(screen, options.shared)
    display, jobs = RunDisplay(screen, report, out, limit=options.limit), OpenJobs()
    silence = SilenceHook(lambda: display.show_silence(service.base_url))
    session = await stack.enter_async_context(service.session(screen.notice, hooks=[*display.hooks, jobs, silence]))
    path = options.journal or stack.enter_context(own_journals.new_journal(temporary=service.emulated))
    journal = await stack.enter_async_context(own_journals.open_for_run(path, own=is_own))
    limits = await kept_limits(screen, journal, options.given)
    options = evolve(options, journal=path, shared=evolve(options.shared, timeout=limits.timeout))
    ending = Ending(context, options, journal, jobs, report, display, is_own)
    context.interruption.last_words.append(ending.last_words)
    if report_file is not None:  # whatever ends the run, and before the journal is closed
        stack.push_async_callback(report_file.write_at_the_end, journal, screen)
    return _Run(context, options, session, journal, display, out, ending)


@frozen
class _Run:
    """A run whose session, journal and file of results are open."""

    context: Context
    options: BatchOptions
    session: AgentJobsSession
    journal: Journal
    display: RunDisplay
    out: Out | None
    ending: Ending

    async def plan(self, tasks: Tasks) -> list[Refusal]:
        """Plan the tasks; show and return those that are refused."""
        try:
            refused = await planned(self.context.screen, self.journal, tasks.items, keeps=not self.ending.is_own)
        except asyncio.CancelledError:
            if self.ending.is_own:  # nothing was sent, and the same command plans all of them again
                own_journals.remove(self.journal.address)
            raise
        refusals = [*tasks.refusals, *(Refusal(item.key, str(why), key=item.key) for item, why in refused)]
        for refusal in refusals:
            show_refusal(self.context.screen, refusal)
        show_repeats(self.context.screen, tasks)
        return refusals

    async def to_the_end(self, refusals: Sequence[Refusal]) -> int:
        """Run the journal to its end, and return the exit code."""
        if self.options.max_tries != 1:
            await self.journal.retry(where=_RETRIED, max_tries=self.options.max_tries)
        await self._write_known(refusals)
        fault: Exception | None = None
        try:
            await self._take_results()
        except Exception as error:  # noqa: BLE001 - whatever it is, what the journal holds is shown before
            fault = error
        return await self.ending.show(refusals, fault)

    async def _write_known(self, refusals: Sequence[Refusal]) -> None:
        """Write the ends of earlier runs that the file does not have, and the refusals of this one."""
        results = list(map(refusal_result, refusals))
        if self.out is not None:
            await self.out.read()
            await self.out.fill(self.journal)
            for result in results:
                self.out.write_once(result_document(result))
        if self.options.shared.as_json:  # people have read them already
            for result in results:
                self.ending.report.end(result)

    async def _take_results(self) -> None:
        settings = self.options.of_run(self.journal)
        async with AsyncExitStack() as stack:
            if self.out is not None:
                await stack.enter_async_context(self.out.filled_at_a_fault(self.journal))
            batch = await stack.enter_async_context(run_batch(self.session, (), **settings))
            await stack.enter_async_context(self.display.shown(batch, self.journal))
            await self.context.interruption.run_until_stop(
                self._show_each(batch), lambda: self._stop(batch), self.options.seconds
            )
        may_lack = self.options.run_for is not None or self.context.interruption.exit_code is not None
        if self.out is not None and may_lack:
            await self.out.fill_soon(self.journal)

    async def _show_each(self, batch: Batch) -> None:
        async for result in batch:
            self.display.show_result(result)

    async def _stop(self, batch: Batch) -> None:
        if self.context.interruption.exit_code is None:
            self.context.screen.notice(f"The time is up (--for {self.options.run_for}).")
        sending = sum(item.state is State.SENDING for item in batch.active())
        if sending:
            self.context.screen.notice(
                f"Stopping: up to 10 s for the answers of creates under way ({sending}); Ctrl-C again ends at once."
            )
        await batch.aclose()
