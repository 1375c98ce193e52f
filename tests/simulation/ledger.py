"""What the callers of programs are told: the referee compares that with what the service knows."""

from math import inf
from typing import Any

from attrs import define, field, frozen

from agentjobs_async import AgentJob, AgentJobsError, CreateOutcome
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.telemetry import Event
from tests.simulation.activities import Batch
from tests.simulation.interventions import PLANS, Act
from tests.simulation.tries import is_late


@define(eq=False)
class Call:
    """What a caller asked for, and what became of it.

    Attributes:
        owner: The process and its start, such as `p0.1`.
        sender: The session, by its User-Agent: `p0.1.0` is that of activity 0.
        begun, ended: Seconds since the world began.
        timeout: Seconds.
    """

    owner: str
    sender: str
    begun: float
    timeout: float
    job: AgentJob | None = None
    error: BaseException | None = None
    ended: float = inf  # while it is under way, and for ever when its process was killed


@define(eq=False)
class Create(Call):
    """A create: `hook_outcome` is the one that its `CreateFailed` event names."""

    prompt: str = ""
    hook_outcome: CreateOutcome | None = None

    @property
    def outcome(self) -> CreateOutcome | None:
        """Return what its caller knows; `None` when it was cancelled, or its process was killed."""
        if isinstance(self.error, AgentJobsError):
            return None if self.error.outcome is None else CreateOutcome(self.error.outcome)
        return None if self.job is None else CreateOutcome.CREATED


@define(eq=False)
class Submission(Call):
    """A submission of a durable job that waits for its create, and so for the disk."""


@define(eq=False)
class Wait(Call):
    """A wait, and for `run` the create before it."""

    job_id: str = ""
    way: str = ""
    label: str | None = None


@frozen
class Learned:
    """A duration that a policy was given: `earliest` and `latest` as `History.add` takes them."""

    at: float
    sender: str
    project: str
    earliest: float
    latest: float


@define(eq=False)
class Told:
    """One call of `on_end`: for which row, with which end, and when it began and had returned."""

    key: str
    state: State
    begun: float
    returned: float = inf


@define(eq=False)
class Results:
    """What one run of a batch gave: `until` is when it had given all, infinite if it was left before."""

    sender: str
    begun: float
    until: float = inf
    outcomes: list[tuple[str, str]] = field(factory=list)  # by the keys of their rows


@define(eq=False)
class Left:
    """How a session was left before its work was done.

    Attributes:
        begun: When that began.
        until: Until when its creates may have their answers.
        ended: When the first call returned that leaves it.
        drained: When its draining returned, if that was what returned first.
        unrecorded: The ids that its draining has returned.
    """

    begun: float
    until: float
    ended: float = inf
    drained: float = inf
    unrecorded: set[str] = field(factory=set)


@frozen
class Snapshot:
    """The ids in a journal when a process of its program had ended."""

    owner: str
    ids: frozenset[str]


@define(eq=False)
class Ledger:
    """What the programs of a world were told; it outlives them."""

    creates: list[Create] = field(factory=list)
    waits: list[Wait] = field(factory=list)
    on_end_calls: dict[str, list[str]] = field(factory=dict)  # the ends that it was called with, by key
    told: list[Told] = field(factory=list)
    changes: list[tuple[str, float]] = field(factory=list)  # the keys that `on_change` was called for, and when
    acts: list[Act] = field(factory=list)
    intervened: set[tuple[str, int]] = field(factory=set)  # which interventions have begun, by their activity's prefix
    results: list[Results] = field(factory=list)
    rows: dict[str, list[Any]] = field(factory=dict)  # of each journal, with all tries, at its end
    batches: dict[str, Batch] = field(factory=dict)  # by their sessions
    rates: dict[str, tuple[int, float, str]] = field(factory=dict)  # of batches and durable jobs, by their sessions
    runs: dict[str, list[float]] = field(factory=dict)  # when those were run
    run_ends: dict[str, list[float]] = field(factory=dict)  # when those runs had ended
    ends: dict[tuple[Any, ...], Any] = field(factory=dict)  # each try as it was seen last, by its journal and name
    settled: dict[str, list[float]] = field(factory=dict)  # when the rows of a prompt were settled or tried again
    calls: list[Call] = field(factory=list)  # reads, and submissions of durable jobs
    left: dict[str, Left] = field(factory=dict)  # by senders
    leavings: dict[str, list[tuple[float, int]]] = field(factory=dict)  # when runs began to be left, and in which event
    begun: dict[str, list[tuple[float, int]]] = field(factory=dict)  # when creates began, and in which event
    snapshots: list[Snapshot] = field(factory=list)
    stored: dict[str, tuple[float, bool]] = field(factory=dict)  # when a block of `recording` was left, with the id
    logs: list[tuple[str, int, str]] = field(factory=list)  # warnings and worse: of which process, and how grave
    told_to_hooks: set[str] = field(factory=set)  # the ids that a `JobCreated` or a `WaitEnded` named
    closed: dict[str, tuple[float, float]] = field(factory=dict)  # senders closed early: when, and until when at most
    independent_creates: set[str] = field(factory=set)  # senders of creates that know nothing of each other
    own_get_job: set[str] = field(factory=set)  # senders whose waits call `get_job`, which may wait for its turn
    events: dict[str, list[tuple[float, Event]]] = field(factory=dict)  # when, and what, by their session or tracker
    learned: list[Learned] = field(factory=list)
    projects: dict[tuple[str, int], str] = field(factory=dict)  # of each row when it was first seen, by its number
    refusals: list[tuple[float, str]] = field(factory=list)  # by 401: when an error was told, and what it says
    poll_failures: int = 0
    not_sent: int = 0  # polls
    cancelled: list[tuple[float, float]] = field(factory=list)  # when a task was cancelled, and when it had ended

    def acts_on(self, key: str, *verbs: str) -> list[Act]:
        """Return what was done, or may have been, with these verbs about the item of this key; all of it without."""
        mine = [one for one in self.acts if one.key == key and one.outcome != "refused"]
        return [one for one in mine if not verbs or one.verb in verbs]

    def is_unfollowed(self, row: JournalRow) -> bool:
        """Return whether the end of an item's newest try may be told to nobody: unfollowed, and not planned since."""
        ended = max((one.ended for one in self.acts_on(row.key, "unfollow")), default=-inf)
        plans = [one for one in self.acts_on(row.key, *PLANS) if one.outcome == "done"]
        planned = max((one.begun for one in plans), default=-inf)
        return ended > -inf and planned <= ended

    def untold(self, tries: list[JournalRow]) -> list[JournalRow]:
        """Return the tries of an item that have ended, and of which `on_end` was not told after those before them.

        Of a create that was answered late nothing has to be told, nor of a try that was unfollowed.
        """
        newest = tries[-1]
        told = [one.state for one in self.told if one.key == newest.key and one.returned < inf]
        found, place = [], 0
        for row in tries:
            if row.state.is_open or is_late(row):
                continue
            if row is newest and (self.is_unfollowed(row) or (len(told) > place and told[-1] is row.state)):
                continue
            if row is not newest and (row.state in told[place:] or self.acts_on(row.key, "unfollow")):
                place = told.index(row.state, place) + 1 if row.state in told[place:] else place
                continue
            found.append(row)
        return found
