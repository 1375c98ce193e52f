"""What the sessions of a program have of their own, drawn by a generator of its own: other draws stay as they are."""

import random
from typing import Final

from attrs import evolve

from tests.simulation.activities import LABELS, LEARNING, Program, Sessions
from tests.simulation.dates import RETRY_DATES
from tests.simulation.world import Fault

_HOMES: Final = (("docs",), ("docs", "shop"), ("shop", "docs"), ("docs", "site"))
_LABELS: Final = (("own",), ("none", "own", "other"), ("other", "own", "none"), ("none", "none", "own"), LABELS)
_REFUSED_SECONDS: Final = (30.0, 300.0)


def with_sessions(
    seed: int, programs: tuple[Program, ...], faults: list[Fault]
) -> tuple[tuple[Program, ...], list[Fault]]:
    """Return the programs with sessions of their own, and faults that befall one key, or write dates otherwise."""
    draw = random.Random(f"{seed} sessions")
    drawn = tuple(_with_sessions(draw, one) for one in programs)
    some = [_with_date(draw, one) for one in faults]
    if any(one.sessions.keys > 1 for one in drawn) and draw.random() < 0.5:
        at = int(draw.expovariate(1 / draw.choice((20.0, 900.0)))) + 1
        some.append(Fault("time", at, "outage", draw.choice(_REFUSED_SECONDS), "401 key-1"))
    return drawn, some


def _with_sessions(draw: random.Random, program: Program) -> Program:
    sessions = Sessions(
        homes=draw.choice(_HOMES),
        keys=draw.choice((1, 2)),
        learning=draw.choice(LEARNING),
        labels=draw.choice(_LABELS),
        label_gap=draw.choice((0.0, 0.02, 3.0)),
        has_other_hooks=draw.random() < 0.5,
    )
    learns = program.interval == 0.0 and draw.random() < 0.5
    return evolve(program, sessions=sessions, interval=-1.0 if learns else program.interval)


def _with_date(draw: random.Random, fault: Fault) -> Fault:
    form, _, seconds = fault.text.partition(" ")
    return evolve(fault, text=f"{draw.choice([*RETRY_DATES])} {seconds}") if form in RETRY_DATES else fault
