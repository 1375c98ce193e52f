"""The commands of many machines that share a journal: `submit` and `worker`."""

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import click

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.batch import BatchWorker, Journal, Limits
from agentjobs_async.cli._input.limits import changed_limits, rate_words
from agentjobs_async.cli._input.options import (
    COUNT,
    JSON_OPTION,
    LIMITS,
    WholeNumber,
    input_options,
    journal_argument,
    journal_option,
    limit_options,
)
from agentjobs_async.cli._input.prompts import Prompts, show_all_invalid
from agentjobs_async.cli._input.service import Service, check_service
from agentjobs_async.cli._input.service_options import OTHER_SERVICE, project_option, service_options
from agentjobs_async.cli._output.endings import tally
from agentjobs_async.cli._output.lines import ItemLines, JsonLines
from agentjobs_async.cli._output.logs import LogLines
from agentjobs_async.cli._output.outcomes import ExitCode, exit_code
from agentjobs_async.cli._output.results import outcomes_of
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.display import RunDisplay
from agentjobs_async.cli.help import command, exit_codes, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.engines._connector import database_error
from agentjobs_async.engines._ending import ended_counts
from agentjobs_async.engines.procrastinate import submit as submit_items
from agentjobs_async.engines.procrastinate import work_off

_JOURNAL: Final = "The journal of all workers, such as postgresql+psycopg://host/database."
_OF_A_WORKER: Final = ("max_sending", "timeout")  # the other limits apply to all of them, and stay in the journal
_POOL: Final = "psycopg.pool"
_OUTAGE_SECONDS: Final = 60.0  # since the last error: the next one belongs to another outage; tries are seconds apart
_LONGEST_REASON: Final = 200  # characters


@command(
    "submit",
    journal_exit_codes("all were submitted", "some were refused, the others submitted"),
    "agentjobs submit 'Fix it' --journal postgresql:///jobs",
)
@input_options
@journal_option(_JOURNAL)
@project_option("Project of prompts that name none.")
@limit_options(**LIMITS)
@click.option(
    "--chunk",
    metavar="N",
    type=WholeNumber(1, 1000),
    default=100,
    show_default=True,
    help="Items in a chunk, which one worker runs.",
)
def submit(prompts: Prompts, journal: str, project_id: str | None, limits: Mapping[str, Any], chunk: int) -> int:
    """Plan an item for each PROMPT, and hand them to the workers that use the same journal.

    Submitting the same again continues where a submission was cut off. The limits apply to all workers, at once.
    """
    return run_action(lambda context: _submit(context, prompts, journal, limits, project_id=project_id, chunk=chunk))


async def _submit(
    context: Context, prompts: Prompts, address: str, changes: Mapping[str, Any], *, project_id: str | None, chunk: int
) -> int:
    async with _shared(address) as journal:
        limits = await changed_limits(journal, changes)
        invalid_items = await submit_items(prompts.items, journal=journal, project_id=project_id, chunk=chunk)
    invalid = show_all_invalid(context.screen, prompts, invalid_items)
    context.screen.notice(
        f"{len(prompts.items) - len(invalid_items):,} submitted, {len(invalid):,} refused; {_limits_text(limits)}."
    )
    return ExitCode.FAILED if invalid else ExitCode.COMPLETED


@command(
    "worker",
    exit_codes("with --until-done, all items are completed or abandoned"),
    "agentjobs worker postgresql:///jobs --until-done",
)
@journal_argument(_JOURNAL, "agentjobs worker postgresql+psycopg://host/database", exists=False)
@click.option(
    "--chunks",
    metavar="N",
    type=COUNT,
    default=100,
    show_default=True,
    help="Chunks run at once: see submit --chunk.",
)
@limit_options(**LIMITS)
@click.option("--until-done", is_flag=True, help="End once every item of the journal has ended.")
@service_options(emulator=True)
@OTHER_SERVICE
@JSON_OPTION
def worker(journal: str, **how: Any) -> int:
    """Create and wait for what agentjobs submit planned, beside any number of other workers, until it is stopped.

    With --until-done it ends when all items have ended, those of the other workers too, with the code of them all.

    At Ctrl-C, SIGTERM or SIGHUP it starts nothing more, waits up to 10 s for responses, returns the rest to the queue,
    and ends within 30 s. What a worker that dies was sending is unknown: at most as many as --max-sending; see
    agentjobs resolve.

    --max-sending and --timeout are this worker's own; the other limits apply to all workers, at once.
    """
    return run_action(lambda context: _work(context, journal, **how))


