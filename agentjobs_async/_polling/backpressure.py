"""What servers that refuse or cannot be reached hold back: whose polls a Retry-After is for, and outages."""

import asyncio
from collections import defaultdict
from collections.abc import Hashable
from random import choice
from typing import Final, Protocol

from agentjobs_async._loop.backoff import Backoff
from agentjobs_async._loop.wheel import Timers
from agentjobs_async._polling.pace import PollClock
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef

_LIMITED: Final = 429
_UNAVAILABLE: Final = 503
_ALL_POLLS: Final = 2  # jobs or projects in a row that asked for a pause
_MAX_REMEMBERED: Final = 1024  # jobs, so that memory is bounded; the pause of any further job is forgotten
_MAX_BACKOFFS: Final = 1024  # of projects: above, those are forgotten that hold nothing back any more

_JOBS_NOT_REACHED: Final = 10  # in a row: an outage; fewer failures may be those of single connections
_PROBE_AFTER_LEAVING_SECONDS: Final = 1.0  # jobs that leave together cause one probe
_PROBE_AT_LEAST_EVERY_SECONDS: Final = 30.0  # the probe itself may hang


class Pauses:
    """Whether the pauses that servers asked for with 429 and 503 are for all polls: once two of them agree.

    Attributes:
        askers: By status, the projects (429) or jobs (503) that were answered so since the last good answer.
    """

    def __init__(self) -> None:
        self.askers: defaultdict[int, set[Hashable]] = defaultdict(set)

    def record(self, ref: JobRef, status: int, *, overlaps: bool) -> bool:
        """Record an answer about the job `ref` that asked for a pause; return whether that is for all polls.

        It is for all once two different jobs (503) or projects (429) have been answered so with no good answer between.
        `overlaps`: a good answer came while this poll was in flight. The order of the two says nothing, so that this
        answer is not one of the two.
        """
        if overlaps or status not in {_LIMITED, _UNAVAILABLE}:
            return False
        askers = self.askers[status]
        if len(askers) < _ALL_POLLS:  # an outage may be long, and the jobs in it ever new ones
            askers.add(ref.project_id if status == _LIMITED else ref)
        return len(askers) == _ALL_POLLS

    def answered(self) -> None:
        """Record a good answer: the pauses asked for before it are not for all."""
        self.askers.clear()


class ProjectBackoffs:
    """The pauses of projects whose polls the server refused with a 429 that asks for none: one `Backoff` for each."""

    def __init__(self) -> None:
        self._backoffs: dict[str, Backoff] = {}

    def refused(self, project_id: str, began: float, now: float) -> float:
        """Count a refused poll that `began` at this time; return when polls of the project may begin again."""
        if project_id not in self._backoffs:
            if len(self._backoffs) >= _MAX_BACKOFFS:
                self._backoffs = {other: backoff for other, backoff in self._backoffs.items() if backoff.until > now}
            self._backoffs[project_id] = Backoff()
        return self._backoffs[project_id].refused(began, now)

    def answered(self, project_id: str) -> None:
        """Record a good answer about a job of the project."""
        if self._backoffs:  # nearly never
            self._backoffs.pop(project_id, None)


class RememberedPauses:
    """The `not_before` of jobs that no caller waits for any more: the next wait for one of them keeps to it."""

    def __init__(self) -> None:
        self._until: dict[JobRef, float] = {}

    def remember(self, ref: JobRef, until: float, now: float) -> None:
        """Remember that the job is not to be polled before `until`, which is after `now`."""
        if len(self._until) >= _MAX_REMEMBERED:
            self._until = {other: time for other, time in self._until.items() if time > now}
        if len(self._until) < _MAX_REMEMBERED:
            self._until[ref] = until

    def pop(self, ref: JobRef, now: float) -> float:
        """Forget the job, and return the time from which it may be polled: `now`, or later."""
        return max(now, self._until.pop(ref, now))


class Polls(Protocol):
    """The polls that an outage stops."""

    def make_urgent(self, tracked: Tracked, now: float) -> None:
        """Send a job's poll before all others."""

    def resume(self) -> None:
        """Continue."""


class Outage:
    """Stops the clock of the polls when several jobs in a row were not reached, until the server answers again.

    Args:
        jobs: All tracked jobs, shared with the scheduler.

    Attributes:
        unreached: The jobs that were not reached since the server last answered.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: dict[JobRef, Tracked],
        clock: PollClock,
        timers: Timers,
        polls: Polls,
    ) -> None:
        self._loop = loop
        self._jobs = jobs
        self._clock = clock
        self._timers = timers
        self._polls = polls
        self.unreached: set[JobRef] = set()
        self._probe: Tracked | None = None

    def reached(self) -> None:
        """Record that the server answered."""
        self.unreached.clear()
        if self._clock.unreachable:
            self._polls.resume()

    def not_reached(self, tracked: Tracked, due: float, now: float) -> None:
        """Record that the server could not be reached for one job, whose next poll would be due at `due`.

        When several jobs in a row were not reached, with no answer between them, the server counts as unreachable for
        all. Each probe is another job's, so that no single job, which may be at fault itself, prolongs the outage.
        """
        self.unreached.add(tracked.ref)
        if len(self._jobs) > 1 and len(self.unreached) >= min(_JOBS_NOT_REACHED, len(self._jobs)):
            self._clock.stop(now, None)
        if self._clock.unreachable and (self._probe is None or self._probe is tracked):
            others = [other for other in self._jobs.values() if other is not tracked]
            self._probe = choice(others) if others else tracked  # noqa: S311 - fairness, no secret
            self._timers.set(self._on_probe, due)

    def probe_soon(self) -> None:
        """Send a probe soon, since a job has left in an outage: it may have been the probe."""
        self._timers.set(self._on_probe, self._loop.time() + _PROBE_AFTER_LEAVING_SECONDS)

    def end(self) -> None:
        """Forget the outage, once polls continue."""
        self.unreached.clear()
        self._probe = None

    def _on_probe(self) -> None:
        if not self._clock.unreachable:
            return
        if not self._jobs:
            self._polls.resume()
            return
        if self._probe is None or self._probe.bucket <= Tracked.NOWHERE:  # it has left, or its poll hangs
            self._probe = next((tracked for tracked in self._jobs.values() if tracked.bucket > Tracked.NOWHERE), None)
        now = self._loop.time()
        self._timers.set(self._on_probe, now + _PROBE_AT_LEAST_EVERY_SECONDS)
        if self._probe is not None:
            self._polls.make_urgent(self._probe, now)
