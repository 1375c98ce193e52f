"""Worlds before they run: from a seed, run and judged, and shrunk where a promise is broken."""

import gc
import logging
import os
import random
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from attrs import evolve, frozen

from tests.simulation.interventions import drawn
from tests.simulation.ledger import WAYS, Batch, Calls, Durable, Leave, Ledger, Program
from tests.simulation.processes import Process, Supervisor
from tests.simulation.programs.leaving import with_leaving
from tests.simulation.programs.main import main
from tests.simulation.programs.run import Run
from tests.simulation.programs.small import small_world
from tests.simulation.referee import broken_promises
from tests.simulation.service import DOCUMENTS, Service
from tests.simulation.sessions import with_sessions
from tests.simulation.snapshots import noted_warnings, snapshot_taker
from tests.simulation.system import replaced
from tests.simulation.world import Fault, ViolationError, World

_SHOWN_EVENTS: Final = 40  # events of a failure
_SMALL: Final = 0.6  # of all worlds
_LONGEST_WORLD: Final = 60 * 86_400.0  # s, after which every program has ended
_DOWNTIMES: Final = (1.0, 20.0, 700.0, 7200.0, 40_000.0)  # s, before what was killed is started again


@frozen
class Case:
    """A world before it runs: the same case gives the same events."""

    seed: int
    programs: tuple[Program, ...]
    faults: tuple[Fault, ...]


@frozen
class Result:
    """What became of a world."""

    violations: tuple[str, ...]
    trace: tuple[str, ...]
    happened: frozenset[Fault]
    creates: int
    kills: int
    seconds: float


def run(case: Case) -> Result:
    """Run one world to its end, and judge it."""
    shared = Path("/dev/shm")  # noqa: S108 - where there is one: a disk in memory
    with (
        patch.object(sys, "unraisablehook", lambda _: None),  # what was killed complains when it is collected
        warnings.catch_warnings(action="ignore"),
        _zone_of(case.seed),
        tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder,
    ):
        logging.disable(logging.CRITICAL)
        try:
            result = _judged(case, Path(folder))
            if result.kills or result.violations:
                gc.collect()
        finally:
            logging.disable(logging.NOTSET)
        return result


@contextmanager
def _zone_of(seed: int) -> Iterator[None]:
    """Let the programs of a seed live in a time zone of its own."""
    with patch.dict(os.environ, TZ=random.Random(f"{seed} zone").choice(("UTC0", "AAA-5:30", "BBB8"))):
        time.tzset()
        yield
    time.tzset()


def _judged(case: Case, folder: Path) -> Result:
    world = World(case.seed, case.faults)
    service, ledger = Service(world, case.programs), Ledger()

    def started(program: Program) -> Supervisor:
        def start(process: Process) -> Coroutine[Any, Any, None]:
            return main(Run(world, service, ledger, program, folder, process))

        return Supervisor(world, program.name, start, snapshot_taker(world, ledger, folder / f"{program.name}.db"))

    with replaced(world), noted_warnings(world, ledger):
        processes = [started(one) for one in case.programs]
        found = []
        try:
            found += _run(world, processes)
            found += broken_promises(world, service, ledger, case.programs, folder)
        except Exception:  # noqa: BLE001 - a search goes on when one of its worlds breaks
            found.append(f"World: it broke: {traceback.format_exc()}")
    for loop in (*world.loops, *world.dead):
        loop._closed = True
    creates = sum(one.kind == "create" for one in service.requests)
    trace = (*world.trace, f"{world.events} events")
    return Result(tuple(dict.fromkeys(found)), trace, frozenset(world.happened), creates, world.kills, world.now)


def _run(world: World, processes: list[Supervisor]) -> list[str]:
    try:
        world.run(lambda: all(one.is_over for one in processes) or world.now > _LONGEST_WORLD or bool(world.violations))
        world.run_for(20.0)  # a source that swallows its cancellation is left behind, and ends then
    except ViolationError as error:
        return [str(error)]
    found = []
    if not world.violations:
        for process in processes:
            if process.error is not None:
                lines = traceback.format_exception(process.error)
                found.append(f"P12: {process.name} ended with {process.error!r}\n{''.join(lines)}")
            elif not process.is_over:
                found.append(f"World: {process.name} never ends")
            else:
                found += [f"P17: {process.name} leaves {what}" for what in process.left_behind()]
    return found


