"""What was recorded of a world: by the service, by a trigger in the database, by the programs, and of their troubles.

All times are seconds of the machine's monotonic clock.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any, Final, Literal

from attrs import field, frozen

from agentjobs_async.batch import State
from agentjobs_async.testing import Fault
from tests.simulation.postgresql.plan import WRONG, Plan

CLOCKS_SECONDS: Final = 0.05
"""By which times of the database and of the processes may differ."""
CALLED_SECONDS: Final = 1.0
"""From a look at a row to what follows from it, on a machine that is busy."""
BLOCK: Final = ("enters", "leaving", "leaves")
"""The reports of a run."""
JOB_ENDS: Final = (State.COMPLETED, State.FAILED, State.ARCHIVED)


def is_wrong(job_id: str | None) -> bool:
    """Return whether a person has made up an id."""
    return (job_id or "").startswith(WRONG)


@frozen
class Request:
    """A request as it arrived.

    Attributes:
        sender: The program and its start, such as `p0.1`.
        subject: The prompt of a create, the id of the job that is read.
        fault: What the service did instead of its answer; `None` for nothing.
        extra: The fields of a create besides its prompt; `None` for none.
    """

    at: float
    sender: str
    kind: Literal["create", "poll"]
    project: str
    subject: str
    fault: str | None = None
    extra: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def is_refused(self) -> bool:
        """Whether its answer proves that nothing was done."""
        status = None if self.fault is None else Fault.parse(self.fault).status
        return status is not None and 400 <= status < 500 and status != 408

    @property
    def is_unsure(self) -> bool:
        """Whether its sender cannot know if a create has started an agent."""
        return self.fault is not None and not self.is_refused


@frozen
class Agent:
    """An agent that was started; `end` is the status with which its job ends at `ended`."""

    job_id: str
    prompt: str
    project: str
    started: float
    ended: float
    end: str


@frozen
class Change:
    """A row as it was after one change of it.

    Attributes:
        owner: The process number of its owner; `None` for none.
        claim: What names the claim under which it is sent, and later was.
        is_followed: Whether `on_end` is to be told of its end.
        follower: The process number of the durable jobs that follow it; `None` for none.
        number: That of the row in its table, from 1.
    """

    at: float
    key: str
    prompt: str
    project: str
    state: State
    owner: int | None = None
    claim: str | None = None
    job_id: str | None = None
    error: str | None = None
    is_followed: bool = False
    is_unfollowed: bool = False
    tries: int = 1
    follower: int | None = None
    number: int = 0


@frozen
class Report:
    """What a program said: `what` happened, and `about` it."""

    at: float
    sender: str
    what: str
    about: dict[str, Any] = field(factory=dict)


@frozen
class Happened:
    """A trouble that has come: of one sender, or of all where it is `None`."""

    at: float
    until: float
    sender: str | None
    what: str


@frozen
class Records:
    """All that was recorded, each kind in the order of time.

    Attributes:
        tries: The changes of earlier tries.
        beats: When the heartbeat of which process number was recorded.
        stuck: What did not end although it had to.
        exits: When the process of a sender had ended.
        text: All that the journal and the programs have written, in which the key may not be.
    """

    plan: Plan
    requests: tuple[Request, ...] = ()
    agents: tuple[Agent, ...] = ()
    changes: tuple[Change, ...] = ()
    reports: tuple[Report, ...] = ()
    happened: tuple[Happened, ...] = ()
    beats: tuple[tuple[float, int], ...] = ()
    exits: dict[str, float] = field(factory=dict)
    stuck: tuple[str, ...] = ()
    text: str = ""
    tries: tuple[Change, ...] = ()

    @cached_property
    def earlier(self) -> dict[str, list[Change]]:
        """The earlier tries of each row as they were at the end, by its key."""
        found: dict[str, list[Change]] = defaultdict(list)
        for row in {change.number: change for change in self.tries}.values():
            found[row.key].append(row)
        return found

    @cached_property
    def rows(self) -> dict[str, Change]:
        """Each row as it was at the end, by its key."""
        return {change.key: change for change in self.changes}

    @property
    def all_tries(self) -> Iterator[Change]:
        """All tries of all rows as they were at the end, those of a row in their order."""
        for key, row in self.rows.items():
            yield from self.earlier[key]
            yield row

    @cached_property
    def creates(self) -> list[Request]:
        """The creates that arrived."""
        return [one for one in self.requests if one.kind == "create"]

    @cached_property
    def jobs(self) -> dict[str, Agent]:
        """The agents by the ids of their jobs."""
        return {agent.job_id: agent for agent in self.agents}

    @cached_property
    def senders(self) -> dict[int, str]:
        """The senders by their process numbers."""
        return {report.about["process"]: report.sender for report in self.said("begins")}

    @cached_property
    def processes(self) -> dict[str, int]:
        """The process numbers of the senders."""
        return {sender: process for process, sender in self.senders.items()}

    def said(self, what: str) -> list[Report]:
        """Return the reports of one kind."""
        return [report for report in self.reports if report.what == what]

    def of_prompt(self, prompt: str) -> list[Change]:
        """Return the changes of all rows of a prompt."""
        return [change for change in self.changes if change.prompt == prompt]

    def times_of(self, key: str, state: State, by: float) -> int:
        """Return how often a row had come to a state by then."""
        states = [one.state for one in self.changes if one.key == key and one.at <= by]
        return sum(now is state and now is not before for before, now in pairwise([None, *states]))

    def was(self, key: str, state: State, by: float) -> bool:
        """Return whether a row had come to a state by then."""
        return any(one.key == key and one.state is state and one.at <= by for one in self.changes)

    def is_troubled(self, sender: str | None, since: float, until: float) -> bool:
        """Return whether anything befell a sender, or all, in that time."""
        return any(
            one.sender in {None, sender} and one.at <= until and one.until >= since and one.what != "service stall"
            for one in self.happened
        )

    @cached_property
    def lateness(self) -> float:
        """For how many seconds the service stood still at most: its times may be later by that."""
        return max((one.until - one.at for one in self.happened if one.what == "service stall"), default=0.0)

    def lateness_in(self, since: float, until: float) -> float:
        """Return for how long the service stood still in a time, and with it the machine: it notes things later."""
        stalls = [
            one for one in self.happened if one.what == "service stall" and since <= one.until and one.at <= until
        ]
        return sum(one.until - one.at for one in stalls)

    def end_of(self, sender: str) -> float:
        """Return when a process had ended; infinity while it runs."""
        return self.exits.get(sender, inf)
