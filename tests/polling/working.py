"""Workers whose answers are only recorded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agentjobs_async._documents import NO_STATUSES, reader_with
from agentjobs_async._polling.limiters import PollLimits
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.reading import GetJobReader
from agentjobs_async._polling.tracked import Place, Tracked
from agentjobs_async._polling.wait_state import Answer
from agentjobs_async._polling.workers import Workers
from tests.polled import Polled, clock, let_go, refs


class _Reader(GetJobReader):
    def __init__(self, get_job: Polled, longest_poll: float) -> None:
        super().__init__(get_job, reader_with(NO_STATUSES))
        self.longest_poll = longest_poll


class Working:
    """Workers that poll some jobs, each `delay` seconds after its last answer.

    Args:
        get_job: Answers the polls.
        count: How many jobs there are.
        slots: How many polls may be in flight.
        longest_poll: Seconds that a poll may hang at most.

    Attributes:
        answers: When each answer came, in seconds from the making, and the number of its job.
        error: What is raised at each answer, unless it is `None`.
    """

    def __init__(self, get_job: Polled, count: int, slots: int, delay: float, longest_poll: float) -> None:
        self._made = clock()
        self._delay = delay
        self.jobs = [Tracked(ref, None, self._made) for ref in refs(count)]
        self.limits = PollLimits(None)
        self.queue = PollQueue(self.limits, self.jobs, slots, self._made)
        reader = _Reader(get_job, longest_poll)
        self.workers = Workers(asyncio.get_running_loop(), reader, self.queue, slots, self)
        self.answers: list[tuple[float, int]] = []
        self.error: Exception | None = None
        for job in self.jobs:
            self.queue.add(job, self._made)
        self.workers.wake()

    def on_answer(self, job: Tracked, answer: Answer | BaseException, began: float, now: float) -> None:
        """Record an answer, and poll the job again."""
        assert began <= now == clock()
        job.error = answer if isinstance(answer, Exception) else None
        self.answers.append((round(now - self._made, 3), self.jobs.index(job)))
        if self.error is not None:
            raise self.error
        if job.place is not Place.GONE:
            self.queue.put(job, now + self._delay, now)


@asynccontextmanager
async def working(
    get_job: Polled, count: int, slots: int, delay: float = 0.0, longest_poll: float = 30.0
) -> AsyncIterator[Working]:
    """Let workers poll within a block."""
    made = Working(get_job, count, slots, delay, longest_poll)
    try:
        yield made
    finally:
        made.workers.close()
        await let_go()