def case_of(seed: int, most: int = 400) -> Case:
    """Return the world of a seed; each of its activities creates at most `most` jobs."""
    if random.Random(f"{seed} size").random() < _SMALL:
        program, few = small_world(seed, most)
        return Case(seed, (program,), few)
    draw = random.Random(f"{seed} case")
    programs = tuple(_program(draw, seed, f"p{number}", most) for number in range(draw.choice((1, 1, 2))))
    programs = tuple(with_leaving(seed, program) for program in programs)
    creates = sum(activity.count for program in programs for activity in program.activities)
    count = draw.choice((0, 1, 3, 10, 10, 30, 30, 100))
    faults = [fault for _ in range(count) for fault in _faults(draw, creates)]
    if draw.random() < 0.7:
        at = 0.0
        for _ in range(draw.choice((2, 4, 8, 16))):
            at += draw.expovariate(1 / (40.0 * creates))
            faults.append(Fault("event", int(at) + 1, "kill", draw.choice(_DOWNTIMES)))
    programs, faults = with_sessions(seed, programs, faults)
    unique = {(fault.where, fault.at): fault for fault in faults}
    return Case(seed, programs, tuple(unique.values()))


def _program(draw: random.Random, seed: int, name: str, most: int) -> Program:
    kinds = draw.choices((_calls, _batch, _durable), weights=(5, 5, 3), k=draw.choice((1, 1, 2, 3)))
    if kinds.count(_durable) > 1:
        kinds = [_durable, _batch]
    activities = (evolve(one, count=min(one.count, most)) for one in (kind(draw) for kind in kinds))
    return Program(
        name,
        tuple(_with_interventions(one, f"{seed} {name}-{number}") for number, one in enumerate(activities)),
        interval=draw.choice((0.0, -1.0, 5.0, 20.0, 60.0, 60.0)),
        in_flight=draw.choice((1, 2, 5, 100)),
        per_second=draw.choice((None, None, 0.5, 3.0)),
        leave=Leave(draw.choice(("drain", "close"))) if draw.random() < 0.3 else None,
    )


def _with_interventions(activity: Calls | Batch | Durable, seed: str) -> Calls | Batch | Durable:
    match activity:
        case Batch():
            return evolve(activity, interventions=drawn(seed, activity.count, durable=False))
        case Durable():
            return evolve(activity, interventions=drawn(seed, activity.count, durable=True))
    return activity


def _calls(draw: random.Random) -> Calls:
    return Calls(
        draw.choice(WAYS),
        draw.choice((1, 1, 4, 12, 12, 60)),
        draw.choice((0.0, 0.01, 3.0)),
        draw.choice((0.5, 10.0, 120.0, 1800.0, 1800.0)),
        draw.choice((3.0, 120.0)),
        notifies=draw.random() < 0.2,
        projects=draw.choice((1, 1, 2, 3)),
    )


def _batch(draw: random.Random) -> Batch:
    return Batch(
        draw.choice((2, 10, 10, 40, 40, 40, 120, 400 if draw.random() < 0.3 else 4)),
        draw.choice((1, 2, 3)),
        draw.choice((1, 3, 20)),
        draw.choice((1, 2, 10)),
        draw.choice((None, None, (3, 60.0, "project"), (20, 3600.0, "project"), (5, 100.0, "all"))),
        draw.choice((None, 60.0, 1800.0)),
        draw.choice((0.0, 100.0, 600.0)),
        retries=draw.random() < 0.4,
        changes=draw.random() < 0.3,
    )


def _durable(draw: random.Random) -> Durable:
    return Durable(
        draw.choice((1, 4, 15)),
        draw.choice((0.0, 0.5, 30.0)),
        draw.choice((0.0, 30.0)),
        draw.random() < 0.7,
        projects=draw.choice((1, 1, 2)),
        begins_silent=draw.random() < 0.3,
    )


_CONNECTION_FAULTS: Final = (
    *product(("silent", "reset", "close"), ("request", "response")),
    *product(("pieces", "slow", "refuse", "unreachable", "descriptors", "hang"), ("both",)),
)
_RETRY_AFTER: Final = ("", "seconds 3", "seconds 20", "seconds 300", "seconds -5", "ahead 30", "behind 30", "garbage 7")
_STATUSES: Final = (*("429",) * 3, *("503",) * 2, "500", "502", "504", "408", "401", "403", "404", "410", "400", "307")
_TIME_FAULTS: Final[tuple[tuple[str, tuple[float, ...]], ...]] = (
    *(("outage", (20.0, 300.0, 2400.0, 7200.0)),) * 3,
    ("clock", (-7200.0, -30.0, 60.0, 86_400.0)),
    ("stall", (1.0, 35.0)),
)
_OTHER_FAULTS: Final[dict[str, tuple[int, tuple[str, ...], tuple[float, ...]]]] = {
    "commit": (6, ("slow", "slow", "fail", "full", "lost", "kill", "cancel"), (0.5, 5.0, 60.0)),
    "call": (5, ("raise", "hang", "swallow", "kill"), (12.0,)),
    "event": (300, ("cancel",), tuple(range(20))),
    "lookup": (1, ("fail", "slow"), (2.0, 30.0)),
}
"""By what is counted: how many there are for each create, what may befall them, and the amounts."""
_OUTAGES: Final = ("refuse", "unreachable", "silent", "names", "503", "504", "429", *("429 blog",) * 4, "maintenance")


