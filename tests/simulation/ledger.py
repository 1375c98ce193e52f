"""The programs of a world, and what their callers are told: the referee compares that with what the service knows."""

import re
from collections.abc import Iterator
from math import inf
from typing import Any, Final, Literal

from attrs import define, field, frozen

from agentjobs_async import AgentJob, AgentJobsError, CreateOutcome
from agentjobs_async.batch import JournalRow, State
from agentjobs_async.telemetry import Event
from tests.simulation.interventions import Act, Intervention, prompt_of

KEY: Final = "sk-simulated-4d7c1f0e9b"
WAYS: Final = ("wait", "run", "watch", "updates", "completed", "free", "tracker", "shared")
OWN_LOOPS: Final = frozenset({"free", "tracker"})  # ways that wait by themselves, and read by the session
PROJECTS: Final = (None, "blog", "site")  # that of the session, and two others
# Of a prompt: its program, the position of the activity, which start it was, and the number of the job.
_NUMBERS: Final = re.compile(r"(?P<program>p\d+)-(?P<position>\d+)(\.(?P<starts>\d+)-|[/:])(?P<number>\d+)")


class Activity:
    """What a process does, beside others: it creates `count` jobs."""

    count: int

    def keys(self, _prefix: str) -> Iterator[str]:
        """Return the keys of its rows."""
        return iter(())


@frozen
class Calls(Activity):
    """Jobs that are created and waited for one by one.

    Attributes:
        way: How they are waited for.
        gap: Seconds between two creates.
        timeout: Seconds of a wait.
        create_timeout: Seconds of a create.
        projects: How many projects they belong to, by turns.
        source: For the way `stream`, what kind of source gives the jobs.
        stores: Seconds that each job takes to be stored, in a block of `recording`; `None` for no such block.
    """

    way: str
    count: int
    gap: float
    timeout: float
    create_timeout: float = 120.0
    notifies: bool = False
    projects: int = 1
    source: str = ""
    stores: float | None = None


