"""The states of an item, and the one table of the moves between them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

__all__ = ["ENDED", "FAILED", "MOVES", "RETRIED", "RETRIED_BY_KEY", "State", "open_in", "origins"]


class State(StrEnum):
    """Where an item is, in the order in which all lists show it: what needs a person comes first.

    `planned`, `sending` and `active` are open; all others are ends, which a run leaves alone.
    """

    UNKNOWN = "unknown"
    """An agent may have been started. The row has no job id."""
    FAILED = "failed"
    """The agent failed, or its job is gone (410, or 404 beyond its grace): `error` says which."""
    REJECTED = "rejected"
    """The server refused the create: no agent was started."""
    ACTIVE = "active"
    """The job's id is known, and the job has not ended as far as known."""
    SENDING = "sending"
    """The create may have left. Durable before the first byte does."""
    PLANNED = "planned"
    """Nothing was sent."""
    ABANDONED = "abandoned"
    """A person withdrew it before it was sent, or gave it up, whatever became of its job: `error` says in which state.

    Only its key sends it again."""
    ARCHIVED = "archived"
    COMPLETED = "completed"

    @property
    def is_open(self) -> bool:
        """Whether a run has something to do about it: planned, sending or active."""
        return self not in ENDED

    @property
    def is_job_end(self) -> bool:
        """Whether it is how its job ended: completed, failed or archived."""
        return self in _JOB_ENDS

    @property
    def has_failed(self) -> bool:
        """Whether it ended without a job that did its work: failed or rejected."""
        return self in FAILED


_JOB_ENDS: Final = (State.COMPLETED, State.FAILED, State.ARCHIVED)
FAILED: Final = (State.FAILED, State.REJECTED)
"""Ends without a job that did its work."""
ENDED: Final = frozenset({*_JOB_ENDS, State.REJECTED, State.UNKNOWN, State.ABANDONED})
"""What a run does nothing about."""
RETRIED: Final = frozenset({State.FAILED, State.ARCHIVED, State.REJECTED})
"""What may be planned once more, as a row of its own."""
RETRIED_BY_KEY: Final = RETRIED | {State.ABANDONED}
"""The same where the rows are named: also what a person gave up."""

MOVES: Final[dict[State, frozenset[State]]] = {
    # `Journal.abandon` withdraws what was not sent: a claim comes before it or not at all.
    State.PLANNED: frozenset({State.SENDING, State.ABANDONED}),
    # Back to planned only when nothing was sent, or when the server answered that nothing was done.
    State.SENDING: frozenset({State.ACTIVE, State.REJECTED, State.UNKNOWN, State.PLANNED}),
    State.ACTIVE: frozenset({*_JOB_ENDS, State.ABANDONED}),
    # A late answer or `Journal.resolve` makes it known; `resolve(send_again=True)` takes the risk of a second agent;
    # `Journal.abandon` gives it up.
    State.UNKNOWN: frozenset({State.ACTIVE, State.REJECTED, State.PLANNED, State.ABANDONED}),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset(),
    State.ARCHIVED: frozenset(),
    State.REJECTED: frozenset(),
    State.ABANDONED: frozenset(),
}
"""Every move that a row may make, by the state it leaves. Terminal rows never go back: a retry is a row of its own."""


def open_in(counts: Mapping[State, int]) -> int:
    """Return how many of the items that were counted are open."""
    return sum(number for state, number in counts.items() if state.is_open)


def origins(target: State) -> frozenset[State]:
    """Return the states from which a row may come to `target`."""
    return frozenset(state for state, targets in MOVES.items() if target in targets)