def _faults(draw: random.Random, creates: int) -> list[Fault]:
    """Return a fault, alone or several times in a row."""
    first = _fault(draw, creates)
    times = draw.choice((1, 1, 1, 2, 6)) if first.where in {"create", "poll", "connection", "commit"} else 1
    return [evolve(first, at=first.at + number) for number in range(times)]


def _fault(draw: random.Random, creates: int) -> Fault:
    where = draw.choice(("connection", "connection", "create", "job", "poll", "poll", "time", *_OTHER_FAULTS))
    if where == "connection":
        what, side = draw.choice(_CONNECTION_FAULTS)
        amount = draw.choice({"pieces": (1, 7, 100), "slow": (1.0, 6.0, 25.0)}.get(what, (0, 1, 50, 250, 1000)))
        return Fault(where, draw.randint(1, 4 * creates), what, amount, side)
    if where in {"create", "job", "poll"}:
        return _answer(draw, where, creates)
    if where == "time":
        what, amounts = draw.choice(_TIME_FAULTS)
        text = draw.choice(_OUTAGES) if what == "outage" else ""
        return Fault(where, int(draw.expovariate(1 / draw.choice((20.0, 900.0)))) + 1, what, draw.choice(amounts), text)
    many, kinds, how_much = _OTHER_FAULTS[where]
    return Fault(where, draw.randint(1, many * creates + 5), draw.choice(kinds), draw.choice(how_much))


def _answer(draw: random.Random, where: str, creates: int) -> Fault:
    at = draw.randint(1, 6 * creates if where == "poll" else creates)
    what = draw.choice((*_STATUSES, "late", "hang up", *("document",) * 4, "retry after"))
    amount = draw.choice((1.0, 15.0, 40.0, 200.0)) if what == "late" else float(draw.random() < 0.5)
    if what == "document":
        what = draw.choice([one for one in (*DOCUMENTS, *("wrong id",) * 3) if where != "create" or one != "wrong id"])
    if where == "create" and what[0] in "34" and what != "408":
        amount = 0.0  # a service that refuses starts no agent
    return Fault(where, at, what, amount, draw.choice(_RETRY_AFTER))


def shrunk(case: Case) -> Case:
    """Return the least that still breaks the same promise: faults are left out first, then all else by turns."""
    promise = _promise(case)
    for size in (8, 4, 2, 1):
        for at in reversed(range(0, len(case.faults), size)):
            fewer = evolve(case, faults=case.faults[:at] + case.faults[at + size :])
            if _promise(fewer) == promise:
                case = fewer
    while smaller := next((one for one in _smaller(case) if _promise(one) == promise), None):
        case = smaller
    return case


def _promise(case: Case) -> str | None:
    """Return which promise a case breaks first, by its first word."""
    found = run(case).violations
    return found[0].split()[0] if found else None


def _smaller(case: Case) -> Iterator[Case]:
    """Yield the case without one of its programs, or with less of one activity."""
    for at, program in enumerate(case.programs):
        before, after = case.programs[:at], case.programs[at + 1 :]
        if before or after:
            yield evolve(case, programs=before + after)
        for number, activity in enumerate(program.activities):
            for less in _less(activity):
                activities = [*program.activities]
                activities[number] = less
                yield evolve(case, programs=(*before, evolve(program, activities=tuple(activities)), *after))


def _less(activity: Calls | Batch | Durable) -> Iterator[Calls | Batch | Durable]:
    """Yield an activity with fewer jobs, or with fewer interventions."""
    for count in [one for one in (1, 2, 4, 10) if one < activity.count]:
        yield evolve(activity, count=count)
    if isinstance(activity, Calls):
        return
    found = activity.interventions
    for size in sorted({len(found), len(found) // 2, 1} - {0}, reverse=True):
        for at in range(0, len(found), size):
            yield evolve(activity, interventions=found[:at] + found[at + size :])


def explanation(case: Case, result: Result) -> str:
    """Return a failure as lines that a person reads."""
    said = result.violations[:5] or ("all promises were kept",)
    named = set(re.findall(r"job-\d+|p\d[-.:/\w]*", said[0]))
    events = [line for line in result.trace if " ! " in line or named & set(line.split())]
    lines = [f"seed {case.seed}: {violation}" for violation in said]
    lines += ["", "programs:", *(f"  {program}" for program in case.programs)]
    lines += ["", "faults:", *(f"  {fault}" for fault in case.faults)]
    return "\n".join([*lines, "", f"the last {_SHOWN_EVENTS} events of these, and faults:", *events[-_SHOWN_EVENTS:]])
