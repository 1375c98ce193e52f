"""The owners of an open journal: runs, workers and durable jobs, and what each may poll."""

import os
from math import inf
from socket import gethostname
from typing import Protocol
from uuid import uuid4

from attrs import define, field, frozen

from agentjobs_async import AgentJobsSession


def _new_name() -> str:
    return f"{gethostname()}:{os.getpid()}:{uuid4().hex}"  # a process may have been forked since the import


@define(eq=False)
class Owner:
    """A run, a worker or durable jobs that work on a journal.

    Attributes:
        session: Polls for it.
        limit: Polls per second that its own limits permit, infinity for any number; `None` where it has none.
        name: What no other owner is named: host, process, and what makes it unique.
        joined_at: The time by the journal's clock from which on others could count it; `None` before that.
        is_counted: Whether all others share the limit of polls with it by now.
    """

    session: AgentJobsSession
    limit: float | None = None
    name: str = field(factory=_new_name)
    joined_at: float | None = None
    is_counted: bool = False

    def join(self, moment: float) -> None:
        """Note from when on others could count it; it is to be counted anew."""
        self.joined_at, self.is_counted = moment, False

    def note_counted(self) -> None:
        """Note that all others have counted it."""
        self.is_counted = True


@frozen
class RecordedOwner:
    """What the journal says of one owner.

    Attributes:
        name: Its name.
        is_living: Whether it has had a heartbeat of late.
        counted_at: The time by the journal's clock as of which it has counted all owners, and keeps to its share.
    """

    name: str
    is_living: bool
    counted_at: float


class Owners:
    """The owners of one open journal in this process, among all that the journal has.

    The limit of polls is divided by the number of living owners. One that comes polls nothing until each other one has
    counted it, so that all shares together never exceed the limit. An owner's own limit lowers its share; in a file,
    which no other process shares, it is in place of the share.

    Args:
        is_shared: Whether other processes may use the journal.
    """

    def __init__(self, *, is_shared: bool) -> None:
        self._is_shared = is_shared
        self.own: dict[str, Owner] = {}
        self._others = 0
        self._limit = inf

    def share_out(self, polls_per_second: float | None) -> None:
        """Share out so many polls per second from now on; `None` for any number."""
        self._limit = inf if polls_per_second is None else polls_per_second

    def count(self, recorded: list[RecordedOwner]) -> None:
        """Count the owners as the journal has them now."""
        others = [owner for owner in recorded if owner.is_living and owner.name not in self.own]
        self._others = len(others)
        for owner in self.own.values():
            if owner.joined_at is not None and all(other.counted_at > owner.joined_at for other in others):
                owner.note_counted()

    def rejoin(self, moment: float) -> None:
        """Count those anew, from a time on, that have joined: the others may have taken them for dead before."""
        for owner in self.own.values():
            if owner.joined_at is not None:
                owner.join(moment)

    def per_second_of(self, session: AgentJobsSession) -> float:
        """Return how many polls per second a session may start for its owners."""
        polling = (owner for owner in self.own.values() if owner.session is session)
        return sum(map(self._per_second_of, polling))

    def _per_second_of(self, owner: Owner) -> float:
        share = self._limit / (self._others + len(self.own)) if owner.is_counted or self._limit == inf else 0.0
        if owner.limit is None:
            return share
        return min(share, owner.limit) if self._is_shared else owner.limit


class Liveness(Protocol):
    """Says whether this process counts as alive."""

    @property
    def is_sure(self) -> bool:
        """Whether all other processes count it as alive: of one that is dead they share out the polls."""


@frozen(eq=False)
class SessionShare:
    """What one session has of a journal's limit of polls."""

    owners: Owners
    session: AgentJobsSession
    heartbeat: Liveness | None

    @property
    def per_second(self) -> float:
        """Polls per second; 0 while this process may count as dead for others, which share out its polls then."""
        if self.heartbeat is not None and not self.heartbeat.is_sure:
            return 0.0
        return self.owners.per_second_of(self.session)
