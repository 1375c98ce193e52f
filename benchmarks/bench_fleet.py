"""What does watching thousands of jobs over HTTP cost, beside a flat pool of workers that make the same GETs?

5,000 jobs of 4 polls. The pool does not wait: 64 workers read the jobs one after the other, as fast as they can. The
others wait between two polls of a job: by a task for each job with a plain loop or tenacity in it, or by this package.
All but this package only decode the JSON. CPU per poll of this process; the server is a process of its own.

docs/many-jobs.md quotes it.

    python benchmarks/bench_fleet.py
"""

import asyncio
import json
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import process_time

import aiohttp
import tenacity
from attrs import frozen
from bench_waits import naive, tenacity_each
from measuring import Figures, Rounds, arguments, chosen, in_own_process, parsed, print_table
from server import server

from agentjobs_async import AgentJobsSession, JobRef, PollPolicy

BASE = "flat pool of 64"
KEY = "key-of-this-benchmark"
WORKERS = 64

Run = Callable[[list[JobRef]], Awaitable[None]]
"""Waits for the ends of all jobs."""


@frozen
class Read:
    """What a loop needs of a job."""

    is_terminal: bool


class Client:
    """Reads jobs by aiohttp."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        self._url, self._client = url, client

    async def get_job(self, ref: JobRef) -> Read:
        """Read a job."""
        address = f"{self._url}/v2/agent/{ref.project_id}/job/{ref.job_id}"
        async with self._client.get(address, allow_redirects=False) as response:
            return Read(json.loads(await response.read())["status"] != "active")


async def client(url: str, stack: AsyncExitStack) -> Client:
    """Return a client that is open until the stack is closed."""
    headers = {"Authorization": f"Bearer {KEY}", "Accept": "application/json"}
    timeout = aiohttp.ClientTimeout(total=60, connect=60)
    opened = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), headers=headers, timeout=timeout)
    return Client(url, await stack.enter_async_context(opened))


async def pool(url: str, options: Namespace, stack: AsyncExitStack) -> Run:
    """Read all jobs until they have ended, without waiting between two reads."""
    get_job = (await client(url, stack)).get_job

    async def run(refs: list[JobRef]) -> None:
        todo = iter([ref for _ in range(options.polls) for ref in refs])

        async def worker() -> None:
            for ref in todo:
                await get_job(ref)

        await asyncio.gather(*(worker() for _ in range(WORKERS)))

    return run


async def naive_loop(url: str, options: Namespace, stack: AsyncExitStack) -> Run:
    """Run a loop of get and sleep for each job."""
    wait = await naive(await client(url, stack), options.interval, stack)
    return lambda refs: asyncio.gather(*map(wait, refs))


async def by_tenacity(url: str, options: Namespace, stack: AsyncExitStack) -> Run:
    """Retry by tenacity, for each job while it is active."""
    wait = await tenacity_each(await client(url, stack), options.interval, stack)
    return lambda refs: asyncio.gather(*map(wait, refs))


async def watch(url: str, options: Namespace, stack: AsyncExitStack) -> Run:
    """Await the futures of `watch`, one for each job."""
    policy = PollPolicy(wait=tenacity.wait_fixed(options.interval))
    session = await stack.enter_async_context(AgentJobsSession(url, KEY, policy=policy))

    async def run(refs: list[JobRef]) -> None:
        for future in [session.watch(ref) for ref in refs]:
            await future

    return run


CANDIDATES = {BASE: pool, "session.watch": watch, "naive loop": naive_loop, "tenacity": by_tenacity}


async def one(candidate: str, options: Namespace) -> Figures:
    """Measure one candidate."""
    refs = [JobRef("docs", f"job_{number}") for number in range(options.jobs)]
    async with AsyncExitStack() as stack:
        url = stack.enter_context(server(options.polls))
        run = await CANDIDATES[candidate](url, options, stack)
        before = process_time()
        await run(refs)
        return {"cpu": (process_time() - before) / (options.jobs * options.polls)}


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--polls", type=int, default=4)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two polls of a job")
    options = parsed(parser, jobs=500, interval=0.2)
    if options.one:
        print(json.dumps(asyncio.run(one(*options.one, options))))
        return
    names, rounds = chosen(CANDIDATES, BASE, options), Rounds(BASE)
    rounds.measure(names, options.rounds, in_own_process)
    rows = [[name, f"{rounds.ratio(name, 'cpu'):.2f}", f"{rounds.median(name, 'cpu') * 1e6:.0f}"] for name in names]
    title = f"{options.jobs} jobs of {options.polls} polls over HTTP"
    print_table(title, ["", f"CPU per poll / {BASE}", "µs"], rows)
    rounds.save(options)


if __name__ == "__main__":
    main()
