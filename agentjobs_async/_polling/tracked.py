"""What the scheduler keeps of one job, of those who wait for it, and of the worker that polls it."""

import asyncio
from typing import Any, NamedTuple

from agentjobs_async._polling.stats import Second
from agentjobs_async._polling.watch import Watch
from agentjobs_async.models import AgentJob, JobRef
from agentjobs_async.policy import created_by

__all__ = ["Mark", "Tracked", "Worker"]


class Trouble:
    """What is kept of a job only while its polls fail or are slow: a healthy job does without, to save memory.

    Attributes:
        error: The error of the last poll that was answered; `None` when that poll showed the job.
        bad_answers: As in `PollHistory`.
        refused_since: As in `PollHistory`.
        patience_seconds: How long a poll of the job may hang while others wait, once one was cut; 0.0 before.
    """

    __slots__ = ("bad_answers", "error", "patience_seconds", "refused_since")

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.bad_answers = 0
        self.refused_since: float | None = None
        self.patience_seconds = 0.0


class Mark(NamedTuple):
    """The place of a job among those that are due.

    Attributes:
        number: The number of its arrival; below 0 for one whose deadline is near.
        overdue_from: The number of the poll from which on the job goes before all others.
    """

    number: int
    overdue_from: float


class Tracked:
    """One job, its polls and its waiters. It is the `PollHistory` that `decide` takes.

    Attributes:
        waiters: One waiter inline, a dict without values from the second on, `None` when all have left.
        notifies: Whether some waiter, present or past, is told of each state of the job; a plain `Watch` is told of the
            end only.
        job: The job as the last good answer showed it.
        created: As in `PollHistory`.
        label: The first label that one of its waits came with, for events; `None` without one.
        seen: Loop time of the last good answer that showed the job not ended; before the first one, of the start of the
            oldest wait.
        shown: The number of the poll that it answered; 0 before the first, and for a job that was found ended.
        seen_second: The `Second` in which it was last observed; `Counters` counts it there.
        trouble: What is wrong with its polls; `None` for a healthy job. Its fields are properties of this class, too.
        not_before: Loop time before which the server asked not to be polled.
        mark: Its place among the due jobs, until a poll shows it or fails. A refused one keeps it.
        bucket: The number of its time bucket, or one of the constants below.
        worker: The worker that polls it now.
    """

    # bucket     its next poll is      entered by                      left by
    # >= 0       in that time bucket   place                           its time, make_urgent -> READY
    # READY      due                   its time, make_ready,           a worker -> NOWHERE, no slow slot -> SET_ASIDE
    #                                  make_urgent: a near deadline
    # SET_ASIDE  due, the job is slow  slow jobs hold all slots that   a worker -> NOWHERE, make_urgent -> READY
    #                                  they may (a "slow slot")
    # NOWHERE    in flight, or none    new; a worker takes it          place, make_ready
    # REMOVED    none                  remove, from any state          -
    # Entries in queues and buckets are removed lazily: one counts only while `bucket` names the place where it lies.
    # The order of the constants counts: a job has an entry exactly while `bucket` is above NOWHERE.
    # Once it is REMOVED, the waits that are left end with one result: no deadline and no later answer changes it.
    READY = -1
    SET_ASIDE = -2
    NOWHERE = -3
    REMOVED = -4

    __slots__ = (
        "bucket",
        "created",
        "job",
        "label",
        "mark",
        "not_before",
        "notifies",
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

    def __init__(self, ref: JobRef, job: AgentJob | None, now: float, second: Second) -> None:
        self.ref = ref
        self.job = job
        self.label: str | None = None
        self.seen_second = second
        self.trouble: Trouble | None = None
        self.waiters: Any = None
        self.notifies = False
        self.started = self.seen = self.not_before = now
        self.created = now if job is None else min(now, created_by(job, now))
        self.polls = 0
        self.shown = 0
        self.mark: Mark | None = None
        self.bucket = Tracked.NOWHERE
        self.worker: Worker | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether it is due before all others, since a deadline is near."""
        return self.mark is not None and self.mark.number < 0 and Tracked.NOWHERE < self.bucket < 0

    @property
    def is_shared(self) -> bool:
        """Whether there is, or was, more than one waiter at a time."""
        return type(self.waiters) is dict

    @property
    def error(self) -> Exception | None:
        """The error of the last poll that was answered; `None` when that poll showed the job."""
        return None if self.trouble is None else self.trouble.error

    @property
    def bad_answers(self) -> int:
        """As in `PollHistory`."""
        return 0 if self.trouble is None else self.trouble.bad_answers

    @property
    def refused_since(self) -> float | None:
        """As in `PollHistory`."""
        return None if self.trouble is None else self.trouble.refused_since

    @property
    def patience_seconds(self) -> float:
        """How long a poll of the job may hang while others wait, once one was cut; 0.0 before."""
        return 0.0 if self.trouble is None else self.trouble.patience_seconds

    def in_trouble(self) -> Trouble:
        """Return `trouble`, made if there is none yet."""
        if self.trouble is None:
            self.trouble = Trouble()
        return self.trouble

    def recover(self) -> None:
        """Forget all failures, at a good answer; `patience_seconds` stays."""
        patience_seconds = self.patience_seconds
        self.trouble = None
        if patience_seconds:
            self.in_trouble().patience_seconds = patience_seconds

    def snapshot(self) -> tuple[Watch, ...]:
        """Return the waiters as they are now, so that they may come and go in a loop over them."""
        waiters = self.waiters
        if waiters is None:
            return ()
        return tuple(waiters) if type(waiters) is dict else (waiters,)

    def join(self, waiter: Watch) -> None:
        """Add a waiter."""
        waiter.tracked = self
        waiter.polls_before = self.polls - (self.worker is not None)
        self.notifies = self.notifies or type(waiter) is not Watch
        waiters = self.waiters
        if waiters is None:
            self.waiters = waiter
        elif type(waiters) is dict:
            waiters[waiter] = None
        else:
            self.waiters = {waiters: None, waiter: None}

    def leave(self, waiter: Watch) -> bool:
        """Remove a waiter; return whether it was the last."""
        waiter.polls_at_end = self.polls - waiter.polls_before
        waiter.tracked = None
        if type(self.waiters) is dict:
            del self.waiters[waiter]
            if self.waiters:
                return False
        self.waiters = None
        return True

    def notify_all(self, job: AgentJob) -> None:
        """Pass the state of the job to all waiters, which may leave or join meanwhile."""
        for waiter in self.snapshot():
            if waiter.tracked is self:  # else it has left meanwhile
                waiter.on_job(job)


class Worker:
    """A task that polls one job after the other. It holds one of the slots of `PollBudget.in_flight`.

    Attributes:
        task: The task in which it runs.
        tracked: The job that it polls now; `None` between two polls, and from when it is cut.
        cut_ref: The job whose poll was cut, while the task is leaving; `None` before.
        began: Loop time at which the poll began.
        polls_before: The number of polls of all jobs that had been answered by then.
        slow: Whether it polls a slow job: one of which a poll was cut.
    """

    __slots__ = ("began", "cut_ref", "polls_before", "slow", "task", "tracked")

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.tracked: Tracked | None = None
        self.cut_ref: JobRef | None = None
        self.began = 0.0
        self.polls_before = 0
        self.slow = False
