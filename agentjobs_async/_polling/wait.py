"""One wait, in the caller's task: poll, decide, sleep, until the job has ended or the time has run out."""

import asyncio

from agentjobs_async._loop.cancel_scope import CancelScope
from agentjobs_async._loop.sleep import sleep_until
from agentjobs_async._polling.decision import Answer, Done, Failed, decide, moved_to_last_poll, timed_out
from agentjobs_async._polling.durations import Durations
from agentjobs_async._polling.reading import (
    GetJob,
    OnUpdate,
    answer_of,
    job_or_ref,
    poll_of,
    ref_of,
    with_ref,
    without_own_frame,
)
from agentjobs_async._polling.snapshots import snapshot
from agentjobs_async._polling.status_warnings import StatusWarnings
from agentjobs_async._validation import checked_timeout
from agentjobs_async.errors import WaitTimeoutError
from agentjobs_async.models import AgentJob, JobRef, JobStatus, JobWithRetryAfter
from agentjobs_async.policy import PollPolicy, checked_policy, created_by, delay_of
from agentjobs_async.telemetry.observers import GuardedCallback

__all__ = ["wait_for_job"]


async def wait_for_job(
    job: AgentJob | JobRef,
    *,
    get_job: GetJob,
    policy: PollPolicy | None = None,
    timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature; the deadline also paces the last poll
    on_update: OnUpdate | None = None,
) -> AgentJob:
    """Return the job once it is completed, archived or failed. `failed` is a result, not an exception.

    Cancelling it leaves at once; the job itself continues remotely.

    Args:
        job: A job, or a reference to one. An `AgentJob` that has ended is returned without a poll.
        get_job: An async callable that takes a `JobRef` and returns an `AgentJob`, or the service's document as a
            mapping. It runs in the caller's task and context, and so does `on_update`.
        policy: When to poll again, and which faults end the wait; `None` for the defaults: 3.3 s + 3 % of the wait's
            age between two polls, at most 9 s, with ±10 % jitter.
        timeout: Seconds above 0; `None` waits for ever.
        on_update: A plain function, called with the job at first sight and at each change (of what is not only in
            `raw`), the last included. The first error that it raises is logged; none ends the wait.

    Raises:
        InvalidInputError: An argument is invalid, before any poll; or `policy.wait` returned an invalid delay.
        WaitTimeoutError: `timeout` seconds have passed.
        ProtocolError: No poll has shown the job, and `policy.max_bad_answers` responses in a row were unusable; or one
            has, and unusable responses have lasted for `policy.answer_grace` seconds.
        NotFoundError: 410, or a 404 for longer than `policy.not_found_grace` and `policy.answer_grace` allow.
        AuthError, RejectedError, ServerError: The server refused the read; where a poll had shown the job, it has gone
            on refusing for `policy.answer_grace` seconds.
        Exception: What `get_job` raised, unchanged, when `policy.retry` does not accept it.
    """
    wait = _Wait(job, policy=checked_policy(policy), timeout=timeout, on_update=on_update)
    poll, loop = poll_of(get_job), asyncio.get_running_loop()
    answer: Answer | None = None
    result: AgentJob | Exception | None = wait.begin(loop.time())
    with CancelScope(wait.deadline) as scope:
        while result is None:
            wait.poll()
            try:
                answer = answer_of(await poll(wait.ref), wait.ref)
            except Exception as error:  # noqa: BLE001 - an answer as well: `take` says whether it ends the wait
                answer = without_own_frame(error)
            result = wait.take(answer, loop.time(), cut=scope.ended)
            if scope.ended:  # `get_job` swallowed the cancellation at the deadline, or failed because of it
                break
            if result is None:
                answer = None  # it may be large, and the sleep long
                await sleep_until(loop, wait.due)
                if wait.deadline is not None and loop.time() >= wait.deadline:
                    break  # a poll that begins now would be cut before it reaches the server
    if isinstance(result, AgentJob):
        return result
    try:
        raise wait.timed_out(loop.time()) if result is None or scope.ended else with_ref(result, wait.ref)
    finally:
        del answer, result, wait  # the error's traceback holds this frame, which must not hold the error


