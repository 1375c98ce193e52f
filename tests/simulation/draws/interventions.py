"""What a person does about rows."""

import random
from typing import Final

from attrs import evolve

from tests.simulation.activities import Batch, Calls, Durable, Program
from tests.simulation.interventions import Intervention, Moment, Verb

_OF_BATCHES: Final[tuple[Verb, ...]] = (
    *("abandon", "abandon", "abandon", "retry", "retry", "retry", "retry all", "resolve", "resolve", "send again"),
    *("notify", "notify", "abandon planned"),
)
_OF_DURABLE: Final[tuple[Verb, ...]] = (
    *("abandon", "withdraw", "withdraw", "retry", "retry", "retry all", "resolve", "send again"),
    *("unfollow", "unfollow", "submit", "notify", "notify", "abandon planned"),
)
_DELAYS: Final = (0.0, 0.0, 0.0005, 0.01, 0.1, 3.0, 40.0)  # s after a moment


def with_interventions(seed: int, program: Program) -> Program:
    """Return a program with interventions and rates of its own draws, in each activity that has rows."""
    named = [(f"{seed} {program.name}-{number}", one) for number, one in enumerate(program.activities)]
    return evolve(program, activities=tuple(_with_interventions(name, one) for name, one in named))


def _with_interventions(seed: str, activity: Calls | Batch | Durable) -> Calls | Batch | Durable:
    match activity:
        case Batch():
            return evolve(activity, interventions=interventions_of(seed, activity.count, durable=False))
        case Durable():
            draw = random.Random(f"{seed} rate")
            return evolve(
                activity,
                interventions=interventions_of(seed, activity.count, durable=True),
                rate=draw.choice((None, None, None, (3, 60.0, "project"), (1, 20.0, "all"))),
            )
    return activity


def interventions_of(seed: str, count: int, *, durable: bool) -> tuple[Intervention, ...]:
    """Return what befalls the rows of an activity of `count` items."""
    draw = random.Random(f"{seed} interventions")
    if draw.random() < 0.5:
        return ()
    found: list[Intervention] = []
    mean, verbs = draw.choice((30.0, 300.0, 3000.0)), _OF_DURABLE if durable else _OF_BATCHES
    for _ in range(draw.choice((1, 3, 10, 10, 30))):
        after: Moment = draw.choice(("", "", "given", "create", "told"))
        at = draw.choice(_DELAYS) if after else draw.expovariate(1 / mean)
        item = draw.randrange(count + 1)
        found.append(Intervention(at, draw.choice(verbs), item, after))
        if draw.random() < 0.3:  # two at once
            found.append(Intervention(at, draw.choice(verbs), item, after))
    return tuple(found)
