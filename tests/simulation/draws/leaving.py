"""How programs are left before their work is done, and of which kinds their sources are."""

import random
from typing import Any

from attrs import evolve

from tests.simulation.activities import Again, Batch, Calls, Leave, Program
from tests.simulation.programs.sources import KINDS


def with_leaving(seed: int, program: Program, *, often: bool = False) -> Program:
    """Return a program with sources, ways and leaves of its own draws."""
    draw = random.Random(f"{seed} {program.name} leaving")
    activities = tuple(_activity(draw, one) for one in program.activities)
    leave = program.leave
    if leave is not None or draw.random() < (0.6 if often else 0.2):
        leave = _leave(draw, len(activities), leave)
    return evolve(program, activities=activities, leave=leave)


def _activity(draw: random.Random, activity: Any) -> Any:
    if isinstance(activity, Batch):
        return evolve(
            activity,
            source=draw.choice(KINDS) if draw.random() < 0.3 else "",
            breaks_after=draw.choice((1, 2, 5)) if draw.random() < 0.2 else activity.breaks_after,
        )
    if isinstance(activity, Calls):
        stores = draw.choice((0.0, 3.0, 30.0)) if draw.random() < 0.2 else None
        way = draw.choice(("stream", "read")) if draw.random() < 0.25 else activity.way
        return evolve(activity, way=way, source=draw.choice(KINDS) if way == "stream" else "", stores=stores)
    return activity


def _leave(draw: random.Random, count: int, leave: Leave | None) -> Leave:
    way = leave.way if leave is not None else draw.choice(("drain", "close", "SIGTERM", "SIGTERM", "SIGINT"))
    is_signal = way.startswith("SIG")
    ways: tuple[Again, ...] = ("signal",) if is_signal else ("drain", "close", "cancel")
    again = draw.choice(ways)
    activity = draw.choice((-1, *range(count)))
    is_replaced = draw.random() < 0.3 and (is_signal or activity < 0)  # else the program goes on with other sessions
    return Leave(
        way,
        after=draw.choice((0.01, 0.06, 0.5, 1.0, 3.0, 3.0, 61.03, 60.0, 200.0)) + draw.choice((0.0, draw.random())),
        grace=draw.choice((0.0, 0.05, 5.0, 10.0)),
        activity=activity,
        starts=draw.choice((1, 1, 2)),
        again=again if draw.random() < 0.3 else "",
        again_after=draw.choice((0.0, 0.02, 1.0, 7.0)),
        replaced_after=draw.choice((0.0, 0.1, 4.0)) if is_replaced else None,
        handles=draw.random() < 0.5,
    )
