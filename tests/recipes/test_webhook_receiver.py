"""The recipe for webhooks, as a process."""

import asyncio
import hashlib
import hmac
import json
import signal

import pytest
from aiohttp import ClientSession

from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.processes import program
from tests.until import until

pytestmark = pytest.mark.slow

SECRET = "of the sender"


def signed(body: bytes) -> dict[str, str]:
    return {"X-Signature": hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}


async def test_webhook() -> None:
    """A signed webhook is followed by a poll at once, which sees the end; any other is refused, and causes no poll."""
    async with Emulator(script=JobScript(duration=0.3)) as emulator:
        environment = {**emulator.environment(), "WEBHOOK_SECRET": SECRET}
        async with program("webhook_receiver", environment, "Tell me") as receiver, ClientSession() as client:
            async with receiver.serving() as process:
                await until(lambda: [request.method for request in emulator.requests] == ["POST", "GET"])
                (job_id,) = emulator.jobs
                body = json.dumps({"project_id": "docs", "job_id": job_id}).encode()

                async def status(body: bytes, headers: dict[str, str]) -> int:
                    async with client.post(f"{process.address}/webhook", data=body, headers=headers) as response:
                        return response.status

                forged = {"X-Signature": "0" * 64}
                assert [await status(body, headers) for headers in ({}, forged, {"X-Signature": "\udcff"})] == [401] * 3
                assert [
                    await status(wrong, signed(wrong)) for wrong in (b"", b"[]", b'{"project_id": 7, "job_id": 7}')
                ] == [400] * 3

                assert len(emulator.requests) == 2

                async def report() -> None:
                    while True:  # the first webhook may come before the end
                        assert await status(body, signed(body)) == 204

                reporting = asyncio.create_task(report())
                await process.read_until(" completed ")
                reporting.cancel()
                await asyncio.wait([reporting])
                process.interrupt(signal.SIGTERM)
                assert await process.end() == 0
