"""A web recipe under the process managers of its servers: several processes share one journal on PostgreSQL."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession, TCPConnector

from agentjobs_async.batch import Journal
from agentjobs_async.testing import Emulator, JobScript
from tests.extras import need_recipes
from tests.recipes.processes import ENDLESS, RECIPES, SETTINGS
from tests.until import PATIENCE_SECONDS, until

pytestmark = pytest.mark.slow

UVICORN = "uvicorn --port 0 --workers 4 fastapi_app:app"
GUNICORN = "gunicorn --bind 127.0.0.1:0 --workers 2 --worker-class uvicorn_worker.UvicornWorker fastapi_app:app"
HYPERCORN = "hypercorn --workers 0 --bind 127.0.0.1:0 fastapi_app:app"  # workers of its own get no signal


@asynccontextmanager
async def started(command: str, emulator: Emulator, journal: str) -> AsyncIterator[Process]:
    """Return a block in which the command runs beside the recipes; all of its processes are killed at its end."""
    need_recipes()
    environment = {**os.environ, **SETTINGS, **emulator.environment(), "JOURNAL": journal}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command.split()),
        cwd=RECIPES,
        env=environment,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def read_until(process: Process, pattern: str) -> tuple[str, str]:
    """Return the first group of the pattern in the output, and the output so far."""
    output = ""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (found := re.search(pattern, output)) is None:
            assert process.stdout is not None
            line = await process.stdout.readline()
            assert line, output
            output += line.decode()
    return found[1], output


async def serves(client: ClientSession) -> bool:
    """Return whether a process takes connections: one may do so later than the address is written."""
    with suppress(ClientConnectionError):
        async with client.get("/jobs"):
            return True
    return False


@pytest.mark.parametrize("command", [UVICORN, GUNICORN, HYPERCORN])
async def test_processes(command: str, database: str) -> None:
    """A key is one job in whichever process it arrives, is awaited in any; two SIGTERMs end streams, but no create."""
    async with Emulator(script=JobScript(duration=0)) as emulator, started(command, emulator, database) as process:
        address, output = await read_until(process, r"(?:unning on|Listening at:) (http://127\.0\.0\.1:\d+)")
        headers = {"X-User": "anna"}
        async with ClientSession(address, headers=headers, connector=TCPConnector(force_close=True)) as client:

            async def create(prompt: str, key: str) -> None:
                async with client.post("/jobs", json={"prompt": prompt}, headers={"Idempotency-Key": key}) as response:
                    assert response.status == 202

            await until(lambda: serves(client))
            await asyncio.gather(*(create("Go", "1") for _ in range(10)))
            for _ in range(10):
                async with client.get("/jobs/1") as response:
                    assert (await response.json())["state"] == "completed"
            emulator.script(ENDLESS, prompt="Last")
            await emulator.inject("hang for=0.5 agent=yes on=create", prompt="Last")
            await create("Last", "2")
            await until(lambda: emulator.agents_started["Last"])
            async with client.get("/jobs/2/events") as stream:
                await stream.content.readline()
                for _ in range(2):
                    process.terminate()
                assert b"event: job_error\n" in await stream.content.read()
        assert process.stdout is not None
        output += (await process.stdout.read()).decode()
    assert "Traceback" not in output
    assert emulator.agents_started == {"Go": 1, "Last": 1}
    async with Journal.open(database, read_only=True) as journal:
        assert {row.key: row.job_id is not None for row in await journal.rows()} == {"anna/1": True, "anna/2": True}


async def test_file_with_two_owners(tmp_path: Path) -> None:
    """With a journal in a file, the second process says why it does not start."""
    async with Emulator() as emulator:
        async with started(UVICORN, emulator, str(tmp_path / "jobs.db")) as process:
            reason, _ = await read_until(process, "JournalError: (.*)")
    assert "another process owns it" in reason