async def _work(
    context: Context,
    address: str,
    *,
    service: Service,
    limits: Mapping[str, Any],
    chunks: int,
    until_done: bool,
    as_json: bool,
    other_service: bool,
) -> int:
    """Run submitted items until a signal stops the worker, or until all have ended, with their exit code."""
    async with AsyncExitStack() as stack:
        screen = context.screen
        stack.enter_context(LogLines(screen, "agentjobs_async.batch", level=logging.CRITICAL).shown())
        journal = await stack.enter_async_context(_shared(address))
        of_all = {name: value for name, value in limits.items() if name not in _OF_A_WORKER}
        shown = _limits_text(await changed_limits(journal, of_all))
        display = RunDisplay(screen, JsonLines(screen) if as_json else ItemLines(screen))
        session = await stack.enter_async_context(service.session(screen.notice, hooks=display.hooks))
        await check_service(session, journal, screen.notice, other_service=other_service)
        stack.enter_context(_QueueLogs(screen).shown())
        screen.notice(f"Working on {journal.name}; {shown}. Ctrl-C stops.")
        kept = {name: limits.get(name, "kept") for name in _OF_A_WORKER}
        worker = BatchWorker(session, journal, on_result=display.show_result, **kept)
        await _work_off(context, worker, display, chunks=chunks, until_done=until_done)
        counts = await ended_counts(journal) if until_done else None
    if counts is not None:
        screen.notice(tally(counts) if any(counts.values()) else "The journal holds no items.")
        return exit_code(outcomes_of(counts))
    context.screen.notice("Stopped; what has not ended was given back.")
    return ExitCode.UNFINISHED if until_done else ExitCode.COMPLETED


async def _work_off(
    context: Context,
    worker: BatchWorker,
    display: RunDisplay,
    *,
    chunks: int,
    until_done: bool,
) -> None:
    """Run the worker until it is stopped, or all items of the journal have ended."""
    stop = asyncio.Event()

    async def stopping() -> None:
        stop.set()

    async with worker, display.shown(worker, worker.journal):
        working = work_off(worker, chunks=chunks, until_done=until_done, stop=stop)
        await context.interruption.run_until_stop(working, stopping)


def _shared(address: str) -> Journal:
    journal = Journal.open(address)
    if not journal.is_shared:
        raise InvalidInputError("--journal: a file serves one machine (agentjobs run); give a URL of PostgreSQL")
    return journal


def _limits_text(limits: Limits) -> str:
    active = "any number" if limits.max_active is None else f"at most {limits.max_active}"
    creates = "no limit of creates" if limits.create_rate is None else rate_words(limits.create_rate)
    polls = "" if limits.polls_per_second is None else f", at most {limits.polls_per_second:g} polls per second"
    return f"{active} active over all workers, {creates}{polls}"


class _QueueLogs(LogLines):
    """Shows that the database can't be used, once, in place of the warnings and tracebacks of the queue's libraries."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen, _POOL, "procrastinate", level=logging.WARNING)
        self._last: float | None = None

    def words(self, record: logging.LogRecord) -> str | None:
        """Return the first error of an outage; outside of one, the queue's other warnings, without a traceback."""
        now = time.monotonic()
        is_known = self._last is not None and now - self._last < _OUTAGE_SECONDS
        reason = database_error(record)
        if reason is not None:
            self._last = now
        if is_known or (reason is None and record.name == _POOL):  # the pool's other warnings call for no action
            return None
        if reason is None:
            return one_line(record.getMessage(), _LONGEST_REASON)
        why = one_line(reason, _LONGEST_REASON)
        return f"The database can't be used ({why}). The worker waits for it, and continues by itself."
