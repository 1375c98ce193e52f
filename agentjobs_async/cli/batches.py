"""What the commands do that work with a journal, as coroutines that give the exit code."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from attrs import asdict, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Batch, Journal, JournalRow, Rate, Refusals, State, check_items, run_batch
from agentjobs_async.cli.actions import DEFAULT_ACTIVE, DEFAULT_TIMEOUT, Order
from agentjobs_async.cli.board import PollCounts
from agentjobs_async.cli.execution import Context
from agentjobs_async.cli.listing import markdown_lines, table_lines
from agentjobs_async.cli.outcomes import ExitCode
from agentjobs_async.cli.progress import LostIds, Progress
from agentjobs_async.cli.resumption import resume_command
from agentjobs_async.cli.screen import Screen, shortened
from agentjobs_async.cli.tasks import Refusal, Tasks, rate_text, tell_refusal

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
        stack.enter_context(LostIds(context.screen).shown())
        out = None if order.out is None else stack.enter_context(Path(order.out).open("a", encoding="utf-8"))  # noqa: ASYNC230 - before anything runs
        service = order.order.service
        async with (
            service.session(context.screen.notice, hooks=[polls]) as session,
            Journal.open(order.journal) as journal,
        ):
            refusals = [*tasks.refusals, *(Refusal(item.key, str(why)) for item, why in await journal.add(tasks.items))]
            for refusal in refusals:
                tell_refusal(context.screen, refusal)
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
            progress = Progress(context.screen, journal, polls, order.order.machine, out, order.create_rate)
            try:
                async with batch, progress.shown(batch):
                    await context.interruption.cuts(_take(batch, progress), lambda: _stop(batch, context.screen))
            finally:
                await _sum_up(context, order, journal)
            code = _exit_code(await journal.counts())
            return ExitCode.FAILED if refusals and code == ExitCode.COMPLETED else code


async def _take(batch: Batch, progress: Progress) -> None:
    async for result in batch:
        progress.tell(result)


async def _stop(batch: Batch, screen: Screen) -> None:
    sending = sum(item.state is State.SENDING for item in batch.active())
    if sending:
        screen.notice(
            f"Stopping: up to 10 s for the answers of creates under way ({sending}); Ctrl-C again ends at once."
        )
    await batch.aclose()


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
        screen.command(f"  {resume_command(journal.address, order.options())}")


async def show_what_would_be_sent(context: Context, journal: str, tasks: Tasks) -> int:
    """Tell what a run would send, and what it would refuse and why, without sending anything."""
    refusals: Refusals = check_items(tasks.items)[1]
    known: dict[str, JournalRow] = {}
    looked_into = Journal.open(journal, read_only=True)
    if looked_into.is_shared or Path(journal).exists():  # noqa: ASYNC240 - one look at a name
        async with looked_into as opened:
            refusals = await opened.check(tasks.items)
            known = {row.key: row async for row in opened.rows()}
    refused = {item.key for item, _ in refusals}
    all_refusals = [*tasks.refusals, *(Refusal(item.key, str(why)) for item, why in refusals)]
    for refusal in all_refusals:
        tell_refusal(context.screen, refusal)
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
        if opened.is_shared:
            from agentjobs_async.cli.fleet import hand_out  # noqa: PLC0415 - the extra may not be installed

            await hand_out(opened, key)
    done = "is planned again" if job_id is None else "has its job"
    goes_on = "agentjobs worker, or resume, goes" if opened.is_shared else "agentjobs resume goes"
    context.screen.notice(f"{key} {done}; {goes_on} on with it.")
    return ExitCode.COMPLETED


def _exit_code(counts: Mapping[State, int]) -> ExitCode:
    if any(counts[state] for state in _OPEN):
        return ExitCode.UNFINISHED
    ended = sum(counts.values())
    return ExitCode.COMPLETED if counts[State.COMPLETED] == ended else ExitCode.FAILED


def _tally(counts: Mapping[State, int]) -> str:
    shown = [f"{number} {'unsure' if state is State.UNKNOWN else state}" for state, number in counts.items() if number]
    return ", ".join(shown) or _EMPTY
