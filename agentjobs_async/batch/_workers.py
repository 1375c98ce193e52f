"""The processes that have a shared journal open, seen from outside."""

from attrs import frozen

from agentjobs_async.batch.journal import Journal, entries_of, opened_of

__all__ = ["WorkerState", "workers_of"]


@frozen
class WorkerState:
    """A worker, or any other process that has the journal open, at one moment.

    Attributes:
        name: Its host and the number of its process.
        active: How many items it is sending or waiting for.
        silent_for: Seconds since its last heartbeat.
        is_dead: Whether it counts as dead, so that others take over its items.
    """

    name: str
    active: int
    silent_for: float
    is_dead: bool


async def workers_of(journal: Journal) -> list[WorkerState] | None:
    """Return the processes that have a journal open; `None` for a file, which has one owner at most.

    Raises:
        JournalError: The journal can't be read.
    """
    if not journal.is_shared:
        return None
    entries, patience = entries_of(journal), opened_of(journal).owner_timeout
    active = await entries.active_counts()
    return [
        # The last part of an owner's name only makes it unique.
        WorkerState(owner.rpartition(":")[0] or owner, active.get(owner, 0), age, is_dead=age >= patience)
        for owner, age in await entries.owners()
    ]
