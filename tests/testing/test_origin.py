"""The foreign origin."""

import asyncio
import json

from agentjobs_async.testing import ForeignOrigin


async def test_counts_and_forges() -> None:
    """It records every request, and answers it with a forged job."""
    async with ForeignOrigin() as origin:
        host, port = origin.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /any HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(body)["status"] == "completed"
    assert [(request.method, request.target) for request in origin.requests] == [("GET", "/any")]
    assert origin.connections == 1
