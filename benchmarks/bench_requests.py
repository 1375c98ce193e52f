"""What do one `get_job` and one `create_job` cost, beside the same request made with aiohttp alone?

The cheapest acceptable GET or POST has timeouts, follows no redirects, reads the whole body and decodes it with
`json.loads`, without checks or models. A create makes a connection of its own in both: that keeps a second agent from
being started. CPU of this process; the server is a process of its own. The candidates take many short turns against
one server, so that noise affects all alike.

docs/many-jobs.md quotes what the request of a poll takes over HTTP.

    python benchmarks/bench_requests.py
"""

import asyncio
import json
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import process_time
from typing import Any

import aiohttp
from measuring import Figures, Rounds, arguments, in_own_process, parsed, print_table
from server import server
from yarl import URL

from agentjobs_async import AgentJobsSession, JobRef

KEY = "key-of-this-benchmark"
PROMPT = "Document the v2 endpoints, and correct what the guide says about them."
HEADERS = {"Authorization": f"Bearer {KEY}", "Accept": "application/json"}

Call = Callable[[], Awaitable[object]]


async def _client(stack: AsyncExitStack, *, is_reused: bool) -> aiohttp.ClientSession:
    """Return aiohttp's client without what it can do without: cookies, and a limit of connections."""
    connector = aiohttp.TCPConnector(limit=0, force_close=not is_reused)
    settings: dict[str, Any] = {"headers": HEADERS, "timeout": aiohttp.ClientTimeout(total=30, connect=10)}
    client = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), **settings)
    return await stack.enter_async_context(client)


async def cheapest_get(url: str, stack: AsyncExitStack) -> Call:
    """Read a job by aiohttp, the address parsed beforehand."""
    client, address = await _client(stack, is_reused=True), URL(f"{url}/v2/agent/docs/job/job_1")

    async def get() -> object:
        async with client.get(address, allow_redirects=False) as response:
            return json.loads(await response.read())

    return get


async def usual_get(url: str, stack: AsyncExitStack) -> Call:
    """Read a job by aiohttp as most programs do."""
    client = await stack.enter_async_context(aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}))

    async def get() -> object:
        async with client.get(f"{url}/v2/agent/docs/job/job_1") as response:
            response.raise_for_status()
            return await response.json()

    return get


async def get_job(url: str, stack: AsyncExitStack) -> Call:
    """Read a job by this package."""
    session = await stack.enter_async_context(AgentJobsSession(url, KEY))
    return lambda: session.get_job(JobRef("docs", "job_1"))


async def cheapest_post(url: str, stack: AsyncExitStack) -> Call:
    """Create a job by aiohttp, on a connection of its own."""
    client, address = await _client(stack, is_reused=False), URL(f"{url}/v2/agent/docs/job")
    request = {"data": json.dumps({"prompt": PROMPT}).encode(), "headers": {"Content-Type": "application/json"}}

    async def post() -> object:
        async with client.post(address, allow_redirects=False, **request) as response:
            return json.loads(await response.read())

    return post


async def create_job(url: str, stack: AsyncExitStack) -> Call:
    """Create a job by this package."""
    session = await stack.enter_async_context(AgentJobsSession(url, KEY, project_id="docs"))
    return lambda: session.create_job(PROMPT)


READS = {"aiohttp, cheapest GET": cheapest_get, "get_job": get_job, "aiohttp, as usual": usual_get}
CREATES = {"aiohttp, cheapest POST": cheapest_post, "create_job": create_job}
LEVELS = {"read": (READS, (1, 50, 100), 600), "create": (CREATES, (1, 20), 160)}
"""What is measured: the candidates, the base first; the numbers of calls in flight; the calls of one turn."""


async def cpu_of(call: Call, in_flight: int, calls: int) -> float:
    """Make `calls` calls, `in_flight` at a time, and return the CPU seconds of one."""

    async def worker() -> None:
        for _ in range(calls // in_flight):
            await call()

    before = process_time()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return (process_time() - before) / (calls // in_flight * in_flight)


async def one(kind: str, in_flight: int, options: Namespace) -> Figures:
    """Measure all candidates in turn, against one server; return the ratios to the first, and its CPU seconds."""
    candidates, _, calls = LEVELS[kind]
    base = next(iter(candidates))
    async with AsyncExitStack() as stack:
        url = stack.enter_context(server())
        made = {name: await candidate(url, stack) for name, candidate in candidates.items()}
        for call in made.values():
            await cpu_of(call, in_flight, calls // 4)
        turns = Rounds(base)
        for _ in range(options.turns):
            for name, call in made.items():
                turns.add(name, {"cpu": await cpu_of(call, in_flight, calls)})
    return {name: turns.ratio(name, "cpu") for name in made} | {"seconds": turns.median(base, "cpu")}


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--turns", type=int, default=9, help="of each candidate in one round")
    options = parsed(parser, turns=2)
    if options.one:
        print(json.dumps(asyncio.run(one(options.one[0], int(options.one[1]), options))))
        return
    rounds = Rounds("")
    for kind, (candidates, levels, _) in LEVELS.items():
        named = {f"{kind}, {level} in flight": (kind, str(level)) for level in levels}
        rounds.measure(list(named), options.rounds, lambda name, named=named: in_own_process(*named[name]))
        rows = [[name, *(f"{rounds.median(level, name):.2f}" for level in named)] for name in candidates]
        base = next(iter(candidates))
        rows.append([f"{base}, µs", *(f"{rounds.median(level, 'seconds') * 1e6:.0f}" for level in named)])
        print_table(f"CPU, as multiples of: {base}", ["", *named], rows)
    rounds.save(options)


if __name__ == "__main__":
    main()