class _Wait:
    """The state of one wait, and the `PollHistory` that the policy decides on.

    Raises:
        InvalidInputError: An argument is invalid.

    Attributes:
        ref: The job.
        deadline: Loop time at which the wait ends; `None` if it never does.
        due: Loop time of the next poll.
    """

    __slots__ = (
        "_durations",
        "_last_error",
        "_policy",
        "_polling",
        "_timeout",
        "_update",
        "_warnings",
        "bad_answers",
        "created",
        "deadline",
        "due",
        "job",
        "polls",
        "ref",
        "refused_since",
        "seen",
        "shown",
        "started",
    )

    def __init__(
        self, job: AgentJob | JobRef, *, policy: PollPolicy, timeout: float | None, on_update: OnUpdate | None
    ) -> None:
        target = job_or_ref(job)
        self.ref = ref_of(target)
        self.job = target if isinstance(target, AgentJob) else None
        self._durations = Durations(policy)
        self._last_error: Exception | None = None
        self._polling = False
        self._policy = policy
        self._timeout = checked_timeout(timeout)
        self._update = None if on_update is None else GuardedCallback("on_update", on_update)
        self._warnings: StatusWarnings | None = None
        self.polls = 0
        self.shown = 0
        self.bad_answers = 0
        self.refused_since: float | None = None

    def begin(self, now: float) -> AgentJob | None:
        """Start the wait at the loop time `now`; return the job if it is known to have ended."""
        self.started = self.seen = self.created = now
        self.deadline = None if self._timeout is None else now + self._timeout
        if self.job is not None:
            self.created = min(now, created_by(self.job, now))
            if self._update is not None:
                self._update(self.job)
            if self.job.is_terminal:
                return self.job
        return None

    def poll(self) -> None:
        """Record that a poll starts."""
        self.polls += 1
        self._polling = True

    def take(self, answer: Answer, now: float, *, cut: bool) -> AgentJob | Exception | None:
        """Return the job or error that ends the wait, or `None` to poll again at `due`.

        `cut`: the deadline has passed, and has cancelled the poll.
        """
        self._polling = False
        if isinstance(answer, AgentJob):  # nearly every answer is one
            return self._take_job(answer, now)
        if isinstance(answer, JobWithRetryAfter):
            self._record(answer.job, now)
        elif not cut or self._last_error is None:  # an error caused by the cut says less than the one before it
            self._last_error = answer
        decision = decide(self._policy, self, answer, now)
        if isinstance(decision, Done):
            self._durations.ended(decision.job, self, now)
            return decision.job
        if isinstance(decision, Failed):
            return decision.error
        self.seen, self.shown = decision.seen, decision.shown
        self.bad_answers, self.refused_since = decision.bad_answers, decision.refused_since
        self.due = moved_to_last_poll(decision.due, decision.not_before, now, self.deadline, self._timeout)
        return None

    def _take_job(self, job: AgentJob, now: float) -> AgentJob | None:
        """Return the job if it has ended; else set what `decide` would. The records of faults start anew."""
        if job is self.job and self.shown:
            self._last_error = None  # all else is as an earlier poll has left it
        else:
            self._record(job, now)
        if job.is_terminal:
            self._durations.ended(job, self, now)
            return job
        due = now + delay_of(self._policy.wait, self, job, now)
        self.seen, self.shown, self.bad_answers, self.refused_since = now, self.polls, 0, None
        self.due = moved_to_last_poll(due, now, now, self.deadline, self._timeout)
        return None

    def _record(self, job: AgentJob, now: float) -> None:
        previous, self.job, self._last_error = self.job, snapshot(job), None
        self.created = min(self.created, created_by(job, now))
        if type(job.status) is not JobStatus:
            self._warnings = self._warnings or StatusWarnings()
            self._warnings.check(job)
        if self._update is not None and previous != job:
            self._update(job)

    def timed_out(self, now: float) -> WaitTimeoutError:
        """Record that the wait has reached its deadline, and return its error."""
        self._durations.timed_out(self)
        return timed_out(self.ref, self.job, self._last_error, self.polls, now - self.started, cut=self._polling)
