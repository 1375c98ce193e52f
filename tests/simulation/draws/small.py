"""Small worlds: little work, and few faults, all of them amid it; many are searched in a short time."""

import random
from typing import Final

from attrs import evolve

from tests.simulation.activities import WAYS, Batch, Calls, Durable, Program
from tests.simulation.draws.leaving import with_leaving
from tests.simulation.world import SIGNALS, Fault

_MOMENTS: Final[dict[str, int]] = {"answer": 12, "commit": 24, "event": 600}  # how many of each are amid the work


def small_world(seed: int, most: int) -> tuple[Program, tuple[Fault, ...]]:
    """Return a program of one activity, and its faults."""
    draw = random.Random(f"{seed} small")
    activity = draw.choice((_batch, _batch, _calls, _calls, _durable))(draw)
    in_flight = 1 if isinstance(activity, Calls) and activity.way == "read" else draw.choice((1, 5))
    program = Program("p0", (evolve(activity, count=min(activity.count, most)),), 20.0, in_flight, None)
    faults = [_fault(draw) for _ in range(draw.choice((0, 1, 1, 2, 3)))]
    return with_leaving(seed, program, often=True), tuple({(one.where, one.at): one for one in faults}.values())


def _batch(draw: random.Random) -> Batch:
    count, active, sending = draw.choice((1, 4, 12)), draw.choice((1, 2, 6)), draw.choice((1, 2, 6))
    breaks_after = draw.choice((0, 1, 2, 5))
    return Batch(count, 1, active, sending, None, 600.0, 0.0, retries=False, changes=False, breaks_after=breaks_after)


def _calls(draw: random.Random) -> Calls:
    way = draw.choice((*WAYS, "read", "read", "read"))
    count = 30 if way == "read" else draw.choice((1, 1, 4, 30))  # reads wait for each other's slots
    return Calls(way, count, draw.choice((0.0, 0.01)), 600.0)


def _durable(draw: random.Random) -> Durable:
    return Durable(draw.choice((1, 3)), 0.0, draw.choice((0.0, 3.0)), waits=draw.random() < 0.7)


def _fault(draw: random.Random) -> Fault:
    where = draw.choice(("answer", "answer", "commit", "commit", "event", "connection", "create", "poll"))
    if where == "connection":
        what, amount = draw.choice((("slow", 1.0), ("slow", 6.0), ("silent", 0.0), ("reset", 50.0)))
        return Fault(where, draw.randint(1, 6), what, amount, draw.choice(("request", "response")))
    if where in {"create", "poll"}:
        what = draw.choice(("429", "503", "late", "hang up", "not json"))
        amount = draw.choice((1.0, 15.0)) if what == "late" else 0.0
        return Fault(where, draw.randint(1, 6), what, amount, draw.choice(("", "seconds 3")))
    at = int(_MOMENTS[where] ** draw.random())
    if where == "commit" and draw.random() < 0.6:
        return Fault(where, at, "slow", draw.choice((0.02, 0.5, 5.0)))
    what = draw.choice(("cancel", "cancel", "cancel", "kill", *SIGNALS))
    return Fault(where, at, what, 1.0 if what == "kill" else float(draw.randint(0, 5)))
