"""Worlds before they run, and what becomes of them: run, judged and explained."""

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
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from attrs import field, frozen

from tests.simulation.activities import Program
from tests.simulation.agreement import Agreement
from tests.simulation.ledger import Ledger
from tests.simulation.processes import Process, Supervisor
from tests.simulation.programs.main import main
from tests.simulation.programs.run import Run
from tests.simulation.referee import broken_promises
from tests.simulation.service import Service
from tests.simulation.snapshots import noted_warnings, snapshot_taker
from tests.simulation.system import replaced
from tests.simulation.world import Fault, ViolationError, World

_SHOWN_EVENTS: Final = 40  # events of a failure
_LONGEST_WORLD: Final = 60 * 86_400.0  # s, after which every program has ended


@frozen
class Case:
    """A world before it runs: the same case gives the same events."""

    seed: int
    programs: tuple[Program, ...]
    faults: tuple[Fault, ...]
    agreement: Agreement = field(factory=Agreement)


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
    service, ledger = Service(world, case.programs, case.agreement), Ledger()

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


def explanation(case: Case, result: Result) -> str:
    """Return a failure as lines that a person reads."""
    said = result.violations[:5] or ("all promises were kept",)
    named = set(re.findall(r"job-\d+|p\d[-.:/\w]*", said[0]))
    events = [line for line in result.trace if " ! " in line or named & set(line.split())]
    lines = [f"seed {case.seed}: {violation}" for violation in said]
    lines += ["", "programs:", *(f"  {program}" for program in case.programs)]
    lines += ["", f"agreement: {case.agreement}"]
    lines += ["", "faults:", *(f"  {fault}" for fault in case.faults)]
    return "\n".join([*lines, "", f"the last {_SHOWN_EVENTS} events of these, and faults:", *events[-_SHOWN_EVENTS:]])
