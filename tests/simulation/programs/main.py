"""The main function of a program: it opens a journal and sessions, and does all of its work at once."""

import asyncio
import random
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from agentjobs_async import AgentJobsSession, JournalError, SessionClosedError
from agentjobs_async.batch import Journal, State
from tests.simulation.ledger import Batch, Calls, Durable
from tests.simulation.programs.batches import BatchWork
from tests.simulation.programs.calls import CallsWork
from tests.simulation.programs.durable import DurableWork
from tests.simulation.programs.run import Run, together


async def main(run: Run) -> None:
    """Do everything that the program says, and leave nothing behind."""
    name, starts, activities = run.program.name, run.process.starts, run.program.activities
    sessions: list[AgentJobsSession] = []
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
            sessions.append(session)
            works.append(_work(run, activity, session, sender, f"{name}-{number}", journal))
        closes = run.program.closes and (starts == 1 or journal is None)
        if closes:
            works.append(_close(run, sessions[0], f"{name}.{starts}.0"))
        try:
            await together(works)
        except SessionClosedError:
            if not closes or journal is None:
                raise
            raise JournalError("a session was closed: the process is started again", "io") from None
        for session in sessions[bool(closes) :]:
            run.check_stats(session)
        if journal is not None:
            begun, rows = run.world.now, await journal.rows(all_tries=True)
            run.ledger.rows[name] = rows
            run.check_rows(rows, begun)
    run.check_events()


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


async def _close(run: Run, session: AgentJobsSession, sender: str) -> None:
    """Close a session early; a process that has a journal ends then, as one that is to be replaced does."""
    world = run.world
    await asyncio.sleep(random.Random(f"{world.seed} {sender}").choice((0.01, 0.06, 3.0, 60.0, 200.0)))
    begun, grace = world.now, 5.0 if run.program.closes == "drain" else 0.0
    run.ledger.closed[sender] = begun, begun + grace
    await (session.drain(grace) if grace else session.aclose())
    if world.now > begun + grace + 0.25 and not world.stalled(begun, world.now):
        world.violate(f"P17: closing took {world.now - begun:g} s, with {grace:g} s of grace")
    if not _has_calls_alone(run):
        raise SessionClosedError("the process ends")
