"""What the polls of a job have shown, and what the next answer means: the pure decisions that all waits share."""

from math import inf
from typing import Final

from attrs import evolve

from agentjobs_async._errors import may_pass
from agentjobs_async._text import shown_name, shown_status
from agentjobs_async.errors import (
    InvalidInputError,
    NotSentError,
    ProtocolError,
    ResponseError,
    TransportError,
    WaitTimeoutError,
)
from agentjobs_async.models import TERMINAL, AgentJob, JobRef, Seen
from agentjobs_async.policy import PollPolicy, accepts, created_by, delay_of, learn_methods
from agentjobs_async.telemetry.observers import GuardedCallback, logger

CUT: Final = "no answer until the wait ended"
"""The error text of a poll that was cut because its wait ended."""

Answer = Seen | Exception
"""What one poll returned: errors are values."""

_MISSING: Final = 404


class WaitState:
    """What the polls of one job have shown so far: the `PollHistory` that strategies see.

    Times are loop times, in seconds.

    Attributes:
        ref: The job's ref.
        job: The job as it was shown last, or given; `None` before. Its `raw` is empty where that was large.
        label: That of the first job with a label that a wait was given, for all jobs that are shown; `None` without.
        started: When the oldest wait for the job started.
        created: As in `PollHistory`.
        seen: When an answer last showed the job not ended; before the first one, `started`.
        shown: The number of the poll that it answered; 0 before the first, and for a job that was found ended.
        polls: The number of polls made, including the one in flight.
        error: The error of the last poll that was answered; `None` when that poll showed the job.
        bad_answers: The number of unusable responses in a row.
        refused_since: Since when the server, which had shown the job, has answered without it; `None` if it has not.
        not_before: When the server allows the next poll: the time of the last answer, unless that asked for a pause.
        due: When the next poll is due: as the policy says, or where a queue moved it, as that does.
    """

    __slots__ = (
        *("bad_answers", "created", "due", "error", "job", "label", "not_before", "polls", "ref", "refused_since"),
        *("seen", "shown", "started"),
    )

    def __init__(self, ref: JobRef, job: AgentJob | None, now: float) -> None:
        self.ref = ref
        self.job = job
        self.label = None if job is None else job.label
        self.started = self.seen = self.not_before = self.due = now
        self.created = now if job is None else min(now, created_by(job, now))
        self.polls = self.shown = self.bad_answers = 0
        self.error: Exception | None = None
        self.refused_since: float | None = None

    def begin_poll(self) -> None:
        """Count a poll."""
        self.polls += 1

    def apply(self, policy: PollPolicy, answer: Answer, now: float) -> AgentJob | Exception | None:
        """Record the answer that came at the loop time `now` to the last poll, and decide what it means.

        Returns:
            The job, which has ended; or the error that ends the wait, which may be one that a strategy raised; or
            `None` to poll again at `due`.
        """
        try:
            if isinstance(answer, Seen):
                self._show(answer, now)
                if answer.job.status in TERMINAL:
                    return answer.job
                self._schedule(policy, answer.job, answer.retry_after, now)
                return None
            self.error = answer
            if self._ends_by(policy, answer, now):
                return answer
            wish = answer.retry_after if isinstance(answer, ResponseError | ProtocolError) else None
            self._schedule(policy, answer, wish, now)
        except Exception as error:  # noqa: BLE001 - a user's strategy may raise anything
            return error
        return None

    def _schedule(
        self, policy: PollPolicy, outcome: AgentJob | Exception, retry_after: float | None, now: float
    ) -> None:
        """Set the time of the next poll."""
        self.not_before = now
        if retry_after is not None and retry_after > 0:  # false for the NaN of a user's own error, too
            self.not_before = now + min(retry_after, policy.max_retry_after)
        self.due = max(now + delay_of(policy, self, outcome, now), self.not_before)

    def hold_until(self, time: float) -> None:
        """Make the next poll no earlier than this loop time."""
        self.not_before = max(self.not_before, time)
        self.due = max(self.due, self.not_before)

    def _show(self, seen: Seen, now: float) -> None:
        """Record that the last poll has shown the job."""
        job = seen.job
        if job is not self.job or not self.shown:  # else it is recorded: an unchanged one comes as the same object
            self.job = evolve(job, raw={}) if seen.is_large else job
            self.created = min(self.created, created_by(job, now))
        self.error, self.bad_answers, self.refused_since = None, 0, None
        if job.status not in TERMINAL:  # the end of a wait says how long ago that was
            self.seen, self.shown = now, self.polls

    def _ends_by(self, policy: PollPolicy, error: Exception, now: float) -> bool:
        """Return whether an error ends the wait."""
        if isinstance(error, ProtocolError) or (isinstance(error, ResponseError) and not may_pass(error.status)):
            return self._ends_by_refusal(policy, error, now)
        self.bad_answers = 0
        if isinstance(error, InvalidInputError):
            return True  # a mistake in the program, such as a `get_job` that returns `None`: it would come again
        # Else it is an exception of the caller's own `get_job`, which `policy.retry` judges.
        transient = isinstance(error, NotSentError | TransportError | ResponseError)
        return not (transient or accepts(policy.retry, self, error, now))

    def _ends_by_refusal(self, policy: PollPolicy, error: ResponseError | ProtocolError, now: float) -> bool:
        """Return whether an answer ends the wait that does not show the job, and is no transient fault."""
        self.bad_answers = self.bad_answers + 1 if isinstance(error, ProtocolError) else 0
        missing = isinstance(error, ResponseError) and error.status == _MISSING
        within_grace = missing and now - self.seen < policy.not_found_grace
        if not self.shown:
            return self.bad_answers >= policy.max_bad_answers if self.bad_answers else not within_grace
        # Once a poll has shown the job, refusals end the wait when they have lasted for the grace. A single one has not
        # lasted at all, however long ago the job was shown: polls may be rare, or an outage may lie between.
        since = self.refused_since
        lasted = policy.answer_grace == 0 or (since is not None and now - since >= policy.answer_grace)
        if since is None:  # they began with the last answer that showed the job, or now if other faults came between
            self.refused_since = self.seen if self.shown == self.polls - 1 else now
        return lasted and not within_grace

    def move_to_last_poll(self, timeout: float | None, now: float) -> None:
        """Make the next poll the last one before the end of a wait of `timeout` seconds, where it would come later.

        It is never before `not_before`, for a server's Retry-After applies to the last poll too: if that ends after the
        deadline, there is no last poll.
        """
        if timeout is not None:
            last = self.started + timeout - last_poll_lead(timeout)
            if now + _CLOCK_TOLERANCE_SECONDS < last < self.due:
                self.due = max(last, self.not_before)

    def timeout_error(self, polls: int, elapsed: float, *, cut: bool) -> WaitTimeoutError:
        """Return the error of a wait that has reached its deadline after `polls` polls and `elapsed` seconds.

        `cut`: the deadline cut a poll in flight.
        """
        cause = TransportError(CUT) if self.error is None and cut else self.error
        return WaitTimeoutError(self.ref, self.job, cause, polls, elapsed)


