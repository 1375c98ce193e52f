"""What the tracker keeps of one job, and who waits for it."""

import asyncio
from typing import Any, Protocol

from agentjobs_async.models import AgentJob, JobRef

__all__ = ["Tracked", "Waiter", "Worker"]


class Waiter(Protocol):
    """Somebody who waits for a job, with a deadline of its own.

    Attributes:
        tracked: The job; `None` once the wait is over.
        started: Loop time of the wait's start.
        timeout: Seconds from then on; `None` for ever.
        polls_before: How many polls the job had before this wait.
        bucket: Where the wait's next moment lies in the timetable.
    """

    tracked: "Tracked | None"
    started: float
    timeout: float | None
    polls_before: int
    bucket: int

    def saw(self, job: AgentJob) -> None:
        """Take notice of what a poll showed."""

    def finish(self, result: AgentJob | BaseException) -> None:
        """Take the end. Called once, after `tracked` was taken away."""


class Tracked:
    """One job, its poll stream, and its waiters. It is the `History` that the policy decides on.

    Attributes:
        waiters: One waiter inline, a dict without values from the second on, `None` when all have left.
        job: What the last good answer showed.
        observed: The second in which it was last seen, for the counters.
        error: What the last poll failed with; `None` when it did not.
        earliest: Loop time before which the server does not wish a poll.
        bucket: Where it lies in the timetable, or one of the places below.
        worker: Who polls it right now.
    """

    READY = -1
    URGENT = -2
    NOWHERE = -3

    __slots__ = (
        "bad_answers",
        "bucket",
        "earliest",
        "error",
        "job",
        "observed",
        "polls",
        "ref",
        "seen",
        "started",
        "waiters",
        "worker",
    )

    def __init__(self, ref: JobRef, job: AgentJob | None, now: float, observed: int) -> None:
        self.ref = ref
        self.job = job
        self.observed = observed
        self.error: Exception | None = None
        self.waiters: Any = None
        self.started = self.seen = self.earliest = now
        self.polls = 0
        self.bad_answers = 0
        self.bucket = Tracked.NOWHERE
        self.worker: Worker | None = None

    def each(self) -> tuple[Waiter, ...]:
        """Give the waiters of this moment."""
        waiters = self.waiters
        if waiters is None:
            return ()
        return tuple(waiters) if type(waiters) is dict else (waiters,)

    def join(self, waiter: Waiter) -> None:
        """Add a waiter."""
        waiter.tracked = self
        waiter.polls_before = self.polls - (self.worker is not None)
        waiters = self.waiters
        if waiters is None:
            self.waiters = waiter
        elif type(waiters) is dict:
            waiters[waiter] = None
        else:
            self.waiters = {waiters: None, waiter: None}

    def leave(self, waiter: Waiter) -> bool:
        """Take a waiter away; tell whether it was the last."""
        waiter.tracked = None
        if type(self.waiters) is dict:
            del self.waiters[waiter]
            if self.waiters:
                return False
        self.waiters = None
        return True

    def tell(self, job: AgentJob) -> None:
        """Let the waiters of this moment take notice of a job."""
        waiters = self.waiters
        if type(waiters) is not dict:
            waiters.saw(job)
            return
        for waiter in tuple(waiters):
            waiter.saw(job)


class Worker:
    """Who polls, one job after the other.

    Attributes:
        task: What it runs in.
        tracked: What it polls right now.
        began: Loop time at which that poll began.
        answers_before: How many polls of all jobs had been answered by then.
    """

    __slots__ = ("answers_before", "began", "task", "tracked")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.tracked: Tracked | None = None
        self.began = 0.0
        self.answers_before = 0

    def take(self, tracked: Tracked, now: float, answers: int) -> None:
        """Begin a poll."""
        self.tracked = tracked
        self.began = now
        self.answers_before = answers
        tracked.worker = self
        tracked.polls += 1
