"""One wait, in the caller's task: poll, decide, sleep, until the job has ended or the time has run out."""

import asyncio
from collections.abc import Mapping

from agentjobs_async._documents import NO_STATUSES, reader_with
from agentjobs_async._loop.backoff import Backoff
from agentjobs_async._loop.cancel_scope import CancelScope
from agentjobs_async._loop.loop_binding import running_loop
from agentjobs_async._polling.reading import (
    GetJob,
    GetJobReader,
    OnUpdate,
    job_or_ref,
    ref_of,
    with_ref,
)
from agentjobs_async._polling.wait_state import Answer, Durations, StatusWarnings, WaitState
from agentjobs_async._validation import checked_timeout
from agentjobs_async.errors import RateLimitedError, WaitTimeoutError
from agentjobs_async.models import AgentJob, JobRef, JobStatus, Seen
from agentjobs_async.policy import PollPolicy, checked_policy
from agentjobs_async.telemetry.observers import GuardedCallback


async def wait_for_job(
    job: AgentJob | JobRef,
    *,
    get_job: GetJob,
    policy: PollPolicy | None = None,
    timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature; the deadline also paces the last poll
    on_update: OnUpdate | None = None,
    statuses: Mapping[str, JobStatus] = NO_STATUSES,
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
        statuses: The statuses that the service's other words stand for, as of `Dialect`.

    Raises:
        InvalidInputError: An argument is invalid, before any poll; `policy.wait` returned an invalid delay; or
            `get_job` returned neither an `AgentJob` nor a mapping, or a job of another ref.
        WaitTimeoutError: `timeout` seconds have passed.
        ProtocolError: No poll has shown the job, and `policy.max_bad_answers` responses in a row were unusable; or one
            has, and unusable responses have lasted for `policy.answer_grace` seconds.
        NotFoundError: 410, or a 404 for longer than `policy.not_found_grace` and `policy.answer_grace` allow.
        AuthError, RejectedError, ServerError: The server refused the read; where a poll had shown the job, it has gone
            on refusing for `policy.answer_grace` seconds.
        SessionClosedError: No event loop of asyncio is running.
        Exception: What `get_job` raised, unchanged, when `policy.retry` does not accept it.
    """
    loop = running_loop("wait_for_job")
    wait = _Wait(job, checked_policy(policy), timeout, on_update)
    reader = GetJobReader(get_job, reader_with(statuses))
    answer: Answer | None = None
    result: AgentJob | Exception | None = wait.begin()
    with CancelScope(wait.deadline) as scope:
        while result is None:
            wait.begin_poll()
            answer = await reader.answer(wait.ref, wait.label)
            wait.end_poll()
            if scope.ended and isinstance(answer, Exception):
                wait.keep_error_of_cut(answer)
                break
            result = wait.act_on(answer, loop.time())
            if scope.ended:  # `get_job` swallowed the cancellation at the deadline
                break
            if result is None:
                answer = None  # it may be large, and the sleep long
                await asyncio.sleep(wait.due - loop.time())
                if wait.deadline is not None and loop.time() >= wait.deadline:
                    break  # a poll that begins now would be cut before it reaches the server
    if isinstance(result, AgentJob):
        return result
    try:
        raise wait.end_by_timeout() if result is None else with_ref(result, wait.ref)
    finally:
        del answer, result, wait  # the error's traceback holds this frame, which must not hold the error


class _Wait(WaitState):
    """One wait in its caller's task.

    Raises:
        InvalidInputError: An argument is invalid.

    Attributes:
        deadline: Loop time at which the wait ends; `None` if it never does.
    """

    __slots__ = (
        *("_backoff", "_clock", "_durations", "_is_polling", "_policy", "_timeout", "_update", "_warnings"),
        "deadline",
    )

    def __init__(
        self, job: AgentJob | JobRef, policy: PollPolicy, timeout: float | None, on_update: OnUpdate | None
    ) -> None:
        target = job_or_ref(job)
        self._clock = asyncio.get_running_loop().time
        super().__init__(ref_of(target), target if isinstance(target, AgentJob) else None, self._clock())
        self._timeout = checked_timeout(timeout)
        self._update = None if on_update is None else GuardedCallback("on_update", on_update)
        self._policy = policy
        self._backoff = Backoff()
        self._durations = Durations(policy)
        self._warnings = StatusWarnings()
        self.deadline = None if self._timeout is None else self.started + self._timeout
        self._is_polling = False

    def begin(self) -> AgentJob | None:
        """Report the job where it is known; return it if it is known to have ended."""
        job = self.job
        if job is not None and self._update is not None:
            self._update(job)
        return job if job is not None and job.is_terminal else None

    def begin_poll(self) -> None:
        """Count a poll, which is in flight until `end_poll`."""
        super().begin_poll()
        self._is_polling = True

    def end_poll(self) -> None:
        """Record that no poll is in flight: the last one was answered."""
        self._is_polling = False

    def keep_error_of_cut(self, error: Exception) -> None:
        """Keep the error that the deadline caused by cutting a poll, unless one before it says more."""
        self.error = self.error or error

    def act_on(self, answer: Answer, now: float) -> AgentJob | Exception | None:
        """Return the job or error that ends the wait; `None` to poll again at `due`."""
        previous = self.job
        result = self.apply(self._policy, answer, now)
        if isinstance(answer, RateLimitedError) and self.not_before <= now:  # the server asked for no pause
            self.hold_until(self._backoff.refused(now, now))
        if isinstance(answer, Seen):
            self._backoff.answered()
            job = answer.job
            if type(job.status) is not JobStatus:
                self._warnings.check(job)
            if self._update is not None and previous != job:
                self._update(job)
        if isinstance(result, AgentJob):
            self._durations.ended(result, self, now)
        self.move_to_last_poll(self._timeout, now)
        return result

    def end_by_timeout(self) -> WaitTimeoutError:
        """Record that the wait has reached its deadline, and return its error."""
        self._durations.timed_out(self)
        return self.timeout_error(self.polls, self._clock() - self.started, cut=self._is_polling)