@frozen
class Batch(Activity):
    """A batch, run until all of its items have ended.

    Attributes:
        projects: How many projects they belong to, by turns.
        rate: How many creates, in how many seconds, and for what.
        timeout: Seconds of an item.
        unknown_for: Seconds for which an unknown item keeps its slot.
        retries: Whether failed items are tried again.
        changes: Whether every other start has half the limits.
        interventions: What a person does about its rows meanwhile.
        source: What kind of source gives the items to the first runs of each start.
        breaks_after: After how many results those runs are left by `break`; 0 for never.
    """

    count: int
    projects: int
    max_active: int
    max_sending: int
    rate: tuple[int, float, Literal["project", "all"]] | None
    timeout: float | None
    unknown_for: float
    retries: bool
    changes: bool
    interventions: tuple[Intervention, ...] = ()
    source: str = ""
    breaks_after: int = 0

    def keys(self, prefix: str) -> Iterator[str]:
        return (f"{prefix}/{number}" for number in range(self.count))

    def limits(self, starts: int) -> tuple[int, int]:
        """Return how many jobs may be active, and how many creates under way, after so many starts."""
        less = 2 if self.changes and starts % 2 else 1
        return max(1, self.max_active // less), max(1, self.max_sending // less)


@frozen
class Durable(Activity):
    """Durable jobs, each submitted twice, and followed until the end of each was told.

    Attributes:
        gap: Seconds between two submissions.
        on_end_seconds: Seconds that `on_end` takes.
        waits: Whether a submission waits for its create.
        projects: How many projects they belong to, by turns.
        begins_silent: Whether the first run has no `on_end`.
        interventions: As of `Batch`.
    """

    count: int
    gap: float
    on_end_seconds: float
    waits: bool
    projects: int = 1
    begins_silent: bool = False
    interventions: tuple[Intervention, ...] = ()

    def keys(self, prefix: str) -> Iterator[str]:
        return (f"{prefix}:{number}" for number in range(self.count))


LABELS: Final = ("own", "other", "none")
LEARNING: Final = ("own", "shared", "few", "sum", "chain")


@frozen
class Sessions:
    """What the sessions of a program have of their own: each activity has one, and another one at each start.

    Attributes:
        homes: Their default projects, by turns.
        keys: How many API keys they have, by turns.
        learning: Of which history they learn: their own, or that of the process; alone, or with another strategy.
        labels: Which label the waits for one job are given, by turns: that of its create, another one, none.
        label_gap: Seconds from one of these waits to the next.
        has_other_hooks: Whether there is a hook that always raises, and one after it.
    """

    homes: tuple[str, ...] = ("docs",)
    keys: int = 1
    learning: str = "own"
    labels: tuple[str, ...] = ("own",)
    label_gap: float = 0.0
    has_other_hooks: bool = False

    def home(self, number: int, starts: int) -> str:
        """Return the default project of the session of an activity after so many starts."""
        return self.homes[(number + starts - 1) % len(self.homes)]

    def key(self, number: int, starts: int) -> str:
        """Return its API key: `KEY` is a part of each."""
        return f"{KEY}-key-{(number + starts - 1) % self.keys}"

    def named(self, project: str | None, number: int, starts: int) -> str | None:
        """Return the project to name where the first start would name this one: another default changes no item."""
        home = self.home(number, 1)
        return project if project or home == self.home(number, starts) else home


Again = Literal["drain", "close", "cancel", "signal"]


@frozen
class Leave:
    """How the first starts of a program are left while its work is under way.

    Attributes:
        way: What is called on its sessions, or the signal that the process receives.
        after: Seconds since its start.
        grace: Seconds of a draining.
        activity: Whose session is left; all for -1, and by a signal.
        starts: How many of its starts are left.
        again: What follows before that has ended: for a signal the same one again.
        again_after: Seconds until that.
        replaced_after: Seconds from the leave until the program is started once more; `None` to wait for its end.
        handles: Whether the program has a handler of its own for the signal, as a server has, and ends by itself.
    """

    way: Literal["drain", "close", "SIGTERM", "SIGINT"]
    after: float = 3.0
    grace: float = 5.0
    activity: int = 0
    starts: int = 1
    again: Again | Literal[""] = ""
    again_after: float = 0.0
    replaced_after: float | None = None
    handles: bool = False

    @property
    def is_signal(self) -> bool:
        """Whether it is a signal."""
        return self.way.startswith("SIG")


@frozen
class Program:
    """One process.

    Attributes:
        interval: Seconds between polls; 0 for the default policy, below 0 to learn.
        leave: How it is left before its work is done, if it is.
    """

    name: str
    activities: tuple[Calls | Batch | Durable, ...]
    interval: float
    in_flight: int
    per_second: float | None
    leave: Leave | None = None
    sessions: Sessions = Sessions()

    def origin(self, prompt: str) -> tuple[int, int, int] | None:
        """Return the position of the activity of a prompt, the start that made it (1 for rows), and the job's number.

        `None` for a prompt that is none of this program.
        """
        found = _NUMBERS.fullmatch(prompt)
        if found is None or found["program"] != self.name:
            return None
        return int(found["position"]), int(found["starts"] or 1), int(found["number"])

    def project_of(self, prompt: str) -> str | None:
        """Return the project to which the job of a prompt belongs; `None` for a prompt that is none of this program."""
        origin = self.origin(prompt)
        if origin is None:
            return None
        position, starts, number = origin
        return PROJECTS[number % self.activities[position].projects] or self.sessions.home(position, starts)


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
            return self.error.outcome
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
    runs: dict[str, list[float]] = field(factory=dict)  # when those were run
    run_ends: dict[str, list[float]] = field(factory=dict)  # when those runs had ended
    ends: dict[tuple[str, int], Any] = field(factory=dict)  # each row as it was seen last, by its number
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
    poll_failures: int = 0
    not_sent: int = 0  # polls
    cancelled: list[tuple[float, float]] = field(factory=list)  # when a task was cancelled, and when it had ended

    def acts_on(self, key: str, *verbs: str) -> list[Act]:
        """Return what was done, or may have been, with these verbs about the item of this key; all of it without."""
        mine = [one for one in self.acts if prompt_of(one.key) == prompt_of(key) and one.outcome != "refused"]
        return [one for one in mine if not verbs or one.verb in verbs]

    def is_unfollowed(self, row: JournalRow) -> bool:
        """Return whether the end of a row may be told to nobody: it was unfollowed, and not planned again since."""
        ended = max((one.ended for one in self.acts_on(row.key, "unfollow")), default=-inf)
        plans = [one for one in self.acts_on(row.key, "retry", "send again") if one.outcome == "done"]
        planned = max((one.begun for one in plans), default=-inf)
        return ended > -inf and (row.retried_as is not None or planned <= ended)

    def is_told(self, row: JournalRow) -> bool:
        """Return whether `on_end` has returned for the end that a row has."""
        told = [one for one in self.told if one.key == row.key and one.returned < inf]
        return bool(told) and told[-1].state is row.state
