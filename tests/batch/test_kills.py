"""Real kills of a real process: what a batch promises when it goes on afterwards."""

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import rows_of, states
from tests.contract.children import ROOT, environment

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


async def child(emulator: Emulator, path: Path) -> asyncio.subprocess.Process:
    arguments = [emulator.base_url, emulator.api_key, str(path), str(COUNT), str(GATE)]
    return await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, *arguments, cwd=ROOT, env=environment())


async def killed(emulator: Emulator, path: Path, moment: int) -> None:
    """Kill a run with -9 when so many more requests have arrived, or take its end."""
    until = len(emulator.requests) + moment
    process = await child(emulator, path)
    try:
        while len(emulator.requests) < until and process.returncode is None:  # noqa: ASYNC110 - the emulator tells nobody of requests
            await asyncio.sleep(0.001)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("seed", [1])
async def test_kills(path: Path, seed: int) -> None:
    """However often it is killed: no prompt has two agents, no id is lost, a kill leaves at most the gate unknown."""
    draw = random.Random(seed)  # noqa: S311 - moments, no secrets
    async with Emulator(script=JobScript(duration=0.05), latency=0.005) as emulator:
        for _ in range(KILLS):
            await killed(emulator, path, draw.randrange(1, 3 * COUNT // KILLS + 2))
        process = await child(emulator, path)
        assert await process.wait() == 0
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
