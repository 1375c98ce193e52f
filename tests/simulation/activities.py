"""What the programs of a world do, with which sessions, and how they are left: values, as a seed draws them."""

import re
from collections.abc import Iterator
from typing import Any, Final, Literal

from attrs import frozen

from tests.simulation.interventions import Intervention

KEY: Final = "sk-simulated-4d7c1f0e9b"
WAYS: Final = ("wait", "run", "watch", "updates", "completed", "free", "tracker", "shared")
OWN_LOOPS: Final = frozenset({"free", "tracker"})  # ways that wait by themselves, and read by the session
PROJECTS: Final = (None, "blog", "site")  # that of the session, and two others
# Of a prompt: its program, the position of the activity, which start it was, and the number of the job.
_NUMBERS: Final = re.compile(r"(?P<program>p\d+)-(?P<position>\d+)(\.(?P<starts>\d+)-|[/:])(?P<number>\d+)")


def extra_of(prompt: str) -> dict[str, Any] | None:
    """Return the extra of all creates of a prompt: every second job of a world's has one; `None` for none."""
    found = _NUMBERS.fullmatch(prompt)
    number = 0 if found is None else int(found["number"])
    labels = {"labels": ["{prompt}", None, {"é": number}]} if number % 4 == 1 else {}
    return {"of": prompt, **labels} if number % 2 else None


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
        shared_with: The position of the batch whose items these are: both work at once on the same rows.
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
    shared_with: int | None = None

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
        rate: How many creates, in how many seconds, and for what.
        interventions: As of `Batch`.
    """

    count: int
    gap: float
    on_end_seconds: float
    waits: bool
    projects: int = 1
    begins_silent: bool = False
    rate: tuple[int, float, Literal["project", "all"]] | None = None
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

    def prefix(self, position: int) -> str:
        """Return what the keys of an activity's rows, and its prompts, begin with."""
        activity = self.activities[position]
        shared_with = activity.shared_with if isinstance(activity, Batch) else None
        return f"{self.name}-{position if shared_with is None else shared_with}"

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