_LAST_POLL_LEAD_SECONDS: Final = 1.0  # time for the answer of the last poll to arrive before the deadline
_CLOCK_TOLERANCE_SECONDS: Final = 0.001  # a timer may fire this early: the last poll is not made twice


def last_poll_lead(timeout: float) -> float:
    """Return the seconds by which a wait's last poll starts before its deadline."""
    return min(_LAST_POLL_LEAD_SECONDS, timeout / 10)


_TOLERATED_SECONDS: Final = 60.0  # clocks differ, and a create's answer takes a moment


class Durations:
    """Passes durations on to `policy.wait` and its parts, where these have a method `learn`; else does nothing.

    A duration counts from the job's creation. A job that had ended when the wait for it began, a minute or more after
    its creation, is left out: it may have taken any time. The first error of a method is logged; none ends a wait.
    """

    __slots__ = ("_learners",)

    def __init__(self, policy: PollPolicy) -> None:
        self._learners = tuple(GuardedCallback("policy.wait.learn", learn) for learn in learn_methods(policy.wait))

    def ended(self, job: AgentJob, wait: WaitState, now: float) -> None:
        """Record that a job ended after it was last seen active, and by the loop time `now`."""
        if wait.seen > wait.started:
            self._learn(job, wait.seen - wait.created, now - wait.created)
        elif wait.started - wait.created < _TOLERATED_SECONDS:
            self._learn(job, 0.0, now - wait.created)

    def timed_out(self, wait: WaitState) -> None:
        """Record that a wait timed out, for a job that was active when it was last seen."""
        if wait.job is not None and wait.seen > wait.started:
            self._learn(wait.job, wait.seen - wait.created, inf)

    def _learn(self, job: AgentJob, earliest: float, latest: float) -> None:
        for learn in self._learners:
            learn(job.project_id, job.model, earliest, latest)


_MAX_WARNINGS: Final = 100  # statuses that are logged: a server may make up any number


class StatusWarnings:
    """Logs each status that this version does not know once, and at most 100 of them."""

    __slots__ = ("_warned",)

    def __init__(self) -> None:
        self._warned: tuple[str, ...] = ()  # a tuple: all empty ones are one object, and most stay empty

    def check(self, job: AgentJob) -> None:
        """Log the unknown status of a job, which does not end a wait."""
        status = shown_status(job.status)
        if status not in self._warned and len(self._warned) < _MAX_WARNINGS:
            self._warned += (status,)
            name = shown_name(job.project_id, job.id)
            logger.warning("job %s has the unknown status %s: it counts as not ended", name, status)
