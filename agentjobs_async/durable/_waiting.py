"""The wait for the end of a durable job, whichever process sends its create and follows it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from agentjobs_async import WaitTimeoutError
from agentjobs_async.batch import State
from agentjobs_async.durable._creates import Creates
from agentjobs_async.durable._submissions import look_delays
from agentjobs_async.durable.entry import DurableEntry

_TAKING_SECONDS: Final = 5.0  # within which a process takes what it is going to repeat: two sweeps, and some time more


async def end_or_doubt(changes: AsyncIterator[DurableEntry], creates: Creates) -> DurableEntry:
    """Return the first entry that is terminal, or unknown and not going to be sent again.

    Raises:
        WaitTimeoutError: The timeout of `changes` passed.
        JournalError: The journal can't be read.
    """
    entry = await anext(changes)
    while not entry.is_terminal:
        if entry.state is State.UNKNOWN:
            newer = await _after_doubt(changes, entry.key, creates)
            if newer is None:
                return entry
            entry = newer
        else:
            entry = await anext(changes)
    return entry


async def _after_doubt(changes: AsyncIterator[DurableEntry], key: str, creates: Creates) -> DurableEntry | None:
    """Return the entry after an unknown one; `None` once nobody is going to repeat its create.

    Who gives up a repetition only frees the row, which is no change of its entry: so this looks again.
    """
    loop, delays = asyncio.get_running_loop(), look_delays()
    taken_at = loop.time()
    while True:
        if await creates.is_repeated(key):
            taken_at = loop.time()
        elif loop.time() >= taken_at + _TAKING_SECONDS or not await creates.may_be_repeated(key):
            return None
        newer = await _next_within(changes, next(delays))
        if newer is not None:
            return newer


async def _next_within(changes: AsyncIterator[DurableEntry], seconds: float) -> DurableEntry | None:
    """Return the next entry; `None` where none comes in so many seconds."""
    try:
        async with asyncio.timeout(seconds) as patience:
            return await anext(changes)  # cancelling it loses no change
    except WaitTimeoutError:
        raise
    except TimeoutError:
        if not patience.expired():
            raise
        return None
