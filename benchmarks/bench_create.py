"""What does one `create_job` cost, beside a bare aiohttp POST of the same body on a fresh connection?

Both make a connection for each create, which is what keeps a second agent from being started. CPU of this process, with
1 and 20 creates in flight; the server is a process of its own.
"""

import asyncio
import json
from contextlib import AsyncExitStack

import aiohttp
from measuring import ALL, Call, Figures, Rounds, arguments, chosen, in_own_process, in_turns, report_turns
from server import Server
from yarl import URL

from agentjobs_async import AgentJobsSession

BASE = "aiohttp, bare"
IN_FLIGHT = (1, 20)
KEY = "key-of-this-benchmark"
PROMPT = "Document the v2 endpoints, and correct what the guide says about them."


async def bare(url: str, stack: AsyncExitStack) -> Call:
    """Post prepared bytes, read the answer whole, and give it to `json.loads`."""
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


async def one(names: list[str], requests: int, turns: int) -> Figures:
    """Measure all candidates against one server."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(Server()).url
        calls = {name: await CANDIDATES[name](url, stack) for name in names}
        return await in_turns(calls, BASE, IN_FLIGHT, requests, turns)


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--requests", type=int, default=160, help="of each candidate in one turn")
    parser.add_argument("--turns", type=int, default=9, help="of each candidate in one round")
    options = parser.parse_args()
    names = chosen(CANDIDATES, BASE, options)
    if options.one:
        print(json.dumps(asyncio.run(one(names, options.requests, options.turns))))
        return
    rounds = Rounds(ALL)
    rounds.take([ALL], options.rounds, in_own_process)
    report_turns("CPU of one create", BASE, names, IN_FLIGHT, rounds)
    rounds.save(options.json, requests=options.requests, turns=options.turns)


if __name__ == "__main__":
    main()
