"""Durable jobs at one moment."""

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from agentjobs_async.batch import State

__all__ = ["DurableStats"]

_SHOWN: Final = (State.PLANNED, State.SENDING, State.ACTIVE, State.UNKNOWN)


@frozen
class DurableStats:
    """The durable jobs that one process follows, at one moment.

    Attributes:
        counts: How many are in each state: those that are planned, sending or active, and ended ones whose end is being
            told. Of `unknown`, all of the journal, as of some seconds ago: they need a person. States without any are
            left out.
        held: How many of the planned ones are held back by something; `paused_by` and `next_create` say by what.
        paused_by: Why creates are held back right now: the key is refused, a 429, an outage, the limits of all owners,
            or what kept a create from being sent; `None` when nothing but a rate does so.
        next_create: Seconds until the next create may be sent, 0 or more; `None` when that depends on one that is under
            way.
    """

    counts: Mapping[State, int]
    held: int
    paused_by: Exception | None = None
    next_create: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what a health check may show to anyone, as an object of plain JSON types.

        It has the counts of `planned`, `sending`, `active` and `unknown` jobs, `held`, `paused_by` (the name of the
        error's type, or `None`) and `next_create`. No key and no text of an error is in it.
        """
        return {
            **{str(state): self.counts.get(state, 0) for state in _SHOWN},
            "held": self.held,
            "paused_by": None if self.paused_by is None else type(self.paused_by).__name__,
            "next_create": self.next_create,
        }
