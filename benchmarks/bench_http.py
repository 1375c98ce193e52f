"""What do waits for 5,000 jobs cost over HTTP, beside a flat pool of aiohttp GETs that does nothing but ask?

The pool makes as many requests over as many connections, decodes each with `json.loads`, and neither sleeps nor checks
anything. CPU of this process per request; the server is a process of its own.
"""

import asyncio
import json
from argparse import Namespace
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import chain, repeat
from time import process_time

import aiohttp
from measuring import Figures, Rounds, arguments, chosen, in_own_process, print_table
from server import Server
from tenacity import wait_fixed
from yarl import URL

from agentjobs_async import AgentJobsSession, JobRef, PollBudget, PollPolicy

BASE = "flat pool"
KEY = "key-of-this-benchmark"

Run = Callable[[], Awaitable[object]]
"""Asks for all jobs until each has ended."""


async def flat_pool(url: str, options: Namespace, stack: AsyncExitStack) -> Run:
    """Ask by as many tasks as requests may be in flight."""
    client = await stack.enter_async_context(
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=options.in_flight),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Authorization": f"Bearer {KEY}", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=30, connect=10),
        )
    )
    addresses = [URL(f"{url}/v2/agent/docs/job/job_{number}") for number in range(options.jobs)]
    requests = chain.from_iterable(repeat(addresses, options.polls))

    async def ask(addresses: Iterator[URL]) -> None:
        for address in addresses:
            async with client.get(address, allow_redirects=False) as response:
                json.loads(await response.read())

    return lambda: asyncio.gather(*(ask(requests) for _ in range(options.in_flight)))


async def _session(url: str, options: Namespace, stack: AsyncExitStack) -> AgentJobsSession:
    policy, budget = PollPolicy(wait=wait_fixed(options.interval)), PollBudget(in_flight=options.in_flight)
    return await stack.enter_async_context(AgentJobsSession(url, KEY, policy=policy, budget=budget))


def _refs(options: Namespace) -> list[JobRef]:
    return [JobRef("docs", f"job_{number}") for number in range(options.jobs)]


async def watch(url: str, options: Namespace, stack: AsyncExitStack) -> Run:
    """Hold one future for each job."""
    session, refs = await _session(url, options, stack), _refs(options)
    return lambda: asyncio.gather(*map(session.watch, refs))


async def wait_for_job(url: str, options: Namespace, stack: AsyncExitStack) -> Run:
    """Hold one task for each job."""
    session, refs = await _session(url, options, stack), _refs(options)
    return lambda: asyncio.gather(*map(session.wait_for_job, refs))


CANDIDATES = {BASE: flat_pool, "session.watch": watch, "session.wait_for_job": wait_for_job}


async def one(candidate: str, options: Namespace) -> Figures:
    """Run one candidate against a server of its own; return the CPU seconds of one request."""
    async with AsyncExitStack() as stack:
        url = stack.enter_context(Server(options.polls)).url
        run = await CANDIDATES[candidate](url, options, stack)
        before = process_time()
        await run()
        return {"cpu": (process_time() - before) / (options.jobs * options.polls)}


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--polls", type=int, default=4, help="requests for each job")
    parser.add_argument("--in-flight", type=int, default=100, help="requests in flight at once")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two polls of a job")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(one(*options.one, options))))
        return
    names = chosen(CANDIDATES, BASE, options)
    rounds = Rounds(BASE)
    rounds.take(names, options.rounds, in_own_process)
    print_table(
        f"{options.jobs} jobs over HTTP, {options.polls} requests each, as multiples of: {BASE}",
        ["", "CPU per request"],
        [[name, f"{rounds.ratio(name, 'cpu'):.2f}"] for name in names],
    )
    print(f"\n{BASE}: {rounds.median(BASE, 'cpu') * 1e6:.0f} µs of CPU per request")
    rounds.save(options.json, jobs=options.jobs, polls=options.polls, in_flight=options.in_flight)


if __name__ == "__main__":
    main()
