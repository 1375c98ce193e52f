"""What the service and the sessions of a world agree on, and what befalls their keys."""

import random
from math import inf
from typing import Any, Final

from tests.simulation.activities import Program
from tests.simulation.agreement import BODIES, KEY_HEADERS, PATHS, Agreement
from tests.simulation.world import Fault

_USUAL: Final = 0.5  # of all worlds
_REPEATS: Final = ("forget", "forget", "409", "409", "401", "422", "429")
_KEY_FAULTS: Final = ("raise", "slow", "slow", "old", "old")


def agreement_of(seed: int, programs: tuple[Program, ...]) -> tuple[Agreement, list[Fault]]:
    """Return an agreement, the usual one in half of the worlds, and more faults."""
    draw = random.Random(f"{seed} agreement")
    if draw.random() < _USUAL:
        return Agreement(), []
    paths = draw.choice([*PATHS])
    bodies = [name for name in BODIES if paths != "flat" or name != "usual"]
    agreement = Agreement(
        paths=paths,
        body=draw.choice(bodies),
        key_header=draw.choice(KEY_HEADERS),
        nested=draw.random() < 0.5,
        integer_ids=draw.random() < 0.5,
        words=draw.random() < 0.5,
        refusals=frozenset(draw.choice(((), (), (503,), (502, 504)))),
        own_headers=draw.random() < 0.5,
        key=draw.choice(("", "plain", "async")),
        **_idempotency(draw),
    )
    creates = sum(activity.count for program in programs for activity in program.activities)
    faults = [*_key_faults(draw, agreement), *_repeat_faults(draw, agreement, creates)]
    return agreement, faults


def _idempotency(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.4:
        return {}
    return {
        "idempotency_header": draw.choice(("Idempotency-Key", "X-Request-Key")),
        "idempotency_seconds": draw.choice((5.0, 90.0, 86_400.0, 86_400.0)),
        "remembers_seconds": draw.choice((inf, inf, inf, 0.0, 20.0)),
        "conflicts": draw.random() < 0.5,
    }


def _key_faults(draw: random.Random, agreement: Agreement) -> list[Fault]:
    """Return the moments from which keys are new, and what happens to callables: nothing in half of the worlds."""
    if not agreement.key:
        return []
    count, mean = draw.choice((0, 1, 2, 4)), draw.choice((3.0, 60.0, 900.0))
    moments = {int(draw.expovariate(1 / mean)) + 1 for _ in range(count)}
    faults = [Fault("time", at, "new key", draw.choice((0.0, 0.0, 10.0))) for at in moments]
    for _ in range(draw.choice((0, 0, 1, 3))):
        what = draw.choice(_KEY_FAULTS)
        first, times = draw.randint(1, 6), draw.choice((1, 1, 3))
        amount = draw.choice((0.2, 6.0, 30.0)) if what == "slow" else 0.0
        faults += [Fault("key", first + number, what, amount) for number in range(times)]
    return faults


def _repeat_faults(draw: random.Random, agreement: Agreement, creates: int) -> list[Fault]:
    """Return what befalls repeated creates: nothing in half of the worlds, and the same each time in some."""
    if agreement.idempotency_header is None or draw.random() < 0.5:
        return []
    what, is_always = draw.choice(_REPEATS), draw.random() < 0.3
    some = range(1, 60) if is_always else {draw.randint(1, creates + 3) for _ in range(draw.choice((1, 3, 10)))}
    text = draw.choice(("", "", "seconds 3", "seconds 50")) if what in {"409", "429"} else ""
    return [Fault("repeat", at, what if is_always else draw.choice((what, *_REPEATS)), text=text) for at in some]
