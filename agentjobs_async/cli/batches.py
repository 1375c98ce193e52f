"""What the commands do that work with a journal, as coroutines that give the exit code."""

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Final

from attrs import asdict

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async.batch import Batch, Journal, JournalRow, Refusals, State, check_items, run_batch
from agentjobs_async.cli._output.listing import markdown_lines, table_lines
from agentjobs_async.cli._output.live import PollCounts
from agentjobs_async.cli._output.progress import RunDisplay, UnrecordedIds
from agentjobs_async.cli._output.screen import Screen, shortened
from agentjobs_async.cli.documents import refusal_event
from agentjobs_async.cli.ending import BatchOptions, Ending, exit_code_of_counts, tally
from agentjobs_async.cli.in_hand import JobsInHand
from agentjobs_async.cli.job_events import JobEvents
from agentjobs_async.cli.out import Out
from agentjobs_async.cli.outcomes import ExitCode
from agentjobs_async.cli.planning import planned
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.tasks import Refusal, Tasks, tell_refusal

__all__ = [
    "NO_TASKS",
    "abandon_row",
    "resolve_row",
    "run_tasks",
    "show_status",
    "show_what_would_be_sent",
]

NO_TASKS: Final = Tasks((), ())

_RETRIED: Final = (State.FAILED, State.REJECTED)
_SHOWN: Final = 60


async def run_tasks(context: Context, order: BatchOptions, tasks: Tasks) -> int:
    """Plan the tasks and run the journal to its end."""
    screen = context.screen
    polls, in_hand = PollCounts(), JobsInHand()
    events = JobEvents(lambda document: screen.raw_line(json.dumps(document))) if order.order.machine else None
    with ExitStack() as stack:
        stack.enter_context(UnrecordedIds(screen).shown())
        out = None if order.out is None else stack.enter_context(Out.opened(order.out))
        async with (
            order.order.service.session(
                screen.notice, hooks=[polls, in_hand, *([events] if events else [])]
            ) as session,
            Journal.open(order.journal) as journal,
        ):
            refusals = await _refusals(screen, journal, tasks)
            await _write_what_is_known(order, journal, out, refusals, screen)
            if order.retry_failed:
                await _plan_again(journal)
            ending = Ending(context, order, journal, in_hand)
            context.interruption.last_words.append(ending.last_words)
            display = RunDisplay(screen, journal, polls, out, order.create_rate, events)
            fault: Exception | None = None
            try:
                await _run(context, run_batch(session, (), **order.settings(journal)), display, out)
            except Exception as error:  # noqa: BLE001 - whatever it is, what the journal holds is said before
                fault = error
            return await ending.summed_up(refusals, fault)


async def _refusals(screen: Screen, journal: Journal, tasks: Tasks) -> list[Refusal]:
    """Plan the tasks; tell and return those that are refused."""
    refused = await planned(screen, journal, tasks.items)
    refusals = [*tasks.refusals, *(Refusal(item.key, str(why), key=item.key) for item, why in refused)]
    for refusal in refusals:
        tell_refusal(screen, refusal)
    return refusals


async def _write_what_is_known(
    order: BatchOptions, journal: Journal, out: Out | None, refusals: Sequence[Refusal], screen: Screen
) -> None:
    """Write what ended in earlier runs and the file does not have, and what was refused now."""
    documents = list(map(refusal_event, refusals))
    if out is not None:
        await out.read()
        await out.fill(journal)
        for document in documents:
            out.write_once(document)
    for document in documents if order.order.machine else ():
        screen.raw_line(json.dumps(document))


async def _run(context: Context, batch: Batch, display: RunDisplay, out: Out | None) -> None:
    async with AsyncExitStack() as stack:
        if out is not None:
            await stack.enter_async_context(out.filled_at_a_fault(display.journal))
        await stack.enter_async_context(batch)
        await stack.enter_async_context(display.shown(batch))
        await context.interruption.run_until_stop(_take(batch, display), lambda: _stop(batch, context.screen))
    if out is not None and context.interruption.exit_code is not None:
        await out.fill_soon(display.journal)


async def _take(batch: Batch, display: RunDisplay) -> None:
    async for result in batch:
        await display.show_result(result, batch)


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


async def show_what_would_be_sent(context: Context, journal: str, tasks: Tasks) -> int:
    """Show what a run would send, and what it would refuse and why, without sending anything."""
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
            if form == "markdown":
                for line in markdown_lines(rows):
                    context.screen.whole_line(*line)
            else:
                for line in table_lines(rows, context.screen.width):
                    context.screen.line(*line)
        counts = await opened.counts()
    if form != "jsonl":
        context.screen.line(tally(counts))
    return exit_code_of_counts(counts)


async def resolve_row(context: Context, journal: str, key: str, job_id: str | None) -> int:
    """Settle an unknown item: by its job, or by planning it again."""
    async with Journal.open(journal) as opened:
        found = JobRef.from_token(job_id) if job_id is not None and "/" in job_id else job_id
        await opened.resolve(key, job_id=found, send_again=job_id is None)
        if opened.is_shared:
            from agentjobs_async.cli.fleet import hand_out  # noqa: PLC0415 - the extra may not be installed

            await hand_out(opened, key)
    done = "is planned again" if job_id is None else "has its job"
    goes_on = "agentjobs worker, or resume, goes" if opened.is_shared else "agentjobs resume goes"
    context.screen.notice(f"{key} {done}; {goes_on} on with it.")
    return ExitCode.COMPLETED


async def abandon_row(context: Context, journal: str, key: str) -> int:
    """End an item as failed that can't be settled in any other way."""
    async with Journal.open(journal) as opened:
        await opened.abandon(key)
    context.screen.notice(f"{key} counts as failed from now on; an agent that is at work goes on.")
    return ExitCode.COMPLETED
