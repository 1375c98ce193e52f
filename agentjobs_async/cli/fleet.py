"""What the commands do that share a journal with other machines, as coroutines that give the exit code."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import attrs
from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import BatchResult, BatchWorker, FleetLimits, Journal
from agentjobs_async.cli._output.live import PollCounts
from agentjobs_async.cli._output.progress import RunDisplay, UnrecordedIds
from agentjobs_async.cli.actions import Options
from agentjobs_async.cli.job_events import JobEvents
from agentjobs_async.cli.out import Out
from agentjobs_async.cli.outcomes import ExitCode
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.tasks import Refusal, Tasks, tell_refusal
from agentjobs_async.engines.procrastinate import defer, submit, work_off

__all__ = ["SubmitOrder", "WorkerOrder", "hand_out", "submit_tasks", "work"]


@frozen
class SubmitOrder:
    """What `submit` is told.

    Attributes:
        journal: The address.
        chunk: How many keys one task of the queue carries.
        limits: The limits of all workers that change.
    """

    journal: str
    chunk: int
    limits: Mapping[str, Any]


@frozen
class WorkerOrder:
    """What `worker` is told, beside what all commands are.

    Attributes:
        order: The service, the timeout of each item, and whether a machine reads the output.
        journal: The address.
        chunks: How many tasks of the queue it works on at once.
        max_sending: How many creates are under way at once.
        out: The file that gets each result as a line of JSON; `None` for none.
    """

    order: Options
    journal: str
    chunks: int
    max_sending: int
    out: str | None


async def submit_tasks(context: Context, order: SubmitOrder, tasks: Tasks) -> int:
    """Plan the tasks and hand them to the workers."""
    async with _shared(order.journal) as journal:
        if order.limits:
            await journal.set_limits(attrs.evolve(await journal.limits(), **order.limits))
        refused = await submit(tasks.items, journal=journal, chunk=order.chunk)
        limits = await journal.limits()
    refusals = [*tasks.refusals, *(Refusal(item.key, str(why), key=item.key) for item, why in refused)]
    for refusal in refusals:
        tell_refusal(context.screen, refusal)
    context.screen.notice(f"{len(tasks.items) - len(refused)} submitted, {len(refusals)} refused; {_words(limits)}.")
    return ExitCode.FAILED if refusals else ExitCode.COMPLETED


async def work(context: Context, order: WorkerOrder) -> int:
    """Work off what is submitted, until somebody asks to stop."""
    polls = PollCounts()
    stop = asyncio.Event()

    async def stopping() -> None:
        stop.set()

    with ExitStack() as stack:
        stack.enter_context(UnrecordedIds(context.screen).shown())
        out = None if order.out is None else stack.enter_context(Out.opened(order.out))
        events = JobEvents(lambda document: context.screen.raw_line(json.dumps(document)))
        hooks = [polls, *[events] * order.order.machine]
        async with (
            order.order.service.session(context.screen.notice, hooks=hooks) as session,
            _shared(order.journal) as journal,
        ):
            limits = await journal.limits()
            told_to = events if order.order.machine else None
            display = RunDisplay(context.screen, journal, polls, out, limits.create_rate, told_to)
            results: asyncio.Queue[BatchResult | None] = asyncio.Queue()
            context.screen.notice(f"Working on {journal.name}; {_words(limits)}. Ctrl-C stops.")
            worker = BatchWorker(
                session,
                journal,
                max_sending=order.max_sending,
                timeout=order.order.timeout,
                on_result=results.put_nowait,
            )
            async with worker, display.shown(worker):
                telling = asyncio.create_task(_tell(results, display, worker))
                telling.add_done_callback(lambda _: stop.set())  # a file for results that can't be written ends it
                try:
                    await context.interruption.run_until_stop(
                        work_off(worker, chunks=order.chunks, stop=stop), stopping
                    )
                finally:
                    results.put_nowait(None)
                    await asyncio.wait([telling])
                telling.result()
    context.screen.notice("Stopped; what has not ended was given back.")
    return ExitCode.COMPLETED


async def _tell(results: asyncio.Queue[BatchResult | None], display: RunDisplay, worker: BatchWorker) -> None:
    while (result := await results.get()) is not None:
        await display.show_result(result, worker)


async def hand_out(journal: Journal, key: str) -> None:
    """Hand a row to the workers that was settled."""
    await defer([key], journal=journal)


def _shared(address: str) -> Journal:
    journal = Journal.open(address)
    if not journal.is_shared:
        raise InvalidInputError("--journal: a file serves one machine (agentjobs run); give a URL of PostgreSQL")
    return journal


def _words(limits: FleetLimits) -> str:
    rate = limits.create_rate
    active = "any number" if limits.max_active is None else f"at most {limits.max_active}"
    over = " over all projects" if rate is not None and rate.scope == "all" else ""
    creates = "at any rate" if rate is None else f"at most {rate.count} creates in {rate.per:g} s{over}"
    return f"{active} active over all workers, {creates}"
