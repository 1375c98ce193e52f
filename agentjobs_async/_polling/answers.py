"""Acting on answers: what each shows is passed on to the waiters, then the job is polled again or its waits end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agentjobs_async._polling.backpressure import ProjectBackoffs
from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.stats import Counters
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async._polling.wait_state import Answer, StatusWarnings
from agentjobs_async.errors import NotSentError, RateLimitedError, ResponseError
from agentjobs_async.models import TERMINAL, AgentJob, JobStatus, ReadJob, with_label
from agentjobs_async.policy import PollPolicy

if TYPE_CHECKING:  # loaded with the first hook
    from agentjobs_async.telemetry.hooks import Hooks

_NOTIFY_EVERY_SECONDS: Final = 0.25  # between two polls of a job, however often `notify` is called for it

Result = AgentJob | BaseException
"""How a wait ends."""


class Answers:
    """Acts on the answers to the polls of one scheduler.

    Args:
        finish: Stops polling a job and ends all of its waits with a result.

    Attributes:
        policy: What decides from the next answer on.
    """

    def __init__(
        self,
        policy: PollPolicy,
        hooks: "Hooks | None",
        counters: Counters,
        queue: PollQueue,
        finish: Callable[[Tracked, Result], None],
    ) -> None:
        self.policy = policy
        self._hooks = hooks
        self._counters = counters
        self._queue = queue
        self._finish = finish
        self._backoffs = ProjectBackoffs()
        self._warnings = StatusWarnings()

    def notify(self, tracked: Tracked, now: float) -> None:
        """Poll the job once more, soon; after the answer where a poll of it is in flight."""
        if tracked.worker is not None:
            tracked.notified = True
        else:
            self._queue.reschedule_earlier(tracked, max(now, tracked.not_before + _NOTIFY_EVERY_SECONDS), now)

    def act_on(self, tracked: Tracked, answer: Answer | BaseException, now: float, began: float) -> None:
        """Act on the answer that came at the loop time `now` to a poll that began at `began`.

        If this raises, as a wait strategy may, only the waits of this job end. They end after a CancelledError, too:
        the job would never be polled again, and they would hang.
        """
        answer = with_label(answer, tracked.label)  # a wait with a label may have begun while the poll was in flight
        try:
            result = self._result_of(tracked, answer, now, began)
        except BaseException as error:
            self._finish(tracked, error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            return
        if result is not None:
            self._finish(tracked, result)
        elif tracked.bucket == Tracked.NOWHERE:  # else a strategy, a hook or a callback has ended the last wait
            self._poll_again(tracked, answer, now, began)

    def _result_of(self, tracked: Tracked, answer: Answer | BaseException, now: float, began: float) -> Result | None:
        """Apply an answer, and tell hooks and waiters of it; return what ends the waits, `None` to poll again."""
        previous = tracked.job
        try:
            if isinstance(answer, AgentJob | ReadJob | Exception):
                return tracked.apply(self.policy, answer, now)
            return answer
        finally:  # also when a strategy raised: each poll gives one event
            if isinstance(answer, BaseException):
                self._on_error(tracked, answer, now, began)
            else:
                self._on_job(tracked, answer.job if isinstance(answer, ReadJob) else answer, previous, now, began)

    def _on_job(self, tracked: Tracked, job: AgentJob, previous: AgentJob | None, now: float, began: float) -> None:
        """Report a good answer to hooks and waiters."""
        self._counters.count(now, failed=False)
        self._queue.answered(began, now)
        self._backoffs.answered(tracked.ref.project_id)
        if type(job.status) is not JobStatus:
            self._warnings.check(job)
        if self._hooks is not None:
            ended = job.status in TERMINAL
            if ended and self._hooks.ends_new(tracked.ref, tracked.started):
                tracked.shown = tracked.polls
            lateness = now - tracked.seen if ended and tracked.shown else None
            self._hooks.polled(job, previous, tracked.polls, now - began, tracked.label, lateness)
        if tracked.wants_states:
            tracked.tell_waiters(job)

    def _on_error(self, tracked: Tracked, error: BaseException, now: float, began: float) -> None:
        """Report to hooks that a poll did not show the job."""
        self._counters.count(now, failed=True)
        if not isinstance(error, NotSentError):
            self._queue.outage.reached()
        if self._hooks is not None:
            self._hooks.poll_failed(tracked.ref, error, tracked.polls, now - began, tracked.label)

    def _poll_again(self, tracked: Tracked, answer: object, now: float, began: float) -> None:
        """Queue the next poll, at the time that the state says."""
        due = tracked.due
        if tracked.notified:
            tracked.notified = False
            if not isinstance(answer, Exception):
                due = tracked.due = min(due, max(tracked.not_before, now + _NOTIFY_EVERY_SECONDS))
        if isinstance(answer, Exception):
            self._hold_back(tracked, answer, due, now, began)
        if tracked.bucket == Tracked.NOWHERE:
            self._queue.put(tracked, tracked.due, now)

    def _hold_back(self, tracked: Tracked, error: Exception, due: float, now: float, began: float) -> None:
        """Make the polls of others wait as well, where a poll that began at `began` failed for a reason they share."""
        not_before = tracked.not_before
        if isinstance(error, RateLimitedError):
            self._queue.refused(began, now, not_before)
            if not_before <= now:
                self._hold_project_back(tracked, due, now, began)
        if isinstance(error, NotSentError):
            self._queue.outage.not_reached(tracked, due, now)
        elif isinstance(error, ResponseError) and not_before > now:
            if due > not_before:  # put before the pause begins, it keeps its spacing to the others
                self._queue.put(tracked, due, now)
            self._queue.pause(tracked.ref, error.status, not_before, due, now, began)

    def _hold_project_back(self, tracked: Tracked, due: float, now: float, began: float) -> None:
        """Make the polls of the job's project wait, which the server refused for now without saying for how long."""
        until = self._backoffs.refused(tracked.ref.project_id, began, now)
        if until > now:
            tracked.hold_until(until)
            self._queue.hold(tracked.ref.project_id, until, due, now)
