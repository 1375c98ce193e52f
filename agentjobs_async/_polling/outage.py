"""An outage: the server cannot be reached for any job. One poll at a time, the probe, is sent on behalf of all jobs."""

import asyncio
from collections.abc import Callable
from random import choice
from typing import Final

from agentjobs_async._polling.pace import PollClock
from agentjobs_async._polling.timers import Timers
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef

__all__ = ["Outage"]

_JOBS_NOT_REACHED: Final = 10  # in a row: an outage; fewer failures may be those of single connections
_PROBE_AFTER_LEAVING_SECONDS: Final = 1.0  # jobs that leave together cause one probe
_PROBE_AT_LEAST_EVERY_SECONDS: Final = 30.0  # the probe itself may hang


class Outage:
    """Stops the clock of the polls when several jobs in a row were not reached, until the server answers again.

    Args:
        jobs: All tracked jobs, shared with the scheduler.
        make_urgent: Queues a job's poll before all others.
        resume: Makes all polls continue.

    Attributes:
        not_reached_since: The jobs for which the server was not reached since it last answered.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: dict[JobRef, Tracked],
        clock: PollClock,
        timers: Timers,
        make_urgent: Callable[[Tracked, float], None],
        resume: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._jobs = jobs
        self._clock = clock
        self._timers = timers
        self._make_urgent = make_urgent
        self._resume = resume
        self.not_reached_since: set[JobRef] = set()
        self._probe: Tracked | None = None

    def reached(self) -> None:
        """Record that the server answered."""
        if self.not_reached_since:
            self.not_reached_since.clear()
            if self._clock.unreachable:
                self._resume()

    def not_reached(self, tracked: Tracked, due: float, now: float) -> None:
        """Record that the server could not be reached for one job, whose next poll would be due at `due`.

        When several jobs in a row were not reached, with no answer between them, the server is taken to be unreachable
        for all. Each probe is another job's, so that no single job, which may be at fault itself, prolongs the outage.
        """
        self.not_reached_since.add(tracked.ref)
        if len(self._jobs) > 1 and len(self.not_reached_since) >= min(_JOBS_NOT_REACHED, len(self._jobs)):
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
        self.not_reached_since.clear()
        self._probe = None

    def _on_probe(self) -> None:
        if not self._clock.unreachable:
            return
        if not self._jobs:
            self._resume()
            return
        if self._probe is None or self._probe.bucket <= Tracked.NOWHERE:  # it has left, or its poll hangs
            self._probe = next((tracked for tracked in self._jobs.values() if tracked.bucket > Tracked.NOWHERE), None)
        now = self._loop.time()
        self._timers.set(self._on_probe, now + _PROBE_AT_LEAST_EVERY_SECONDS)
        if self._probe is not None:
            self._make_urgent(self._probe, now)
