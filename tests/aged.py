"""A journal of jobs that ended a while ago, and of others that are active, whose ages are known."""

import time
from collections.abc import Sequence
from pathlib import Path

from agentjobs_async import AgentJob, JobRef
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.seen import Seen, record_seen

LONG_AGO_SECONDS = 14_400.0
_POLL_SECONDS = 5.0


async def aged_journal(
    path: Path,
    durations: Sequence[float],
    *,
    ages: Sequence[float] = (),
    unseen_seconds: float = 0.0,
) -> None:
    """Write a journal.

    Args:
        path: Its file.
        durations: Of the jobs that have ended, in seconds.
        ages: Of the jobs that are active, in seconds.
        unseen_seconds: How long ago the active ones were seen last, if they are older than that.
    """
    clock = [0.0]
    began = time.time()
    async with Journal.open(path, clock=lambda: clock[0]) as journal:
        records = Records(journal.store, "of a test", str)

        async def create(number: int, age: float) -> str:
            clock[0] = began - age
            key = f"item-{number}"
            await journal.add([BatchItem(key, f"Document page {number}", "docs")])
            claim = await records.claim(key)
            assert isinstance(claim, str)
            await records.created(key, claim, JobRef("docs", f"job-{number}"), None)
            return key

        for number, seconds in enumerate(durations, 1):
            key = await create(number, LONG_AGO_SECONDS)
            clock[0] += seconds
            job = AgentJob(f"job-{number}", "docs", "completed")
            await records.ended(key, job, polls=int(seconds / _POLL_SECONDS) + 1)
        for number, age in enumerate(ages, len(durations) + 1):
            key = await create(number, age)
            clock[0] = max(began - unseen_seconds, began - age)
            await record_seen(journal.store, [Seen(key, 0.0, 1)])
