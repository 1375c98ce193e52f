"""Search worlds of real processes for a broken promise, or run the world of one seed and tell of it.

.ci/run search --postgresql --seconds 3600   # new seeds, as many worlds at once as there are cores
.ci/run search --postgresql --seed 17        # what the seed decides, once more

The processes are real: a seed repeats what was decided, and not the order in which the machine does it. What is found
keeps the reports of the processes, and all that was recorded.
"""

import asyncio
import os
import shutil
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from tests.postgresql import Server, shared_server, stop_shared_server
from tests.simulation.postgresql.database import lay_out
from tests.simulation.postgresql.plan import Plan, plan_of
from tests.simulation.postgresql.records import Records
from tests.simulation.postgresql.referee import broken_promises
from tests.simulation.postgresql.world import World, prepare

_SHOWN_EVENTS: Final = 60


@frozen
class Result:
    """What became of a world."""

    records: Records
    violations: tuple[str, ...]


def run_plan(plan: Plan, location: str, folder: Path) -> Result:
    """Run a world in an empty database."""

    async def run() -> Records:
        await lay_out(location)
        return await World(plan, location, folder).run()

    records = asyncio.run(run())
    return Result(records, tuple(broken_promises(records)))


def main(arguments: Namespace) -> bool:
    """Do what the command line says; return whether all promises were kept."""
    with _server() as folder:
        if arguments.seed is not None:
            prepare()
            result, files = _run(shared_server(folder), arguments.seed)
            print(explanation(result, files))  # noqa: T201 - a command
            return not result.violations
        cores, began = os.cpu_count() or 1, time.monotonic()
        with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
            firsts = range(arguments.first, arguments.first + cores)
            until = began + arguments.seconds
            parts = list(pool.map(_search, [folder] * cores, firsts, [cores] * cores, [until] * cores))
    totals = sum((part for part, _ in parts), Counter[str]())
    totals["seconds"] = round(time.monotonic() - began)
    failed = sorted(seed for _, seeds in parts for seed in seeds)
    figures = ", ".join(f"{totals[name]:,} {name}" for name in ("worlds", "creates", "kills", "seconds"))
    print(f"{figures}; {len(failed)} broke a promise{f', told of by --seed: {failed}' * bool(failed)}")  # noqa: T201 - a command
    return not failed


def _search(folder: Path, first: int, step: int, until: float) -> tuple[Counter[str], list[int]]:
    """Run the seeds `first`, `first + step` and so on, until a time of the monotonic clock."""
    prepare()
    server, totals, failed, seed = shared_server(folder), Counter[str](), list[int](), first
    while time.monotonic() < until:
        result, files = _run(server, seed)
        totals.update(worlds=1, creates=len(result.records.creates), kills=kills_in(result.records))
        if result.violations:
            failed.append(seed)
            (files / "explanation").write_text(explanation(result, files))
            print(f"seed {seed}: {result.violations[0]}; files in {files}", flush=True)  # noqa: T201 - a command
        seed += step
    return totals, failed


def kills_in(records: Records) -> int:
    """Return how many processes were killed."""
    return sum(one.what == "kill" for one in records.happened)


def _run(server: Server, seed: int) -> tuple[Result, Path]:
    """Run the world of a seed; its folder stays where a promise was broken."""
    folder = Path(tempfile.mkdtemp(prefix=f"world-{seed}-"))
    with server.database() as location:
        result = run_plan(plan_of(seed), location, folder)
    if not result.violations:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    return result, folder


@contextmanager
def _server() -> Iterator[Path]:
    """Give the folder of a server, which is started by the first who asks for it, and stopped at the end."""
    folder = Path(tempfile.mkdtemp(prefix="worlds-"))
    folder.chmod(0o755)  # the server may run as another user
    try:
        yield folder
    finally:
        stop_shared_server(folder)
        shutil.rmtree(folder, ignore_errors=True)


def explanation(result: Result, folder: Path) -> str:
    """Return what a seed decided and what happened, as lines that a person reads."""
    records, plan = result.records, result.records.plan
    said = result.violations or ("all promises were kept",)
    lines = [f"seed {plan.seed}: {violation}" for violation in said]
    lines += ["", f"owner_timeout {plan.owner_timeout:g} s, {plan.limits}, latency {plan.latency:g} s"]
    for name in ("programs", "troubles", "actions", "faults"):
        lines += ["", f"{name}:", *(f"  {one}" for one in getattr(plan, name))]
    events = sorted(_events(records), key=lambda event: event[0])
    named = [event for event in events if _is_named(event[1], said[0])]
    lines += ["", f"the last {_SHOWN_EVENTS} events of what is named above, and troubles:"]
    lines += [f"{at:.3f} {text}" for at, text in named[-_SHOWN_EVENTS:]]
    if result.violations:
        (folder / "events").write_text("\n".join(f"{at:.3f} {text}" for at, text in events))
        lines += ["", f"all {len(events)} events, the reports and the logs of the processes are in {folder}"]
    lines += ["", "the processes are real: the seed repeats what was decided, not each event"]
    return "\n".join(lines)


def _events(records: Records) -> Iterator[tuple[float, str]]:
    for request in records.requests:
        yield request.at, f"{request.sender} {request.kind} {request.subject} {request.project} {request.fault or ''}"
    for row in records.changes:
        sender = records.senders.get(row.owner or 0, "-")
        told = "followed" if row.is_followed else "unfollowed" if row.is_unfollowed else ""
        yield (
            row.at,
            f"  row {row.key} {row.state} {sender} {row.job_id or ''} {row.claim or ''} {told} {row.error or ''}",
        )
    for report in records.reports:
        if report.what != "polled":
            yield report.at, f"{report.sender} {report.what} {_words(report.about)}"
    for one in records.happened:
        yield one.at, f"! {one.what} {one.sender or 'all'} until {one.until:.3f}"


def _words(about: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in about.items())


def _is_named(event: str, violation: str) -> bool:
    words = set(violation.replace(":", " ").replace(";", " ").replace(",", " ").split())
    subjects = {word for word in words if word[0] in "bd" and word[1:2].isdigit()} | {
        word for word in words if word.startswith("job_")
    }
    return event.startswith("! ") or bool(subjects & set(event.replace("=", " ").split()))
