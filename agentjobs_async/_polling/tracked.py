"""What the tracker keeps of one job, and who waits for it."""

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import Any

from agentjobs_async._polling.watch import Watch
from agentjobs_async.models import AgentJob, JobRef

__all__ = ["Tracked", "Worker"]


class Trouble:
    """What is kept of a job only while its polls fail, or are slow: of a healthy one it would be dead weight.

    Attributes:
        error: What the last poll that was answered failed with; `None` when it did not.
        bad_answers: As in `History`.
        refused_since: As in `History`.
        patience: Seconds that a poll of the job may hang while others wait, since one was cut; 0.0 before.
    """

    __slots__ = ("bad_answers", "error", "patience", "refused_since")

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.bad_answers = 0
        self.refused_since: float | None = None
        self.patience = 0.0


class Tracked:
    """One job, its poll stream, and its waiters. It is the `History` that the policy decides on.

    Attributes:
        waiters: One waiter inline, a dict without values from the second on, `None` when all have left.
        job: What the last good answer showed.
        seen: Loop time of that answer; before it, of the start of the oldest wait.
        shown: The number of the poll that it answered; 0 before it.
        seen_second: The second in which it was last seen, for the counters.
        trouble: What has gone wrong with its polls; `None` for a healthy one. Its parts are properties, too.
        not_before: Loop time before which the server does not wish a poll.
        bucket: Where it lies in the timetable, or one of the places below.
        worker: Who polls it right now.
    """

    READY = -1
    URGENT = -2
    NOWHERE = -3
    SET_ASIDE = -4

    __slots__ = (
        "bucket",
        "job",
        "not_before",
        "polls",
        "ref",
        "seen",
        "seen_second",
        "shown",
        "started",
        "trouble",
        "waiters",
        "worker",
    )

    def __init__(self, ref: JobRef, job: AgentJob | None, now: float, seen_second: int) -> None:
        self.ref = ref
        self.job = job
        self.seen_second = seen_second
        self.trouble: Trouble | None = None
        self.waiters: Any = None
        self.started = self.seen = self.not_before = now
        self.polls = 0
        self.shown = 0
        self.bucket = Tracked.NOWHERE
        self.worker: Worker | None = None

    @property
    def error(self) -> Exception | None:
        """What the last poll that was answered failed with; `None` when it did not."""
        return None if self.trouble is None else self.trouble.error

    @property
    def bad_answers(self) -> int:
        """As in `History`."""
        return 0 if self.trouble is None else self.trouble.bad_answers

    @property
    def refused_since(self) -> float | None:
        """As in `History`."""
        return None if self.trouble is None else self.trouble.refused_since

    @property
    def patience(self) -> float:
        """Seconds that a poll of it may hang while others wait, since one was cut; 0.0 before."""
        return 0.0 if self.trouble is None else self.trouble.patience

    def in_trouble(self) -> Trouble:
        """Return the record of what has gone wrong, made at the first trouble."""
        if self.trouble is None:
            self.trouble = Trouble()
        return self.trouble

    def recover(self) -> None:
        """Forget all failures, at a good answer; that the job is slow is remembered."""
        patience = self.patience
        self.trouble = None
        if patience:
            self.in_trouble().patience = patience

    def snapshot(self) -> tuple[Watch, ...]:
        """Return the waiters of this moment."""
        waiters = self.waiters
        if waiters is None:
            return ()
        return tuple(waiters) if type(waiters) is dict else (waiters,)

    def join(self, waiter: Watch) -> None:
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

    def leave(self, waiter: Watch) -> bool:
        """Remove a waiter; return whether it was the last."""
        waiter.tracked = None
        if type(self.waiters) is dict:
            del self.waiters[waiter]
            if self.waiters:
                return False
        self.waiters = None
        return True

    def part(self, waiters: Sequence[Watch]) -> "Tracked":
        """Return a twin of this job that is not polled, to which some of the waiters go; others must be left."""
        twin = copy(self)
        twin.waiters = dict.fromkeys(waiters)
        for waiter in waiters:
            del self.waiters[waiter]
            waiter.tracked = twin
        return twin

    def unseen(self) -> list[Watch]:
        """Return the waiters of this moment that no poll has shown the job: the last to have joined, in that order.

        A job known from its create, or from polls before the waiter joined, is not shown by a poll of its wait.
        """
        waiters = self.waiters
        if type(waiters) is not dict:
            return [] if waiters is None or waiters.polls_before < self.shown else [waiters]
        unseen: list[Watch] = []
        for waiter in reversed(waiters):
            if waiter.polls_before < self.shown:
                break
            unseen.append(waiter)
        unseen.reverse()
        return unseen

    def restart(self, waiter: Watch) -> None:
        """Make the history that of `waiter`, the oldest of those left, which no poll has shown the job yet."""
        self.seen = waiter.started
        self.shown = 0
        trouble = self.in_trouble()
        trouble.refused_since = None
        trouble.bad_answers = min(trouble.bad_answers, self.polls - 1 - waiter.polls_before)

    def notify_all(self, job: AgentJob) -> None:
        """Notify the waiters of this moment of a job."""
        waiters = self.waiters
        if type(waiters) is not dict:
            waiters.on_job(job)
            return
        for waiter in tuple(waiters):
            waiter.on_job(job)


class Worker:
    """Who polls, one job after the other.

    Attributes:
        task: What it runs in.
        tracked: What it polls right now.
        began: Loop time at which that poll began.
        answers_before: How many polls of all jobs had been answered by then.
        slow: Whether it polls a job of which a poll was cut.
    """

    __slots__ = ("answers_before", "began", "slow", "task", "tracked")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.tracked: Tracked | None = None
        self.began = 0.0
        self.answers_before = 0
        self.slow = False

    def take(self, tracked: Tracked, now: float, answers: int) -> None:
        """Begin a poll."""
        self.tracked = tracked
        self.began = now
        self.answers_before = answers
        tracked.worker = self
        tracked.polls += 1
