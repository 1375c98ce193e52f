"""What goes wrong in a world."""

import random
from itertools import product
from typing import Final

from attrs import evolve

from tests.simulation.documents import DOCUMENTS
from tests.simulation.world import Fault

_DOWNTIMES: Final = (1.0, 20.0, 700.0, 7200.0, 40_000.0)  # s, before what was killed is started again
_CONNECTION_FAULTS: Final = (
    *product(("silent", "reset", "close"), ("request", "response")),
    *product(("pieces", "slow", "refuse", "unreachable", "descriptors", "hang"), ("both",)),
)
_RETRY_AFTER: Final = ("", "seconds 3", "seconds 20", "seconds 300", "seconds -5", "ahead 30", "behind 30", "garbage 7")
_STATUSES: Final = (*("429",) * 3, *("503",) * 2, "500", "502", "504", "408", "401", "403", "404", "410", "400", "307")
_TIME_FAULTS: Final[tuple[tuple[str, tuple[float, ...]], ...]] = (
    *(("outage", (20.0, 300.0, 2400.0, 7200.0)),) * 3,
    ("clock", (-7200.0, -30.0, 60.0, 86_400.0)),
    ("stall", (1.0, 35.0)),
)
_OTHER_FAULTS: Final[dict[str, tuple[int, tuple[str, ...], tuple[float, ...]]]] = {
    "commit": (6, ("slow", "slow", "fail", "full", "lost", "kill", "cancel"), (0.5, 5.0, 60.0)),
    "call": (5, ("raise", "hang", "swallow", "kill"), (12.0,)),
    "event": (300, ("cancel",), tuple(range(20))),
    "lookup": (1, ("fail", "slow"), (2.0, 30.0)),
}
"""By what is counted: how many there are for each create, what may befall them, and the amounts."""
_OUTAGES: Final = ("refuse", "unreachable", "silent", "names", "503", "504", "429", *("429 blog",) * 4, "maintenance")


def faults_of(draw: random.Random, creates: int) -> list[Fault]:
    """Return what befalls a world of so many creates."""
    count = draw.choice((0, 1, 3, 10, 10, 30, 30, 100))
    faults = [fault for _ in range(count) for fault in _faults(draw, creates)]
    if draw.random() < 0.7:
        at = 0.0
        for _ in range(draw.choice((2, 4, 8, 16))):
            at += draw.expovariate(1 / (40.0 * creates))
            faults.append(Fault("event", int(at) + 1, "kill", draw.choice(_DOWNTIMES)))
    return faults


def _faults(draw: random.Random, creates: int) -> list[Fault]:
    """Return a fault, alone or several times in a row."""
    first = _fault(draw, creates)
    times = draw.choice((1, 1, 1, 2, 6)) if first.where in {"create", "poll", "connection", "commit"} else 1
    return [evolve(first, at=first.at + number) for number in range(times)]


def _fault(draw: random.Random, creates: int) -> Fault:
    where = draw.choice(("connection", "connection", "create", "job", "poll", "poll", "time", *_OTHER_FAULTS))
    if where == "connection":
        what, side = draw.choice(_CONNECTION_FAULTS)
        amount = draw.choice({"pieces": (1, 7, 100), "slow": (1.0, 6.0, 25.0)}.get(what, (0, 1, 50, 250, 1000)))
        return Fault(where, draw.randint(1, 4 * creates), what, amount, side)
    if where in {"create", "job", "poll"}:
        return _answer(draw, where, creates)
    if where == "time":
        what, amounts = draw.choice(_TIME_FAULTS)
        text = draw.choice(_OUTAGES) if what == "outage" else ""
        return Fault(where, int(draw.expovariate(1 / draw.choice((20.0, 900.0)))) + 1, what, draw.choice(amounts), text)
    many, kinds, how_much = _OTHER_FAULTS[where]
    return Fault(where, draw.randint(1, many * creates + 5), draw.choice(kinds), draw.choice(how_much))


def _answer(draw: random.Random, where: str, creates: int) -> Fault:
    at = draw.randint(1, 6 * creates if where == "poll" else creates)
    what = draw.choice((*_STATUSES, "late", "hang up", *("document",) * 4, "retry after"))
    amount = draw.choice((1.0, 15.0, 40.0, 200.0)) if what == "late" else float(draw.random() < 0.5)
    if what == "document":
        what = draw.choice([one for one in (*DOCUMENTS, *("wrong id",) * 3) if where != "create" or one != "wrong id"])
    if where == "create" and what[0] in "34" and what != "408":
        amount = 0.0  # a service that refuses starts no agent
    return Fault(where, at, what, amount, draw.choice(_RETRY_AFTER))
