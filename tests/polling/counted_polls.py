"""A poll queue whose polls are only counted, not sent."""

import asyncio
from collections.abc import Iterable

from agentjobs_async._polling.limiters import PollLimits
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.tracked import Place, Tracked
from tests.polled import clock, refs


class Polling:
    """A queue, and the polls that left it as soon as they might: each with its time, in seconds from the making.

    Args:
        count: How many jobs are tracked.
        per_second: How many polls may start per second.
        slots: How many may be in flight; none of them is answered.
    """

    def __init__(self, count: int, per_second: float | None = None, slots: int = 100) -> None:
        self.made = clock()
        self.sent: list[tuple[float, Tracked]] = []
        self.jobs = [Tracked(ref, None, self.made) for ref in refs(count)]
        self.queue = PollQueue(PollLimits(per_second), self.jobs, slots, self.made)
        for job in self.jobs:
            self.queue.add(job, self.made)
            self.queue.put(job, self.made + 1_000_000, self.made)

    def put(self, delay: float, jobs: Iterable[Tracked] | None = None) -> None:
        for job in self.jobs if jobs is None else jobs:
            self.queue.put(job, clock() + delay, clock())

    async def run(self, seconds: float, *, ends: bool = False) -> list[tuple[float, int]]:
        """Take each poll as soon as it may start, for so long; return them by the numbers of the jobs.

        With `ends`, each finds that its job has ended.
        """
        ends_at, sent = clock() + seconds, []
        while True:
            while (job := self.queue.next(clock())) is not None:
                sent.append((round(clock() - self.made, 2), self.jobs.index(job)))
                if ends:
                    self.queue.remove(job)
                    self.jobs.remove(job)
            wakes_at = self.queue.wakes_at(clock())
            assert wakes_at > clock()
            await asyncio.sleep(min(wakes_at, ends_at) - clock())
            if clock() >= ends_at:
                return sent

    def waiting(self) -> int:
        """Return how many jobs are due, whether they may be polled now or not."""
        return sum(job.place is Place.DUE for job in self.jobs)
