"""What does watching thousands of jobs over HTTP cost, beside a flat pool of workers that make the same GETs?

5,000 jobs of 4 polls. The pool does not wait: 64 workers read the jobs one after the other, as fast as they can. The
others wait between two polls of a job: by a task for each job with a plain loop or tenacity in it, or by this package.
All but this package only decode the JSON. CPU per poll of this process; the server is a process of its own.
"""

import asyncio
import json
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from time import process_time
from typing import Any

import aiohttp
import tenacity
from measuring import Figures, Rounds, arguments, chosen, in_own_process, print_table
from plotting import bars
from server import Server

from agentjobs_async import AgentJobsSession, JobRef, PollPolicy

BASE = "flat pool of 64"
KEY = "key-of-this-benchmark"
WORKERS = 64

Run = Callable[[], Awaitable[None]]
"""Waits for the ends of all jobs."""


async def _reader(url: str, stack: AsyncExitStack) -> Callable[[JobRef], Awaitable[Any]]:
    client = await stack.enter_async_context(
        aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Authorization": f"Bearer {KEY}", "Accept": "application/json"},
            timeout=aiohttp.ClientTimeout(total=60, connect=60),
        )
    )

    async def get(ref: JobRef) -> Any:
        address = f"{url}/v2/agent/{ref.project_id}/job/{ref.job_id}"
        async with client.get(address, allow_redirects=False) as response:
            return json.loads(await response.read())

    return get


async def pool(url: str, refs: list[JobRef], options: Namespace, stack: AsyncExitStack) -> Run:
    """Read all jobs until they have ended, without waiting between two reads."""
    get = await _reader(url, stack)
    todo = iter([ref for _ in range(options.polls) for ref in refs])

    async def worker() -> None:
        for ref in todo:
            await get(ref)

    async def run() -> None:
        await asyncio.gather(*(worker() for _ in range(WORKERS)))

    return run


async def naive(url: str, refs: list[JobRef], options: Namespace, stack: AsyncExitStack) -> Run:
    """Run a loop of get and sleep for each job."""
    get = await _reader(url, stack)

    async def wait(ref: JobRef) -> None:
        while (await get(ref))["status"] == "active":
            await asyncio.sleep(options.interval)

    async def run() -> None:
        await asyncio.gather(*(wait(ref) for ref in refs))

    return run


async def tenacity_each(url: str, refs: list[JobRef], options: Namespace, stack: AsyncExitStack) -> Run:
    """Retry by tenacity, for each job while it is active."""
    get = await _reader(url, stack)

    def wait(ref: JobRef) -> Awaitable[object]:
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_result(lambda document: document["status"] == "active"),
            wait=tenacity.wait_fixed(options.interval),
            stop=tenacity.stop_after_delay(1800),
        )
        return retrying(get, ref)

    async def run() -> None:
        await asyncio.gather(*(wait(ref) for ref in refs))

    return run


async def _session(url: str, options: Namespace, stack: AsyncExitStack) -> AgentJobsSession:
    policy = PollPolicy(wait=tenacity.wait_fixed(options.interval))
    return await stack.enter_async_context(AgentJobsSession(url, KEY, policy=policy))


async def as_completed(url: str, refs: list[JobRef], options: Namespace, stack: AsyncExitStack) -> Run:
    """Iterate over `as_completed`."""
    session = await _session(url, options, stack)

    async def run() -> None:
        async with session.as_completed(refs) as finished:
            async for result in finished:
                result.result()

    return run


async def watch(url: str, refs: list[JobRef], options: Namespace, stack: AsyncExitStack) -> Run:
    """Await the futures of `watch`, one for each job."""
    session = await _session(url, options, stack)

    async def run() -> None:
        for future in [session.watch(ref) for ref in refs]:
            await future

    return run


async def pool_of_get_job(url: str, refs: list[JobRef], options: Namespace, stack: AsyncExitStack) -> Run:
    """Read as the pool does, but with `get_job`, which checks and models each response."""
    session = await _session(url, options, stack)
    todo = iter([ref for _ in range(options.polls) for ref in refs])

    async def worker() -> None:
        for ref in todo:
            await session.get_job(ref)

    async def run() -> None:
        await asyncio.gather(*(worker() for _ in range(WORKERS)))

    return run


CANDIDATES = {
    BASE: pool,
    "the same by get_job": pool_of_get_job,
    "session.watch": watch,
    "session.as_completed": as_completed,
    "naive loop": naive,
    "tenacity": tenacity_each,
}
OURS = ("the same by get_job", "session.watch", "session.as_completed")


async def one(candidate: str, options: Namespace) -> Figures:
    """Measure one candidate."""
    refs = [JobRef("docs", f"job_{number}") for number in range(options.jobs)]
    async with AsyncExitStack() as stack:
        url = stack.enter_context(Server(options.polls)).url
        run = await CANDIDATES[candidate](url, refs, options, stack)
        before = process_time()
        await run()
        return {"cpu": (process_time() - before) / (options.jobs * options.polls)}


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--polls", type=int, default=4)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two polls of a job")
    parser.add_argument("--svg", type=Path, help="where to save the plot")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(asyncio.run(one(*options.one, options))))
        return
    names = chosen(CANDIDATES, BASE, options)
    rounds = Rounds(BASE)
    rounds.take(names, options.rounds, in_own_process)
    ratios = {name: rounds.ratio(name, "cpu") for name in names}
    title = f"{options.jobs} jobs of {options.polls} polls over HTTP"
    print_table(title, ["", f"CPU per poll / {BASE}"], [[name, f"{ratio:.2f}"] for name, ratio in ratios.items()])
    print(f"\n{BASE}: {rounds.median(BASE, 'cpu') * 1e6:.0f} µs of CPU per poll")
    if options.svg:
        measure = f"CPU per poll, as multiples of the {BASE}"
        options.svg.write_text(bars(title, {measure: ratios}, OURS))
    rounds.save(options.json, jobs=options.jobs, polls=options.polls, interval=options.interval)


if __name__ == "__main__":
    main()
