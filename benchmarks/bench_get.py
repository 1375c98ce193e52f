"""What does one `get_job` cost, beside the cheapest acceptable aiohttp GET of the same document?

Acceptable means: with timeouts, without redirects, the whole body read and decoded with `json.loads`; no checks, no
models. CPU of this process, with 1, 50 and 100 requests in flight; the server is a process of its own.
"""

import json
from contextlib import AsyncExitStack

import aiohttp
from measuring import Call
from turns import compare
from yarl import URL

from agentjobs_async import AgentJobsSession, JobRef

BASE = "aiohttp, cheapest"
IN_FLIGHT = (1, 50, 100)
KEY = "key-of-this-benchmark"


async def cheapest(url: str, stack: AsyncExitStack) -> Call:
    """Use aiohttp without what it can do without: cookies, parsing the address, merging headers."""
    client = await stack.enter_async_context(
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Authorization": f"Bearer {KEY}", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=30, connect=10),
        )
    )
    address = URL(f"{url}/v2/agent/docs/job/job_1")

    async def get() -> object:
        async with client.get(address, allow_redirects=False) as response:
            return json.loads(await response.read())

    return get


async def usual(url: str, stack: AsyncExitStack) -> Call:
    """Use aiohttp as most programs do."""
    client = await stack.enter_async_context(aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}))

    async def get() -> object:
        async with client.get(f"{url}/v2/agent/docs/job/job_1") as response:
            response.raise_for_status()
            return await response.json()

    return get


async def get_job(url: str, stack: AsyncExitStack) -> Call:
    """Use this package."""
    session = await stack.enter_async_context(AgentJobsSession(url, KEY))
    ref = JobRef("docs", "job_1")
    return lambda: session.get_job(ref)


CANDIDATES = {BASE: cheapest, "get_job": get_job, "aiohttp, as usual": usual}


if __name__ == "__main__":
    compare(__doc__, "CPU of one read", CANDIDATES, BASE, IN_FLIGHT, requests=600)
