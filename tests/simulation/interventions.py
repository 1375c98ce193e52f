"""What a person does about rows, at any moment: as a seed decides, and what came of it."""

from math import inf
from typing import Any, Final, Literal

from attrs import define, frozen

Verb = Literal[
    "abandon",
    "withdraw",
    "abandon planned",
    "retry",
    "retry all",
    "resolve",
    "send again",
    "unfollow",
    "submit",
    "notify",
]
Moment = Literal["", "given", "create", "told"]
PLANS: Final = ("retry", "send again")  # by which a row is planned once more


@frozen
class Intervention:
    """What a person does about one item.

    Attributes:
        at: Seconds since the world began, or after a moment of the item.
        verb: What it is: `withdraw` abandons by the durable jobs, `abandon planned` whatever is planned, `retry all`
            tries again whatever has failed, and `notify` is what a webhook does, several times at once.
        item: The item's number; that of none stands for a key that was never planned.
        after: The moment: when a source gives it or it is submitted, and so may be claimed soon; when its create has
            arrived at the service; or when its end begins to be told.
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
