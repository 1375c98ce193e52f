"""Real kills of a real process: what a batch promises when it goes on afterwards."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import rows_of, states
from tests.cli.stage import Child

pytestmark = pytest.mark.slow

COUNT, KILLS = (int(number) for number in os.environ.get("AGENTJOBS_KILLS", "80/5").split("/"))
"""How many items, and how often the process is killed: the whole sweep is AGENTJOBS_KILLS=1000/100."""
GATE = 5
"""How many creates a child has under way at once. What a kill leaves unknown keeps no slot, else it could keep all."""

CHILD = """
import asyncio, sys
from agentjobs_async import AgentJobsSession, PollPolicy
from agentjobs_async.batch import BatchItem, Journal, run_batch

async def main(base_url, key, path, count, gate):
    policy = PollPolicy(wait=lambda _: 0.02)
    items = (BatchItem(f"k{number}", f"p{number}") for number in range(int(count)))
    async with AgentJobsSession(base_url, key, project_id="docs", policy=policy) as session:
        async with Journal.open(path) as journal:
            limits = {"create_rate": None, "max_sending": int(gate), "unknown_for": 0}
            async with run_batch(session, items, journal=journal, **limits) as results:
                async for result in results:
                    pass

asyncio.run(main(*sys.argv[1:]))
"""


def started(emulator: Emulator, path: Path) -> Child:
    arguments = [emulator.base_url, emulator.api_key, str(path), str(COUNT), str(GATE)]
    return Child(*arguments, command=("-W", "error", "-c", CHILD))


async def killed(emulator: Emulator, path: Path, moment: int) -> None:
    """Kill a run with -9 when so many more requests have arrived, or take its end."""
    until = len(emulator.requests) + moment
    with started(emulator, path) as child:
        while len(emulator.requests) < until and child.process.poll() is None:  # noqa: ASYNC110 - the emulator tells nobody of requests
            await asyncio.sleep(0.001)


async def test_kills(path: Path) -> None:
    """However often it is killed: no prompt has two agents, no id is lost, a kill leaves at most the gate unknown."""
    draw = random.Random(1)  # noqa: S311 - moments, no secrets
    async with Emulator(script=JobScript(duration=0.05), latency=0.005) as emulator:
        for _ in range(KILLS):
            await killed(emulator, path, draw.randrange(1, 3 * COUNT // KILLS + 2))
        with started(emulator, path) as child:
            assert (await asyncio.to_thread(child.ended), child.stderr) == (0, "")
        rows = await rows_of(path)
        jobs = {job.prompt: job.job_id for job in emulator.jobs.values()}
        assert max(emulator.agents_started.values()) == 1
        assert len(rows) == COUNT
        assert set(states(rows).values()) <= {"completed", "unknown"}
        assert {row.prompt: row.job_id for row in rows if row.job_id}.items() <= jobs.items()
        unknown = [row.prompt for row in rows if row.state == "unknown"]
        assert set(jobs) <= {row.prompt for row in rows if row.job_id} | set(unknown)
        assert len(unknown) <= GATE * KILLS
        print(f"{KILLS} kills of {COUNT} items: {len(unknown)} unknown, {len(jobs)} agents")  # noqa: T201 - the figure is what it is run for
