"""A small service under gunicorn, whose two workers share one journal: it creates jobs, and gets webhooks."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from aiohttp import ClientSession, TCPConnector, web
from tenacity import wait_fixed

from agentjobs_async import AgentJobsSession, PollPolicy
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs, _noticing
from agentjobs_async.testing import Emulator
from tests.until import PATIENCE_SECONDS

JOBS: Final = web.AppKey("jobs", DurableJobs)
ROOT: Final = Path(__file__).parents[2]
WORKERS: Final = "gunicorn --bind 127.0.0.1:0 --workers 2 --worker-class aiohttp.GunicornWebWorker"
OWNER_SECONDS: Final = 86_400.0
"""No machine stands still as long, and no sweep comes before a quarter of it has passed."""


async def application() -> web.Application:
    """Return the service of one worker."""
    app = web.Application()
    app.cleanup_ctx.append(_opened)
    app.add_routes([web.post("/jobs/{key}", _create), web.post("/webhook/{key}", _receive)])
    return app


async def _opened(app: web.Application) -> AsyncIterator[None]:
    if seconds := os.environ.get("SWEEP_SECONDS"):
        _noticing._SWEEP_SECONDS = float(seconds)  # type: ignore[misc]  # the process is this test's own
    policy = PollPolicy(wait=wait_fixed(float(os.environ["POLL_SECONDS"])))
    session = AgentJobsSession(project_id="docs", policy=policy)
    journal = Journal.open(os.environ["JOURNAL"], owner_timeout=OWNER_SECONDS)
    async with session, journal, DurableJobs(session, journal, on_end=lambda *_: None) as app[JOBS]:
        yield


async def _create(request: web.Request) -> web.Response:
    key = request.match_info["key"]
    await request.app[JOBS].submit(key, f"Document {key}")
    return web.Response(status=202)


async def _receive(request: web.Request) -> web.Response:
    _ = request.app[JOBS].notify(request.match_info["key"])  # the answer to a webhook waits for nothing
    return web.Response(status=204)


@asynccontextmanager
async def two_workers(emulator: Emulator, journal: str, **settings: str) -> AsyncIterator[ClientSession]:
    """Return a block with a client of two workers, each of whose requests comes to any of them."""
    environment = {**os.environ, **emulator.environment(), "JOURNAL": journal, **settings}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *WORKERS.split(), f"{__name__}:{application.__name__}"),
        cwd=ROOT,
        env=environment,
        stdout=PIPE,
        stderr=STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        output = ""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while output.count("Booting worker") < 2:
                line = await process.stdout.readline()
                assert line, output
                output += line.decode()
        found = re.search(r"Listening at: (http://127\.0\.0\.1:\d+)", output)
        assert found is not None, output
        async with ClientSession(found[1], connector=TCPConnector(force_close=True)) as client:
            yield client
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
