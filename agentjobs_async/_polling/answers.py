"""Acting on answers: each is recorded and passed on to the waiters, then the job is polled again or its waits end."""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

from agentjobs_async._polling.decision import Again, Answer, Done, Failed, decide
from agentjobs_async._polling.ends import Result
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.snapshots import snapshot
from agentjobs_async._polling.stats import Counters
from agentjobs_async._polling.status_warnings import StatusWarnings
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.errors import NotSentError, RateLimitedError, ResponseError
from agentjobs_async.models import TERMINAL, AgentJob, JobStatus, JobWithRetryAfter
from agentjobs_async.policy import PollPolicy, created_by, delay_by_age, delay_of

if TYPE_CHECKING:  # loaded with the first hook
    from agentjobs_async.telemetry.hooks import Hooks

__all__ = ["Answers"]

_NOTIFIED_EVERY_SECONDS: Final = 0.25  # between two polls of a job, however often `notify` is called for it


class Answers:
    """Acts on the answers to the polls of one scheduler.

    Args:
        finish: Stops polling a job and ends all of its waits with a result.
    """

    def __init__(
        self,
        policy: PollPolicy,
        hooks: "Hooks | None",
        counters: Counters,
        queue: PollQueue,
        finish: Callable[[Tracked, Result], None],
    ) -> None:
        self.use(policy)
        self._hooks = hooks
        self._counters = counters
        self._queue = queue
        self._finish = finish
        self._warnings = StatusWarnings()
        self._notified: set[Tracked] = set()
        """Jobs for which `notify` was called while their poll was in flight: it may have missed the news."""

    def use(self, policy: PollPolicy) -> None:
        """Decide by `policy` from now on."""
        self._policy = policy
        self._delay_by_age = delay_by_age(policy.wait)

    def notify(self, tracked: Tracked, now: float) -> None:
        """Poll the job once more, soon; after the answer where a poll of it is in flight."""
        if tracked.worker is not None:
            self._notified.add(tracked)
        else:
            self._queue.reschedule_earlier(tracked, max(now, tracked.not_before + _NOTIFIED_EVERY_SECONDS), now)

    def forget(self, tracked: Tracked) -> None:
        """Forget a job that is no longer polled."""
        self._notified.discard(tracked)

    def take(self, tracked: Tracked, answer: Answer | BaseException, now: float, began: float) -> None:
        """Act on the answer that came at the loop time `now` to a poll that began at `began`.

        If this raises, as a wait strategy may, only the waits of this job end. They end after a CancelledError, too:
        the job would never be polled again, and they would hang.
        """
        try:
            if isinstance(answer, AgentJob):  # nearly every answer is one
                self._on_job(tracked, answer, now, began)
                return
            if isinstance(answer, JobWithRetryAfter):
                self._record(tracked, answer.job, now, began)
            else:
                self._on_error(tracked, answer, now, began)
            if tracked.bucket != Tracked.REMOVED:  # else a hook or a callback has ended the last wait
                self._act(tracked, answer, now, began)
        except BaseException as error:
            self._finish(tracked, error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    def _record(self, tracked: Tracked, job: AgentJob, now: float, began: float) -> bool:
        """Record a good answer, and pass it on; return whether the job has ended."""
        tracked.seen_second = self._counters.count_seen(tracked.seen_second, now)  # first: what follows may raise
        ended = job.status in TERMINAL  # `is_terminal` without its call
        self._queue.answered(began, now)
        previous = tracked.job
        if job is not previous or not tracked.shown:  # else it was checked; one that a caller gave was not
            tracked.job = snapshot(job)
            tracked.created = min(tracked.created, created_by(job, now))
            if type(job.status) is not JobStatus:
                self._warnings.check(job)
        tracked.mark = None
        if tracked.trouble is not None:
            tracked.recover()
        if not ended:  # the end of a wait says how long ago that was
            tracked.seen, tracked.shown = now, tracked.polls
        if self._hooks is not None:
            if ended and self._hooks.ends_new(tracked.ref, tracked.started):
                tracked.shown = tracked.polls
            lateness = now - tracked.seen if ended and tracked.shown else None
            self._hooks.polled(job, previous, tracked.polls, now - began, tracked.label, lateness)
        if tracked.notifies:
            tracked.notify_all(job)
        return ended

    def _on_job(self, tracked: Tracked, job: AgentJob, now: float, began: float) -> None:
        """Record a good answer, and end the waits or poll again, as `_act` and `_poll_again` do by `decide`.

        Nearly every answer is a job without a Retry-After. It needs none of their records of faults and pauses, which
        cost a sixth of a poll's CPU in memory (`benchmarks/bench_waits.py`).
        """
        if self._record(tracked, job, now, began):
            self._finish(tracked, job)
            return
        by_age = self._delay_by_age
        if by_age is None or not 0.0 <= (delay := by_age(now - tracked.started)) < inf:
            if tracked.bucket == Tracked.REMOVED:
                return  # a hook or a callback has ended the last wait: no strategy is called for it
            delay = delay_of(self._policy.wait, tracked, job, now)  # raises for an invalid delay
        due = now + delay
        tracked.not_before = now
        if self._notified and tracked in self._notified:
            self._notified.remove(tracked)
            due = min(due, now + _NOTIFIED_EVERY_SECONDS)
        if tracked.bucket == Tracked.NOWHERE:  # else a hook, a callback or the strategy has ended the last wait
            self._queue.place(tracked, due, now)

    def _on_error(self, tracked: Tracked, error: BaseException, now: float, began: float) -> None:
        self._counters.count_error(now)
        if isinstance(error, Exception):
            tracked.in_trouble().error = error
        if not isinstance(error, NotSentError):
            self._queue.outage.reached()
        if self._hooks is not None:
            self._hooks.poll_failed(tracked.ref, error, tracked.polls, now - began, tracked.label)

    def _act(self, tracked: Tracked, answer: Answer | BaseException, now: float, began: float) -> None:
        if isinstance(answer, BaseException) and not isinstance(answer, Exception):
            self._finish(tracked, answer)
            return
        decision = decide(self._policy, tracked, answer, now)
        if tracked.bucket == Tracked.REMOVED:
            return  # the last waiter left while a strategy was called
        if type(decision) is Again:
            self._poll_again(tracked, answer, decision, now, began)
        elif isinstance(decision, Done):
            self._finish(tracked, decision.job)
        elif isinstance(decision, Failed):
            self._finish(tracked, decision.error)

    def _poll_again(self, tracked: Tracked, answer: Answer, again: Again, now: float, began: float) -> None:
        if tracked.trouble is not None:
            tracked.trouble.bad_answers, tracked.trouble.refused_since = again.bad_answers, again.refused_since
        tracked.not_before = again.not_before
        if again.not_before <= now and not isinstance(answer, RateLimitedError):
            tracked.mark = None  # else the poll was refused: the job keeps its place among those that are due
        due = again.due
        if tracked in self._notified:
            self._notified.remove(tracked)
            if not isinstance(answer, Exception):
                due = min(due, max(again.not_before, now + _NOTIFIED_EVERY_SECONDS))
        if isinstance(answer, Exception):
            self._hold_back(tracked, answer, again.not_before, due, now, began)
        if tracked.bucket == Tracked.NOWHERE:
            self._queue.place(tracked, due, now)

    def _hold_back(
        self, tracked: Tracked, error: Exception, not_before: float, due: float, now: float, began: float
    ) -> None:
        """Make the polls of others wait as well, where a poll that began at `began` failed for a reason they share."""
        if isinstance(error, RateLimitedError):
            self._queue.refused(began, now, not_before)
        if isinstance(error, NotSentError):
            self._queue.outage.not_reached(tracked, due, now)
        elif isinstance(error, ResponseError) and not_before > now:
            if due > not_before:  # placed before the pause begins, it keeps its spacing to the others
                self._queue.place(tracked, due, now)
            self._queue.pause(tracked.ref, error.status, not_before, due, now, began)
