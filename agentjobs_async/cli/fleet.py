"""The commands of many machines that share a journal: `submit` and `worker`."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import attrs
from attrs import frozen

from agentjobs_async import AgentJobsSession, InvalidInputError, JournalError
from agentjobs_async.batch import BatchResult, BatchWorker, FleetLimits, Journal, State
from agentjobs_async.cli._output.progress import RunDisplay, UnrecordedIds
from agentjobs_async.cli.batches import item_report
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.item_results import outcomes_of
from agentjobs_async.cli.limits import rate_text
from agentjobs_async.cli.options import Options
from agentjobs_async.cli.out import Out
from agentjobs_async.cli.outcomes import ExitCode, exit_code
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.queue_logs import QueueLogs
from agentjobs_async.cli.tasks import Refusal, Tasks, show_refusal, show_repeats
from agentjobs_async.engines.procrastinate import submit, work_off

__all__ = ["SubmitOptions", "WorkerOptions", "submit_tasks", "work"]


_LOOK_SECONDS: Final = 2.0  # between two looks whether all has ended; one takes some 50 ms at 100,000 items


@frozen
class SubmitOptions:
    """The options of `submit`.

    Attributes:
        journal: The URL of the journal.
        chunk: How many keys one task of the queue carries.
        limits: The limits of all workers that change.
    """

    journal: str
    chunk: int
    limits: Mapping[str, Any]


@frozen
class WorkerOptions:
    """The options of `worker`.

    Attributes:
        shared: Those that other commands have too; the timeout is that of each item.
        journal: The URL of the journal.
        chunks: How many tasks of the queue are worked on at once.
        max_sending: How many creates are in flight at once; `None` takes what the journal keeps.
        limits: The limits of all workers that change.
        out: The file that gets each result as a line of JSON; `None` for none.
        until_done: Whether the worker ends once every item of the journal has ended.
        seconds: After how many seconds it stops itself; `None` for never.
    """

    shared: Options
    journal: str
    chunks: int
    max_sending: int | None
    limits: Mapping[str, Any]
    out: str | None
    until_done: bool
    seconds: float | None


async def submit_tasks(context: Context, options: SubmitOptions, tasks: Tasks) -> int:
    """Plan the tasks and hand them to the workers."""
    async with _shared(options.journal) as journal:
        limits = await _changed_limits(journal, options.limits)
        refused = await submit(tasks.items, journal=journal, chunk=options.chunk)
    refusals = [*tasks.refusals, *(Refusal(item.key, str(why), key=item.key) for item, why in refused)]
    for refusal in refusals:
        show_refusal(context.screen, refusal)
    show_repeats(context.screen, tasks)
    context.screen.notice(
        f"{len(tasks.items) - len(refused)} submitted, {len(refusals)} refused; {_limits_text(limits)}."
    )
    return ExitCode.FAILED if refusals else ExitCode.COMPLETED


async def work(context: Context, options: WorkerOptions) -> int:
    """Run submitted items until a signal stops the worker, or until all have ended, with their exit code."""
    async with AsyncExitStack() as stack:
        screen = context.screen
        stack.enter_context(UnrecordedIds(screen).shown())
        out = None if options.out is None else stack.enter_context(Out.opened(options.out))
        journal = await stack.enter_async_context(_shared(options.journal))
        limits = await _changed_limits(journal, options.limits)
        display = RunDisplay(screen, item_report(screen, options.shared), out)
        session = await stack.enter_async_context(options.shared.service.session(screen.notice, hooks=display.hooks))
        stack.enter_context(QueueLogs(screen).shown())
        screen.notice(f"Working on {journal.name}; {_limits_text(limits)}. Ctrl-C stops.")
        await _work_off(context, options, session, journal, display)
        counts = await _ended_counts(journal) if options.until_done else None
    if counts is not None:
        screen.notice(tally(counts) if any(counts.values()) else "The journal holds no items.")
        return exit_code(outcomes_of(counts))
    context.screen.notice("Stopped; what has not ended was given back.")
    return ExitCode.UNFINISHED if options.until_done else ExitCode.COMPLETED


async def _work_off(
    context: Context, options: WorkerOptions, session: AgentJobsSession, journal: Journal, display: RunDisplay
) -> None:
    """Run the worker and show its results; a file of results that cannot be written stops it."""
    stop = asyncio.Event()
    results: asyncio.Queue[BatchResult | None] = asyncio.Queue()
    worker = BatchWorker(
        session,
        journal,
        max_sending="kept" if options.max_sending is None else options.max_sending,
        timeout=options.shared.timeout if options.shared.has_timeout else "kept",
        on_result=results.put_nowait,
    )

    async def stopping() -> None:
        stop.set()

    async with worker, display.shown(worker, journal):
        showing = asyncio.create_task(_show_each(results, display))
        showing.add_done_callback(lambda _: stop.set())
        looking = asyncio.create_task(_stop_at_the_end(worker, stop)) if options.until_done else None
        ending = None if options.seconds is None else asyncio.get_running_loop().call_later(options.seconds, stop.set)
        try:
            working = work_off(worker, chunks=options.chunks, stop=stop)
            await context.interruption.run_until_stop(working, stopping)
        finally:
            for timer in (looking, ending):
                if timer is not None:
                    timer.cancel()
            results.put_nowait(None)
            await asyncio.wait([showing])
        showing.result()


async def _stop_at_the_end(worker: BatchWorker, stop: asyncio.Event) -> None:
    """Set `stop` once every item of the journal has ended, by whichever worker."""
    while await _ended_counts(worker.journal) is None:  # noqa: ASYNC110 - other processes end items
        await asyncio.sleep(_LOOK_SECONDS)
    # The result of an item that has just ended is shown after its end is recorded. No longer: the job of an item that
    # was abandoned may never end.
    await asyncio.sleep(_LOOK_SECONDS)
    stop.set()


async def _ended_counts(journal: Journal) -> Mapping[State, int] | None:
    """Return how many items ended in which state; `None` while one has not, or while the database is gone."""
    with suppress(JournalError):
        counts = await journal.counts()
        if not any(number for state, number in counts.items() if state.is_open):
            return counts
    return None


async def _show_each(results: asyncio.Queue[BatchResult | None], display: RunDisplay) -> None:
    while (result := await results.get()) is not None:
        display.show_result(result)


def _shared(address: str) -> Journal:
    journal = Journal.open(address)
    if not journal.is_shared:
        raise InvalidInputError("--journal: a file serves one machine (agentjobs run); give a URL of PostgreSQL")
    return journal


async def _changed_limits(journal: Journal, changes: Mapping[str, Any]) -> FleetLimits:
    limits = attrs.evolve(await journal.limits(), **changes)
    if changes:
        await journal.set_limits(limits)
    return limits


def _limits_text(limits: FleetLimits) -> str:
    active = "any number" if limits.max_active is None else f"at most {limits.max_active}"
    creates = "no limit of creates" if limits.create_rate is None else f"creates at {rate_text(limits.create_rate)}"
    polls = "" if limits.polls_per_second is None else f", at most {limits.polls_per_second:g} polls per second"
    return f"{active} active over all workers, {creates}{polls}"
