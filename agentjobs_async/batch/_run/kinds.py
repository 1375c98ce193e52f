"""How a batch, a worker and durable jobs differ: their limits, and how far a fault ends each."""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Final

from attrs import evolve, frozen

from agentjobs_async.batch._failures import Fault
from agentjobs_async.batch._run.context import Phase
from agentjobs_async.batch.limits import Limits

_REFUSED_SECONDS: Final = 60.0  # then one create tries again: the key may have been given its permission


@frozen
class Kind:
    """What works on a journal.

    Attributes:
        learns: Whether its session learns from the journal when to poll.
        has_slots: Whether an item keeps a slot of `max_active` until its job ends.
        sees_to_limits: Whether it sees to the journal's limits by itself on PostgreSQL, too, where each claim sees to
            them for all owners.
        refused_for: Seconds for which it sends no create of a project that was refused with 401 or 403.
        after: How far each fault ends it. One that is not in it ends the item alone, which is tried again.
    """

    learns: bool
    has_slots: bool
    sees_to_limits: bool
    refused_for: float
    after: Mapping[Fault, Phase]

    def limits(self, limits: Limits, *, holds_for_all: bool) -> Limits:
        """Return the limits that it sees to by itself; `holds_for_all` says that each claim sees to the same ones."""
        has_own = self.sees_to_limits or not holds_for_all
        has_slots = self.has_slots and has_own
        return evolve(
            limits,
            max_active=limits.max_active if has_slots else None,
            unknown_for=limits.unknown_for if has_slots else 0.0,
            create_rate=limits.create_rate if has_own else None,
        )


BATCH: Final = Kind(
    learns=True,
    has_slots=True,
    sees_to_limits=True,
    refused_for=inf,
    after=MappingProxyType(dict.fromkeys(Fault, Phase.ANSWERS_ONLY)),
)
"""It ends when nothing is left but what the service refuses, and raises the refusal then."""
WORKER: Final = Kind(
    learns=False,
    has_slots=True,
    sees_to_limits=False,
    refused_for=_REFUSED_SECONDS,
    after=MappingProxyType({Fault.CONNECTION: Phase.NO_CREATES}),
)
"""It serves an engine that hands out again what it could not do. It raises a refusal where no create ever succeeded."""
DURABLE: Final = Kind(
    learns=False,
    has_slots=False,  # its creates alone are items of the run
    sees_to_limits=False,
    refused_for=_REFUSED_SECONDS,
    after=MappingProxyType({}),
)
"""It serves an application for as long as that runs, and tries each create again after a minute."""
