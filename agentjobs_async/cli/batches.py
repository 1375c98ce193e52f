"""What the commands do that work with a journal, as coroutines that give the exit code."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import asdict, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Batch, BatchResult, Journal, JournalRow, Rate, Refusals, State, check_items, run_batch
from agentjobs_async.cli.actions import DEFAULT_ACTIVE, DEFAULT_TIMEOUT, Order
from agentjobs_async.cli.board import PollCounts, View, board_lines
from agentjobs_async.cli.execution import Context
from agentjobs_async.cli.listing import markdown_lines, table_lines
from agentjobs_async.cli.outcomes import ExitCode, described
from agentjobs_async.cli.resumption import resume_command
from agentjobs_async.cli.screen import Screen, Styled, shortened, styled_status
from agentjobs_async.cli.tasks import Refusal, Tasks, rate_text

__all__ = ["NO_TASKS", "BatchOrder", "resolve_row", "run_tasks", "show_status", "show_what_would_be_sent"]

NO_TASKS: Final = Tasks((), ())

_OPEN: Final = (State.PLANNED, State.SENDING, State.CREATED, State.UNKNOWN)
_RETRIED: Final = (State.FAILED, State.REJECTED)
_SHOWN: Final = 60
_MOST_UNSURE: Final = 20
_EMPTY: Final = "The journal is empty. A copy is too, where the original had all in its -wal file: copy that as well."
_REFRESH: Final = 0.5


@frozen
class BatchOrder:
    """What `run` and `resume` are told, beside what all commands are.

    Attributes:
        order: The service, the timeout of each item, and whether a machine reads the output.
        journal: The file.
        out: The file that gets each result as a line of JSON; `None` for none.
    """

    order: Order
    journal: str
    max_active: int
    create_rate: Rate | None
    retry_failed: bool
    limit: int | None
    max_failures: int | None
    out: str | None

    def options(self) -> list[str]:
        """Give the options with which another command goes on in the same way; those with defaults are left out."""
        service, timeout = self.order.service, self.order.timeout
        settings = {
            "--project": service.project_id,
            "--max-active": None if self.max_active == DEFAULT_ACTIVE else self.max_active,
            "--create-rate": None if self.create_rate is None else rate_text(self.create_rate),
            "--timeout": None if timeout == DEFAULT_TIMEOUT else "none" if timeout is None else f"{timeout:g}",
            "--max-failures": self.max_failures,
            "--out": self.out,
        }
        given = [str(word) for pair in settings.items() if pair[1] is not None for word in pair]
        return [*service.options(), *given]


async def run_tasks(context: Context, order: BatchOrder, tasks: Tasks) -> int:
    """Plan the tasks and run the journal to its end."""
    polls = PollCounts()
    with ExitStack() as stack:
        stack.enter_context(_LostIds(context.screen).shown())
        out = None if order.out is None else stack.enter_context(Path(order.out).open("a", encoding="utf-8"))  # noqa: ASYNC230 - before anything runs
        service = order.order.service
        async with (
            service.session(context.screen.notice, hooks=[polls]) as session,
            Journal.open(order.journal) as journal,
        ):
            refusals = [*tasks.refusals, *(Refusal(item.key, str(why)) for item, why in await journal.add(tasks.items))]
            for refusal in refusals:
                _tell_refusal(context.screen, refusal)
            if order.retry_failed:
                await _plan_again(journal)
            batch = run_batch(
                session,
                (),
                journal=journal,
                max_active=order.max_active,
                create_rate=order.create_rate,
                timeout=order.order.timeout,
                max_failures=order.max_failures,
                limit=order.limit,
            )
            try:
                await _Progress(context, order, journal, polls, out).follow(batch)
            finally:
                await _sum_up(context, order, journal)
            code = _exit_code(await journal.counts())
            return ExitCode.FAILED if refusals and code == ExitCode.COMPLETED else code


class _LostIds(logging.Handler):
    """Shows the ids that the journal could not take, for they are written down nowhere else."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.CRITICAL)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.notice(("Error: ", "bold red"), record.getMessage())

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show them while the block runs."""
        logger = logging.getLogger("agentjobs_async.batch")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


class _Progress:
    """Shows how a run goes: a board on a terminal, a line for each end in any case."""

    def __init__(self, context: Context, order: BatchOrder, journal: Journal, polls: PollCounts, out: Any) -> None:
        self._context = context
        self._order = order
        self._journal = journal
        self._polls = polls
        self._out = out
        self._counts: Mapping[State, int] = {}
        self._ended = 0
        self._started = time.monotonic()

    async def follow(self, batch: Batch) -> None:
        """Take the results until the end, or until somebody asks to stop."""
        self._counts = await self._journal.counts()
        async with batch:
            counting = asyncio.create_task(self._count())
            try:
                async with self._context.screen.board(self._lines_of(batch)):
                    await self._context.interruption.cuts(self._take(batch), lambda: self._stop(batch))
            finally:
                counting.cancel()

    async def _stop(self, batch: Batch) -> None:
        sending = sum(item.state is State.SENDING for item in batch.active())
        if sending:
            self._context.screen.notice(
                f"Stopping: up to 10 s for the answers of creates under way ({sending}); Ctrl-C again ends at once."
            )
        await batch.aclose()

    async def _take(self, batch: Batch) -> None:
        async for result in batch:
            self._ended += 1
            document = json.dumps(_result_document(result))
            if self._out is not None:
                self._out.write(f"{document}\n")
                self._out.flush()
            if self._order.order.machine:
                self._context.screen.raw_line(document)
            else:
                self._context.screen.line(result.item.key, " ", styled_status(result.outcome), _end_of(result))

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH)
            self._counts = await self._journal.counts()

    def _lines_of(self, batch: Batch) -> Callable[[int, int], Iterator[tuple[Styled, ...]]]:
        def lines(width: int, height: int) -> Iterator[tuple[Styled, ...]]:
            elapsed = time.monotonic() - self._started
            view = View(
                self._counts, batch.stats(), batch.active(), elapsed, self._ended, self._order.create_rate, time.time()
            )
            return board_lines(view, self._polls, width, height)

        return lines


async def _plan_again(journal: Journal) -> None:
    for state in _RETRIED:
        keys = [row.key async for row in journal.rows(state)]
        for key in keys:
            try:
                await journal.retry(key)
            except InvalidInputError:  # it was tried again before
                continue


async def _sum_up(context: Context, order: BatchOrder, journal: Journal) -> None:
    """Tell what the journal holds, what is unsure, and how to go on."""
    screen = context.screen
    counts = await journal.counts()
    screen.notice(_tally(counts))
    unsure = await journal.unknown()
    if unsure:
        screen.notice("May have started an agent, and nobody can tell; look, then use agentjobs resolve:")
    for row in unsure[:_MOST_UNSURE]:
        screen.notice(f"  {row.key}: {shortened(row.prompt, _SHOWN)}")
    if len(unsure) > _MOST_UNSURE:
        screen.notice(f"  … and {len(unsure) - _MOST_UNSURE} more: agentjobs status tells all")
    if order.order.service.emulated and counts[State.CREATED]:
        screen.notice("The emulator ends with this command, and its jobs with it; a real service's jobs would go on.")
    if any(counts[state] for state in (State.PLANNED, State.SENDING, State.CREATED)):
        screen.notice("Go on with:")
        screen.command(f"  {resume_command(order.journal, order.options())}")


async def show_what_would_be_sent(context: Context, journal: str, tasks: Tasks) -> int:
    """Tell what a run would send, and what it would refuse and why, without sending anything."""
    refusals: Refusals = check_items(tasks.items)[1]
    known: dict[str, JournalRow] = {}
    if Path(journal).exists():  # noqa: ASYNC240 - one look at a name
        async with Journal.open(journal, read_only=True) as opened:
            refusals = await opened.check(tasks.items)
            known = {row.key: row async for row in opened.rows()}
    refused = {item.key for item, _ in refusals}
    all_refusals = [*tasks.refusals, *(Refusal(item.key, str(why)) for item, why in refusals)]
    for refusal in all_refusals:
        _tell_refusal(context.screen, refusal)
    new = [item for item in tasks.items if item.key not in refused and item.key not in known]
    planned = [row.item for row in known.values() if row.state is State.PLANNED]
    for item in [*planned, *new]:
        context.screen.line(f"{item.key} would be sent: {shortened(item.prompt, _SHOWN)}")
    context.screen.notice(f"{len(planned) + len(new)} would be sent, {len(all_refusals)} refused.")
    return ExitCode.FAILED if all_refusals else ExitCode.COMPLETED


async def show_status(context: Context, journal: str, form: str) -> int:
    """Write what the journal holds, as a table, as Markdown or as JSON Lines."""
    async with Journal.open(journal, read_only=True) as opened:
        if form == "jsonl":
            async for row in opened.rows():
                document = asdict(row) | {"updated_at": row.updated_at.isoformat()}
                context.screen.raw_line(json.dumps(document))
        else:
            rows = [row async for row in opened.rows()]
            for line in markdown_lines(rows) if form == "markdown" else table_lines(rows):
                context.screen.line(*line)
        counts = await opened.counts()
    if form != "jsonl":
        context.screen.line(_tally(counts))
    return _exit_code(counts)


async def resolve_row(context: Context, journal: str, key: str, job_id: str | None) -> int:
    """Settle an unsure item: by its job, or by planning it again."""
    async with Journal.open(journal) as opened:
        await opened.resolve(key, job_id=job_id, send_again=job_id is None)
    done = "is planned again" if job_id is None else "has its job"
    context.screen.notice(f"{key} {done}; agentjobs resume goes on with it.")
    return ExitCode.COMPLETED


def _exit_code(counts: Mapping[State, int]) -> ExitCode:
    if any(counts[state] for state in _OPEN):
        return ExitCode.UNFINISHED
    ended = sum(counts.values())
    return ExitCode.COMPLETED if counts[State.COMPLETED] == ended else ExitCode.FAILED


def _tally(counts: Mapping[State, int]) -> str:
    shown = [f"{number} {'unsure' if state is State.UNKNOWN else state}" for state, number in counts.items() if number]
    return ", ".join(shown) or _EMPTY


def _tell_refusal(screen: Screen, refusal: Refusal) -> None:
    screen.notice(f"{refusal.name} ", ("refused", "bold red"), f": {refusal.reason}")


def _end_of(result: BatchResult) -> str:
    if result.error is not None:
        return f": {described(result.error)}"
    link = None if result.job is None else result.job.pr_link
    return f": {link}" if link else ", no pull request" if result.outcome == "completed" else ""


def _result_document(result: BatchResult) -> dict[str, Any]:
    job = result.job
    return {
        "key": result.item.key,
        "outcome": result.outcome,
        "job": None if result.ref is None else result.ref.to_token(),
        "pr_link": None if job is None else job.pr_link,
        "error": None if result.error is None else described(result.error),
    }
