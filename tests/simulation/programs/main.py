"""The main function of a program: it opens a journal and sessions, and does all of its work at once."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from agentjobs_async import AgentJobsSession, JournalError
from agentjobs_async.batch import Journal, State
from tests.simulation.activities import Batch, Calls, Durable
from tests.simulation.processes import StoppedError
from tests.simulation.programs.batches import BatchWork
from tests.simulation.programs.calls import CallsWork
from tests.simulation.programs.durable import DurableWork
from tests.simulation.programs.leaving import drain_at_signal, until_left, work_until_left
from tests.simulation.programs.run import Run
from tests.simulation.programs.sessions import NotedSession


async def main(run: Run) -> None:
    """Do everything that the program says, and leave nothing behind."""
    try:
        await _work_all(run)
    except (StoppedError, asyncio.CancelledError):
        run.check_events()
        raise
    run.check_events()


async def _work_all(run: Run) -> None:
    name, starts, activities = run.program.name, run.process.starts, run.program.activities
    sessions: list[NotedSession] = []
    async with AsyncExitStack() as stack:
        journal = None
        if not _has_calls_alone(run):
            location = run.folder / f"{name}.db"
            journal = await stack.enter_async_context(Journal.open(location))
            await _check_owned(run, location)
            await _check_opened(run, journal)
        works = []
        for number, activity in enumerate(activities):
            sender = f"{name}.{starts}.{number}"
            session = await stack.enter_async_context(run.session(sender))
            await drain_at_signal(run, stack, session)
            sessions.append(session)
            works.append(
                until_left(session, _work(run, activity, session, sender, run.program.prefix(number), journal))
            )
        await work_until_left(run, sessions, works)
        for session in sessions:
            if not session.is_leaving:
                run.check_stats(session)
        if journal is not None:
            if any(session.is_leaving for session in sessions):
                raise StoppedError
            begun, rows = run.world.now, await journal.rows(all_tries=True)
            run.ledger.rows[name] = rows
            run.check_rows(rows, begun)


def _has_calls_alone(run: Run) -> bool:
    return all(isinstance(one, Calls) for one in run.program.activities)


def _work(
    run: Run, activity: Any, session: AgentJobsSession, sender: str, prefix: str, journal: Any
) -> Coroutine[Any, Any, None]:
    """Return what does an activity; `prefix` begins its prompts and the keys of its rows."""
    match activity:
        case Calls():
            return CallsWork(run, activity, session, sender, prefix).do()
        case Batch():
            return BatchWork(run, activity, session, sender, prefix, journal).do()
        case Durable():
            return DurableWork(run, activity, session, sender, prefix, journal).do()
    raise TypeError(activity)


async def _check_owned(run: Run, location: Path) -> None:
    with suppress(JournalError):
        async with Journal.open(location):
            run.world.violate("P3: a journal has two owners")


async def _check_opened(run: Run, journal: Journal) -> None:
    """Report rows that nobody sends: who sent them was killed."""
    if run.process.starts > 1:
        for row in await journal.rows(State.SENDING):
            run.world.violate(f"Responsible: {row.key} is sending in a journal that was just opened")
