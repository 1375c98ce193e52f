"""A poll queue whose polls are only counted, not sent."""

import asyncio
from collections.abc import Iterable

from agentjobs_async._polling.pace import PollLimits
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.tracked import Tracked
from tests.polled import clock, refs


class Polling:
    """A queue, and the polls that left it as soon as they might: each with its time, in seconds from the making."""

    def __init__(self, count: int, per_second: float | None = None) -> None:
        self.made = clock()
        self.sent: list[tuple[float, Tracked]] = []
        self.dispatches = 0
        self.jobs = [Tracked(ref, None, self.made) for ref in refs(count)]
        self.queue = PollQueue(asyncio.get_running_loop(), {job.ref: job for job in self.jobs}, PollLimits(per_second))
        self.queue.dispatcher = self

    def dispatch(self) -> None:
        self.dispatches += 1
        now = clock()
        while (tracked := self.queue.next(now)) is not None:
            self.sent.append((round(now - self.made, 3), tracked))

    def put(self, delay: float, jobs: Iterable[Tracked] | None = None) -> None:
        now = clock()
        for job in self.jobs if jobs is None else jobs:
            self.queue.put(job, now + delay, now)

    def waiting(self) -> int:
        """Return how many jobs are due, whether they may be polled now or not."""
        return sum(job.is_due for job in self.jobs)

    def newly_sent(self) -> list[tuple[float, int]]:
        """Return what was sent since the last call, by the numbers of the jobs."""
        sent = [(at, self.jobs.index(job)) for at, job in self.sent]
        self.sent.clear()
        return sent
