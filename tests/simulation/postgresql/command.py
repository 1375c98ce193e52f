"""Search worlds of real processes for a broken promise, or run the world of one seed and tell of it.

.ci/run search --postgresql --seconds 3600   # new seeds, one after another
.ci/run search --postgresql --seed 17        # what the seed decides, once more

The processes are real: a seed repeats what was decided, and not the order in which the machine does it. What is found
keeps the reports of the processes, and all that was recorded.
"""

import asyncio
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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
    with _server() as server:
        if arguments.seed is not None:
            result, folder = _run(server, arguments.seed)
            print(explanation(result, folder))  # noqa: T201 - a command
            return not result.violations
        return _search(server, arguments.first, time.monotonic() + arguments.seconds)


def _search(server: Server, first: int, until: float) -> bool:
    totals: Counter[str] = Counter()
    failed, seed, began = [], first, time.monotonic()
    while time.monotonic() < until:
        result, folder = _run(server, seed)
        totals.update(worlds=1, creates=len(result.records.creates), kills=kills_in(result.records))
        if result.violations:
            failed.append(seed)
            (folder / "explanation").write_text(explanation(result, folder))
            print(f"seed {seed}: {result.violations[0]}; files in {folder}", flush=True)  # noqa: T201 - a command
        seed += 1
    figures = ", ".join(f"{count:,} {name}" for name, count in totals.items())
    seconds = f"{time.monotonic() - began:,.0f} seconds"
    print(f"{figures}, {seconds}; {len(failed)} broke a promise{f', told of by --seed: {failed}' * bool(failed)}")  # noqa: T201 - a command
    return not failed


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
def _server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="worlds-"))
    folder.chmod(0o755)  # the server may run as another user
    try:
        prepare()
        yield shared_server(folder)
    finally:
        stop_shared_server(folder)


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
