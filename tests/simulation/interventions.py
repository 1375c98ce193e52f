"""What a person does about rows, at any moment: as the seed draws it, and what came of it."""

import random
from math import inf
from typing import Any, Final, Literal

from attrs import define, frozen

Verb = Literal["abandon", "withdraw", "retry", "retry all", "resolve", "send again", "unfollow", "submit"]
Moment = Literal["", "create", "told"]
PLANS: Final = ("retry", "send again")  # by which a row is planned once more
_OF_BATCHES: Final[tuple[Verb, ...]] = (
    *("abandon", "abandon", "abandon", "retry", "retry", "retry", "retry all", "resolve", "resolve", "send again"),
)
_OF_DURABLE: Final[tuple[Verb, ...]] = (
    *("abandon", "withdraw", "retry", "retry", "resolve", "send again", "unfollow", "unfollow", "submit"),
)
_DELAYS: Final = (0.0, 0.0, 0.0005, 0.01, 0.1, 3.0, 40.0)  # s after a moment


@frozen
class Intervention:
    """What a person does about one item.

    Attributes:
        at: Seconds since the world began, or after a moment of the item.
        verb: What it is: `withdraw` abandons by the durable jobs, `retry all` tries again whatever has failed.
        item: The item's number; that of none stands for a key that was never planned.
        after: The moment: when its create has arrived at the service, or its end begins to be told.
    """

    at: float
    verb: Verb
    item: int
    after: Moment = ""


@define(eq=False)
class Act:
    """What was done about a row, and what came of it.

    Attributes:
        verb: `retry` also for each row that `retry all` may have tried again.
        key: The key that was named.
        begun, ended: Seconds since the world began; without an end, its process was killed meanwhile.
        outcome: Whether it was done; unclear, where its caller was told of neither.
        value: What was returned.
    """

    verb: str
    key: str
    begun: float
    ended: float = inf
    outcome: Literal["done", "refused", "unclear"] = "unclear"
    value: Any = None


def prompt_of(key: str) -> str:
    """Return the prompt of a row of this key, which is the key of its item."""
    return key.partition("#")[0]


def drawn(seed: str, count: int, *, durable: bool) -> tuple[Intervention, ...]:
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
