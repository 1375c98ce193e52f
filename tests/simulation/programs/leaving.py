"""How programs are left before their work is done."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from agentjobs_async import SessionClosedError
from agentjobs_async.web import drain_on_signal
from tests.simulation.activities import Leave
from tests.simulation.programs.run import Run, together
from tests.simulation.programs.sessions import NotedSession

_LONGEST_LEAVE: Final = 21.0  # s: a source and a callback may swallow their cancellations, for 10 s each


def leave_of(run: Run) -> Leave | None:
    """Return how this start of the program is left."""
    leave = run.program.leave
    return leave if leave is not None and run.process.starts <= leave.starts else None


async def drain_at_signal(run: Run, stack: AsyncExitStack, session: NotedSession) -> None:
    """Let a session be drained at the signal by which the program is left."""
    leave = leave_of(run)
    if leave is not None and leave.is_signal:
        number = signal.Signals[leave.way]
        loop = asyncio.get_running_loop()
        if leave.handles and number not in run.process.loop.signal_callbacks:
            loop.add_signal_handler(number, run.world.note, "the program stops")
        await stack.enter_async_context(drain_on_signal(session, grace=leave.grace))


async def until_left(session: NotedSession, work: Coroutine[Any, Any, None]) -> None:
    """Do the work of a session until it was left, which ends what is under way; cancel what is left then."""
    task = asyncio.get_running_loop().create_task(work)
    left = asyncio.get_running_loop().create_task(session.is_left.wait())
    try:
        await asyncio.wait([task, left], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            await asyncio.wait([task], timeout=_LONGEST_LEAVE)
    finally:
        left.cancel()
        task.cancel()
        await asyncio.wait([task])
    if not session.is_leaving:
        task.result()
    with suppress(SessionClosedError, asyncio.CancelledError):
        task.result()


async def work_until_left(run: Run, sessions: list[NotedSession], works: list[Any]) -> None:
    """Do all work, and leave the program meanwhile as it says."""
    leave, leaving = leave_of(run), None
    if leave is not None:
        if leave.replaced_after is not None:
            at = leave.after + leave.replaced_after
            run.world.loop.call_later(leave.after, run.process.supervisor.replace, run.process, leave.replaced_after)
            run.world.note(f"is replaced after {at:g} s")
        if leave.is_signal:
            moments = [leave.after, *([leave.after + leave.again_after] if leave.again else [])]
            for moment in moments:
                run.world.loop.call_later(moment, run.process.receive, signal.Signals[leave.way])
        else:
            leaving = asyncio.get_running_loop().create_task(_leave_sessions(sessions, leave))
    try:
        await together(works)
    finally:
        if leaving is not None:
            if not any(session.is_leaving for session in sessions):
                leaving.cancel()
            await asyncio.wait([leaving])
    if leaving is not None and not leaving.cancelled():
        leaving.result()


async def _leave_sessions(sessions: list[NotedSession], leave: Leave) -> None:
    await asyncio.sleep(leave.after)
    chosen = sessions if leave.activity < 0 else [sessions[leave.activity]]
    await together([_leave_session(session, leave) for session in chosen])


async def _leave_session(session: NotedSession, leave: Leave) -> None:
    """Drain or close a session, and once more before that has ended, or cancel it and close the session later."""
    call: Any = session.aclose() if leave.way == "close" else session.drain(leave.grace)
    task = asyncio.get_running_loop().create_task(call)
    if leave.again:
        await asyncio.wait([task], timeout=leave.again_after)
    if leave.again == "drain":
        await session.drain(leave.grace / 2)
    elif leave.again == "close":
        await session.aclose()
    elif leave.again == "cancel" and task.cancel():
        await asyncio.sleep(3.0)
        await session.aclose()
    await asyncio.wait([task])
