"""How soon does a webhook take effect that comes to any of two workers?

Two workers of gunicorn share a journal on PostgreSQL, and poll each job once a minute. Jobs end one by one; for each
end a webhook comes to either worker, which calls `DurableJobs.notify`. Seconds from the webhook until the journal has
the end: with PostgreSQL's notifications, and behind a proxy that keeps them back, where the sweep remains.

docs/bots.md quotes the first.

    python benchmarks/bench_notify.py
"""

import asyncio
import json
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from measuring import arguments, parsed, print_table

from agentjobs_async.batch import Journal
from agentjobs_async.testing import Emulator, JobScript

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.batch.wire import Pooler, Wire, wired
from tests.durable.webhook_workers import two_workers
from tests.postgresql import shared_server, stop_shared_server

POLL_SECONDS = "60"
ACCEPTED_SECONDS = 2.0
WAYS: dict[str, type[Wire]] = {"notifications": Wire, "the sweep alone": Pooler}


async def measured(location: str, way: type[Wire], jobs: int) -> list[float]:
    """Return the seconds from each webhook to the end in the journal."""
    found = []
    async with (
        Emulator(script=JobScript(duration=1e6)) as emulator,
        Journal.open(location) as journal,
        wired(location, way) as wire,
        two_workers(emulator, wire.url, POLL_SECONDS=POLL_SECONDS) as client,
    ):
        for number in range(jobs):
            (await client.post(f"/jobs/{number}")).raise_for_status()
        while sum(request.method == "GET" for request in emulator.requests) < jobs:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        for number in range(jobs):
            await emulator.inject("document status=completed forever on=get", prompt=f"Document {number}")
            began = perf_counter()
            (await client.post(f"/webhook/{number}")).raise_for_status()
            while len(await journal.rows("completed")) <= number:
                await asyncio.sleep(0.002)
            found.append(perf_counter() - began)
    return found


def main() -> None:
    """Measure both ways, and print a table."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=20, help="jobs (default: %(default)s)")
    options = parsed(parser, jobs=2)
    figures: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        try:
            server = shared_server(Path(folder))
            for name, way in WAYS.items():
                with server.database() as location:
                    figures[name] = asyncio.run(measured(location, way, options.jobs))
        finally:
            stop_shared_server(Path(folder))
    rows = [
        [
            name,
            f"{sum(late <= ACCEPTED_SECONDS for late in found)} of {len(found)}",
            f"{median(found):.3f}",
            f"{max(found):.3f}",
        ]
        for name, found in figures.items()
    ]
    columns = ["by", f"within {ACCEPTED_SECONDS:.0f} s", "median", "latest"]
    print_table("Seconds from a webhook to the end in the journal", columns, rows)
    if options.json:
        options.json.write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
