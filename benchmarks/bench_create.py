"""What does one `create_job` cost, beside a bare aiohttp POST of the same body on a fresh connection?

Both make a connection for each create, which is what keeps a second agent from being started. CPU of this process, with
1 and 20 creates in flight; the server is a process of its own.
"""

import json
from contextlib import AsyncExitStack

import aiohttp
from measuring import Call
from turns import compare
from yarl import URL

from agentjobs_async import AgentJobsSession

BASE = "aiohttp, bare"
IN_FLIGHT = (1, 20)
KEY = "key-of-this-benchmark"
PROMPT = "Document the v2 endpoints, and correct what the guide says about them."


async def bare(url: str, stack: AsyncExitStack) -> Call:
    """Post prepared bytes, read the whole response, and decode it with `json.loads`."""
    client = await stack.enter_async_context(
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                "Authorization": f"Bearer {KEY}",
                "Accept": "application/json",
                "Content-Type": "application/json",
            },
            timeout=aiohttp.ClientTimeout(total=120, connect=10),
        )
    )
    address = URL(f"{url}/v2/agent/docs/job")
    body = json.dumps({"prompt": PROMPT}).encode()

    async def post() -> object:
        async with client.post(address, data=body, allow_redirects=False) as response:
            return json.loads(await response.read())

    return post


async def create_job(url: str, stack: AsyncExitStack) -> Call:
    """Use this package."""
    session = await stack.enter_async_context(AgentJobsSession(url, KEY, project_id="docs"))
    return lambda: session.create_job(PROMPT)


CANDIDATES = {BASE: bare, "create_job": create_job}


if __name__ == "__main__":
    compare(__doc__, "CPU of one create", CANDIDATES, BASE, IN_FLIGHT, requests=160)
