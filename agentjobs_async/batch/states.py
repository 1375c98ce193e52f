"""The states of an item, and the one table of the moves between them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from attrs import frozen

__all__ = [
    "ENDED",
    "FAILED",
    "MOVES",
    "OPEN",
    "RETRIED",
    "RETRIED_BY_KEY",
    "WITHOUT_ERROR",
    "Move",
    "State",
    "open_in",
    "origins",
]


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
WITHOUT_ERROR: Final[Mapping[str, str]] = {
    State.FAILED: "the agent failed",
    State.ARCHIVED: "the job was archived",
}
"""Why an item has no result where nothing but its job's own end says so, by its state."""
FAILED: Final = (State.FAILED, State.REJECTED)
"""Ends without a job that did its work."""
ENDED: Final = frozenset({*_JOB_ENDS, State.REJECTED, State.UNKNOWN, State.ABANDONED})
"""What a run does nothing about."""
OPEN: Final = frozenset(State) - ENDED
"""All others: planned, sending and active."""
RETRIED: Final = frozenset({State.FAILED, State.ARCHIVED, State.REJECTED})
"""What may be planned once more."""
RETRIED_BY_KEY: Final = RETRIED | {State.ABANDONED}
"""The same where the rows are named: also what a person gave up."""


@frozen
class Move:
    """One move that a row may make.

    Attributes:
        name: The word for it.
        origins: The states from which it may begin.
        targets: The states to which it may lead: one, but for the end of a job.
        matches: The columns that must have the values which its caller gives: a claim proves whose create was answered,
            a job whose end was seen, the number of tries which one a person has looked at. Three are no columns:
            `settled`, where a person must have named its job; `sent_once` and `repeated`, which say whether the claim
            is that of the first POST of a create, or of a repetition.
        times: The columns that get the present time, besides those that each change sets.
        clears: The columns that are emptied.
        begins_try: Whether a new try begins. What the row was is kept as an earlier one then.
    """

    name: str
    origins: frozenset[State]
    targets: frozenset[State]
    matches: frozenset[str] = frozenset()
    times: frozenset[str] = frozenset()
    clears: frozenset[str] = frozenset()
    begins_try: bool = False

    @property
    def target(self) -> State:
        """The state to which it leads."""
        (target,) = self.targets
        return target


def _move(name: str, origins: str, targets: str, *, begins_try: bool = False, **columns: str) -> Move:
    """Return a move; states and columns are given as words in one text."""
    begins, ends = (frozenset(map(State, words.split())) for words in (origins, targets))
    named: dict[str, Any] = {kind: frozenset(words.split()) for kind, words in columns.items()}
    return Move(name, begins, ends, **named, begins_try=begins_try)


_SENT: Final = "claim sent_at counted_at"
"""What only a row has whose create may have left."""
_KEY: Final = "idempotency_key first_sent_at digest"
"""What a create has that may be repeated."""
_TRY: Final = (
    f"{_SENT} job_id pr_link error refusal traceparent owner created_at settled_at seen_at ended_at told_at {_KEY}"
)
"""What belongs to one try of an item."""

CLAIM: Final = _move("claim", "planned", "sending", times="sent_at counted_at", clears="error")
"""Its create may leave from now on. The database itself decides it, together with the limits of all owners.

The key of a create that may be repeated is the claim of its first POST.
"""
REPEAT: Final = _move(
    "repeat", "unknown", "sending", matches="idempotency_key digest owner", times="sent_at counted_at", clears="told_at"
)
"""Its create may leave once more, with the same key. The database decides it as a claim, and whether it is in time."""
UNSENT: Final = _move("not repeated", "sending", "unknown", matches="claim repeated", clears="counted_at owner")
"""Nothing was sent by a repetition: its create stays in doubt."""
RELEASE: Final = _move(
    "release", "sending unknown", "planned", matches="claim sent_once", clears=f"{_SENT} owner told_at {_KEY}"
)
"""Nothing was sent, or the service answered that nothing was done. Of a create that was repeated, neither proves it."""
HOLD: Final = _move("hold", "planned", "planned")
"""Its create is held back: its error says by what."""
CREATED: Final = _move(
    "created",
    "sending unknown",
    "active",
    matches="claim",
    times="counted_at created_at seen_at",
    clears="error refusal told_at",
)
"""Its create was answered with a job, even where another owner had counted the sender as dead meanwhile."""
CREATED_BY_KEY: Final = _move(
    "created by another POST",
    "sending unknown",
    "active",
    matches="idempotency_key",
    times="counted_at created_at seen_at",
    clears="error refusal told_at",
)
"""Another POST with the same key was answered with a job: whichever it is, that is the job of its create."""
REJECT: Final = _move(
    "reject",
    "sending unknown",
    "rejected",
    matches="claim sent_once",
    times="counted_at ended_at",
    clears="owner told_at",
)
"""The service refused its create for good. Where it was repeated, an earlier POST may have started an agent."""
DOUBT: Final = _move("doubt", "sending", "unknown", matches="claim", times="counted_at", clears="owner")
"""Its create may have started an agent, or its sender is gone."""
SETTLE: Final = _move(
    "settle",
    "unknown",
    "active",
    matches="tries",
    times="created_at settled_at",
    clears="error refusal seen_at owner told_at",
)
"""A person has found its job."""
CORRECT: Final = _move(
    "correct", "active", "active", matches="settled tries", times="created_at settled_at", clears="error seen_at owner"
)
"""A person has found out that the job which another one gave it was the wrong one."""
NOTE: Final = _move("note", "active", "active", matches="job_id owner", clears="owner")
"""The wait for its job ended, and the job has not, as far as known. From now on another owner may wait for it."""
END: Final = _move(
    "end", "active", "completed failed archived", matches="job_id", times="seen_at ended_at", clears="error owner"
)
"""Its job was seen to end."""
GONE: Final = _move("gone", "active", "failed", matches="job_id", times="ended_at", clears="owner")
"""Its job is not there any more."""
ABANDON: Final = _move(
    "abandon",
    "planned active unknown",
    "abandoned",
    matches="state tries job_id",
    times="ended_at",
    clears="owner refusal told_at",
)
"""A person withdrew it before it was sent, or gave it up."""
SEND_AGAIN: Final = _move(
    "send again", "unknown", "planned", matches="tries", times="planned_at", clears=_TRY, begins_try=True
)
"""A person takes the risk of a second agent."""
RETRY: Final = _move(
    "retry",
    "failed archived rejected abandoned",
    "planned",
    matches="tries",
    times="planned_at",
    clears=_TRY,
    begins_try=True,
)
"""It is tried once more."""

MOVES: Final = (
    *(CLAIM, REPEAT, UNSENT, RELEASE, HOLD, CREATED, CREATED_BY_KEY, REJECT, DOUBT, SETTLE, CORRECT),
    *(NOTE, END, GONE, ABANDON, SEND_AGAIN, RETRY),
)
"""Every move that a row may make. What has ended moves by a person's word alone, and is kept then as an earlier try."""


def open_in(counts: Mapping[State, int]) -> int:
    """Return how many of the items that were counted are open."""
    return sum(number for state, number in counts.items() if state.is_open)


def origins(target: State) -> frozenset[State]:
    """Return the states from which a row may come to `target`."""
    return frozenset(state for move in MOVES if target in move.targets for state in move.origins)
