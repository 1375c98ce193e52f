"""Run prompts from synchronous code: `asyncio.run` is called once, and returns when all jobs have ended.

pip install 'agentjobs-async[cli]'
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
python docs/recipes/sync_script.py "Document the v2 endpoints" "Fix the broken links"

Each prompt is one job in the journal jobs.db. However this command ends, run it again: it continues, and starts no job
twice. If you delete the journal, it starts all of them again. Its exit code is 0 only if all jobs are completed.
"""

import asyncio
import os
import sys
from hashlib import sha256

from agentjobs_async import AgentJobsError, AgentJobsSession
from agentjobs_async.batch import BatchItem, BatchResult, Journal, run_batch
from agentjobs_async.web import drain_on_signal

JOURNAL = os.environ.get("JOURNAL", "jobs.db")


def item_of(prompt: str) -> BatchItem:
    """Return the item of a prompt. Its key is a hash of the prompt, so that the same prompt is the same job."""
    return BatchItem(sha256(os.fsencode(prompt)).hexdigest()[:16], prompt)


def show(result: BatchResult) -> None:
    """Print how a job ended, or why there is none."""
    link = None if result.job is None else result.job.pr_link
    end = result.error or link or "no pull request"
    print(result.item.key, f"{result.outcome}: {end}", flush=True)


async def run(prompts: list[str]) -> bool:
    """Run the prompts to their ends, and return whether all of them are completed."""
    items = [item_of(prompt) for prompt in dict.fromkeys(prompts)]  # a prompt that is given twice is one job
    async with (
        AgentJobsSession() as session,
        drain_on_signal(session, pass_on=False),  # at SIGTERM or Ctrl-C, records the answers to creates under way
        Journal.open(JOURNAL) as journal,
    ):
        async with run_batch(session, items, journal=journal, timeout=None) as results:
            async for result in results:
                show(result)
        rows = [await journal.get(item.key) for item in items]  # also of those that ended in an earlier run
    completed = [row for row in rows if row is not None and row.state == "completed"]
    print(f"{len(completed)} of {len(items)} are completed; for the others, type: agentjobs status {journal.address}")
    return len(completed) == len(items)


if __name__ == "__main__":
    try:
        all_completed = asyncio.run(run(sys.argv[1:]))
    except AgentJobsError as error:  # a setting is missing, the key is refused, a signal came, ...
        sys.exit(str(error))
    sys.exit(0 if all_completed else 1)
