"""What the commands do that share a journal with other machines, as coroutines that give the exit code."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import BatchWorker, FleetLimits, Journal
from agentjobs_async.cli.actions import Order
from agentjobs_async.cli.board import PollCounts
from agentjobs_async.cli.execution import Context
from agentjobs_async.cli.outcomes import ExitCode
from agentjobs_async.cli.progress import LostIds, Progress
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
        gate: How many creates are under way at once.
        out: The file that gets each result as a line of JSON; `None` for none.
    """

    order: Order
    journal: str
    chunks: int
    gate: int
    out: str | None


async def submit_tasks(context: Context, order: SubmitOrder, tasks: Tasks) -> int:
    """Plan the tasks and hand them to the workers."""
    async with _shared(order.journal) as journal:
        if order.limits:
            await journal.set_limits(attrs.evolve(await journal.limits(), **order.limits))
        refused = await submit(tasks.items, journal=journal, chunk=order.chunk)
        limits = await journal.limits()
    refusals = [*tasks.refusals, *(Refusal(item.key, str(why)) for item, why in refused)]
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
        stack.enter_context(LostIds(context.screen).shown())
        out = None if order.out is None else stack.enter_context(Path(order.out).open("a", encoding="utf-8"))  # noqa: ASYNC230 - before anything runs
        async with (
            order.order.service.session(context.screen.notice, hooks=[polls]) as session,
            _shared(order.journal) as journal,
        ):
            limits = await journal.limits()
            progress = Progress(context.screen, journal, polls, order.order.machine, out, limits.create_rate)
            context.screen.notice(f"Working on {journal.name}; {_words(limits)}. Ctrl-C stops.")
            worker = BatchWorker(
                session, journal, gate=order.gate, timeout=order.order.timeout, on_result=progress.tell
            )
            async with worker, progress.shown(worker):
                await context.interruption.cuts(work_off(worker, chunks=order.chunks, stop=stop), stopping)
    context.screen.notice("Stopped; what has not ended was given back.")
    return ExitCode.COMPLETED


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
    creates = "at any rate" if rate is None else f"at most {rate.count} creates in {rate.per:g} s"
    return f"{active} active over all workers, {creates}"
