"""The world of a seed."""

import random
from typing import Final

from attrs import evolve

from tests.simulation.activities import WAYS, Batch, Calls, Durable, Leave, Program
from tests.simulation.cases import Case
from tests.simulation.draws.agreements import agreement_of
from tests.simulation.draws.faults import faults_of
from tests.simulation.draws.interventions import with_interventions
from tests.simulation.draws.leaving import with_leaving
from tests.simulation.draws.others import with_others
from tests.simulation.draws.sessions import with_sessions
from tests.simulation.draws.small import small_world
from tests.simulation.world import Fault

_SMALL: Final = 0.6  # of all worlds


def case_of(seed: int, most: int = 400) -> Case:
    """Return the world of a seed; each of its activities creates at most `most` jobs."""
    programs, faults = _work_of(seed, most)
    agreement, more = agreement_of(seed, programs)
    unique = {(fault.where, fault.at): fault for fault in (*more, *faults)}
    return Case(seed, programs, tuple(unique.values()), agreement)


def _work_of(seed: int, most: int) -> tuple[tuple[Program, ...], list[Fault]]:
    """Return the programs of a seed, and what befalls them whatever the service has agreed on."""
    if random.Random(f"{seed} size").random() < _SMALL:
        program, few = small_world(seed, most)
        return (with_others(seed, with_interventions(seed, program)),), [*few]
    draw = random.Random(f"{seed} case")
    programs = tuple(_program(draw, f"p{number}", most) for number in range(draw.choice((1, 1, 2))))
    programs = tuple(with_leaving(seed, with_others(seed, with_interventions(seed, program))) for program in programs)
    creates = sum(activity.count for program in programs for activity in program.activities)
    return with_sessions(seed, programs, faults_of(draw, creates))


def _program(draw: random.Random, name: str, most: int) -> Program:
    kinds = draw.choices((_calls, _batch, _durable), weights=(5, 5, 3), k=draw.choice((1, 1, 2, 3)))
    if kinds.count(_durable) > 1:
        kinds = [_durable, _batch]
    activities = (evolve(one, count=min(one.count, most)) for one in (kind(draw) for kind in kinds))
    return Program(
        name,
        tuple(activities),
        interval=draw.choice((0.0, -1.0, 5.0, 20.0, 60.0, 60.0)),
        in_flight=draw.choice((1, 2, 5, 100)),
        per_second=draw.choice((None, None, 0.5, 3.0)),
        leave=Leave(draw.choice(("drain", "close"))) if draw.random() < 0.3 else None,
    )


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
