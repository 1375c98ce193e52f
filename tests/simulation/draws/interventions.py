"""What a person does about rows."""

import random
from typing import Final

from tests.simulation.interventions import Intervention, Moment, Verb

_OF_BATCHES: Final[tuple[Verb, ...]] = (
    *("abandon", "abandon", "abandon", "retry", "retry", "retry", "retry all", "resolve", "resolve", "send again"),
)
_OF_DURABLE: Final[tuple[Verb, ...]] = (
    *("abandon", "withdraw", "retry", "retry", "resolve", "send again", "unfollow", "unfollow", "submit"),
)
_DELAYS: Final = (0.0, 0.0, 0.0005, 0.01, 0.1, 3.0, 40.0)  # s after a moment


def interventions_of(seed: str, count: int, *, durable: bool) -> tuple[Intervention, ...]:
    """Return what befalls the rows of an activity of `count` items."""
    draw = random.Random(f"{seed} interventions")
    if draw.random() < 0.5:
        return ()
    found: list[Intervention] = []
    mean, verbs = draw.choice((30.0, 300.0, 3000.0)), _OF_DURABLE if durable else _OF_BATCHES
    for _ in range(draw.choice((1, 3, 10, 10, 30))):
        after: Moment = draw.choice(("", "", "create", "told"))
        at = draw.choice(_DELAYS) if after else draw.expovariate(1 / mean)
        item = draw.randrange(count + 1)
        found.append(Intervention(at, draw.choice(verbs), item, after))
        if draw.random() < 0.3:  # two at once
            found.append(Intervention(at, draw.choice(verbs), item, after))
    return tuple(found)
