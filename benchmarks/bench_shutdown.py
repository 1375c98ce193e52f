"""How long do the services of docs/recipes take to end at a signal, with waits, streams and creates under way?

Each runs as a process on its real server, against the emulator. The creates have their answers half a second after they
were sent. Seconds from the signal to the end of the process; what each client got is counted beside it.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from time import perf_counter

from aiohttp import ClientError, ClientSession, TCPConnector
from measuring import arguments, print_table

from agentjobs_async.testing import Emulator, JobScript

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.recipes.processes import SERVERS, Process, serving, until
from tests.recipes.test_servers import JSON_BODIES


async def status(client: ClientSession, method: str, path: str, **body: object) -> str:
    """Return the status of an answer that was read to its end, or the name of the error."""
    try:
        async with client.request(method, path, **body) as response:
            await response.read()
            return str(response.status)
    except (ClientError, OSError) as error:
        return type(error).__name__


def create(recipe: str, prompt: str) -> dict[str, object]:
    """Return the body of a create."""
    return {"json": {"prompt": prompt}} if recipe in JSON_BODIES else {"data": prompt}


async def ended(process: Process, number: int) -> float:
    """Send a signal; return the seconds until the process has ended."""
    began = perf_counter()
    process.interrupt(number)
    await process.end()
    return perf_counter() - began


async def one(recipe: str, waits: int, streams: int, number: int) -> list[str]:
    """Return a row of the table."""
    async with (
        Emulator(script=JobScript(duration=float("inf"))) as emulator,
        serving(recipe, emulator.environment()) as process,
        ClientSession(process.address, connector=TCPConnector(limit=0)) as client,
    ):
        async with client.post("/jobs", **create(recipe, "Go on")) as response:
            path = f"/jobs/{(await response.json())['token']}"
        paths = [path] * waits + [f"{path}/events"] * streams
        listeners = [asyncio.create_task(status(client, "GET", path)) for path in paths]
        await process.read_until("WaitStarted", times=waits + streams)
        await emulator.inject("hang for=0.5 agent=yes on=create x3")
        bodies = [create(recipe, f"Create {index}") for index in range(3)]
        creates = [asyncio.create_task(status(client, "POST", "/jobs", **body)) for body in bodies]
        await until(lambda: emulator.agents_started.total() == 1 + len(creates))
        seconds = await ended(process, number)
        answers = [await asyncio.gather(*calls) for calls in (listeners[:waits], listeners[waits:], creates)]
    counted = [", ".join(f"{count} with {kind}" for kind, count in Counter(calls).items()) for calls in answers]
    return [recipe, f"{seconds:.2f} s", *counted, "yes" if "Traceback" in process.output else "no"]


def main() -> None:
    """Measure, print, save."""
    parser = arguments(__doc__)
    parser.add_argument("--waits", type=int, default=500)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--signal", default="SIGTERM", choices=["SIGTERM", "SIGINT"])
    options = parser.parse_args()
    number = signal.Signals[options.signal]
    rows = [asyncio.run(one(recipe, options.waits, options.streams, number)) for recipe in SERVERS]
    print_table(
        f"{options.signal} with {options.waits} waits, {options.streams} streams and 3 creates under way",
        ["", "ended after", "waits", "streams", "creates", "traceback"],
        rows,
    )
    if options.json:
        options.json.write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
