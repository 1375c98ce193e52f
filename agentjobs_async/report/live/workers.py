"""The processes that have a shared journal open, as pages show them."""

import time
from typing import Any

from agentjobs_async.batch import Journal
from agentjobs_async.batch.journal import entries_of, opened_of

__all__ = ["workers_of"]


async def workers_of(journal: Journal) -> list[dict[str, Any]] | None:
    """Return each worker with its active items and the time of its last heartbeat; `None` for a file, which has none.

    The time is in milliseconds since the epoch, by this process's clock; a dead worker is one of whose items others
    take over.
    """
    if not journal.is_shared:
        return None
    entries, patience, now = entries_of(journal), opened_of(journal).owner_timeout, time.time()
    active = await entries.active_counts()
    return [
        {
            # Host and process, without the part that makes it unique.
            "name": owner.rpartition(":")[0] or owner,
            "active": active.get(owner, 0),
            "heard": round((now - age) * 1000),
            "dead": age >= patience,
        }
        for owner, age in await entries.owners()
    ]
