"""One wait, in the caller's task: ask, decide, sleep, until the job has ended or the time has run out."""

import asyncio

from agentjobs_async._cancel_scope import CancelScope
from agentjobs_async._observers import GuardedCallback
from agentjobs_async._polling.decision import CUT, Answer, Done, Failed, decide, moved_to_last_poll
from agentjobs_async._polling.reading import GetJob, OnUpdate, job_or_ref, reader
from agentjobs_async._polling.snapshots import snapshot
from agentjobs_async._polling.status_warnings import StatusWarnings
from agentjobs_async._validation import checked_timeout
from agentjobs_async.errors import TransportError, WaitTimeoutError, with_ref
from agentjobs_async.models import AgentJob, JobRef, JobWithRetryAfter
from agentjobs_async.policy import PollPolicy, checked_policy

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

    Cancelling it leaves at once; the job itself goes on remotely.

    Args:
        job: An `AgentJob` that has ended already comes back without a poll.
        get_job: Reads the job: an async callable that gives an `AgentJob` or the service's document as a mapping. It
            runs in the caller's task and context, and so does `on_update`.
        policy: When to ask again; by default after 3.3 s, and more slowly the longer it takes, up to every 9 s,
            all that give or take a tenth.
        timeout: Seconds above 0; `None` waits for ever.
        on_update: A plain function, called with the job at first sight and at each change, the last included. What
            it raises is logged once.

    Raises:
        InvalidInputError: An argument makes no sense, before any poll; or the wait strategy gave an invalid delay.
        WaitTimeoutError: The time ran out.
        ProtocolError: `policy.max_bad_answers` unusable answers in a row before the first that showed the job.
        NotFoundError: 404 for longer than `policy.not_found_grace`, or 410.
        AuthError, RejectedError, ServerError: An answer after which asking again is no use; once the job was seen,
            only when such answers have lasted for `policy.answer_grace`.
        Exception: What `get_job` raised, unchanged, when `policy.retry` does not accept it.
    """
    wait = _Wait(job, policy=checked_policy(policy), timeout=timeout, on_update=on_update)
    read, clock = reader(get_job), asyncio.get_running_loop().time
    result: AgentJob | Exception | None = wait.begin(clock())
    with CancelScope(wait.deadline) as scope:
        while result is None:
            wait.ask()
            result = wait.take(await read(wait.ref), clock(), cut=scope.ended)
            if scope.ended:  # a get-job callable swallowed the cut, or failed at it
                break
            if result is None:
                await asyncio.sleep(wait.pause)
                if wait.deadline is not None and clock() >= wait.deadline:
                    break  # a poll that begins now would be cut before it reaches the server
    if isinstance(result, AgentJob):
        return result
    raise wait.timed_out(clock()) if result is None or scope.ended else with_ref(result, wait.ref)


class _Wait:
    """What one wait knows, and what it makes of each answer. It is the `History` that the policy decides on.

    Raises:
        InvalidInputError: An argument makes no sense.

    Attributes:
        ref: What is polled.
        deadline: Loop time at which the wait ends; `None` for never.
        pause: Seconds until the next poll.
    """

    __slots__ = (
        "_asking",
        "_job",
        "_last_error",
        "_policy",
        "_timeout",
        "_update",
        "_warnings",
        "bad_answers",
        "deadline",
        "pause",
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
        self.ref = target.ref if isinstance(target, AgentJob) else target
        self._job = target if isinstance(target, AgentJob) else None
        self._last_error: Exception | None = None
        self._asking = False
        self._policy = policy
        self._timeout = checked_timeout(timeout)
        self._update = None if on_update is None else GuardedCallback("on_update", on_update)
        self._warnings = StatusWarnings()
        self.pause = 0.0
        self.polls = 0
        self.shown = 0
        self.bad_answers = 0
        self.refused_since: float | None = None

    def begin(self, now: float) -> AgentJob | None:
        """Begin at the loop time `now`; give the job where it has ended already."""
        self.started = self.seen = now
        self.deadline = None if self._timeout is None else now + self._timeout
        if self._job is not None:
            self._tell(self._job)
        return self._job if self._job is not None and self._job.is_terminal else None

    def ask(self) -> None:
        """Record that a poll starts."""
        self.polls += 1
        self._asking = True

    def take(self, answer: Answer, now: float, *, cut: bool) -> AgentJob | Exception | None:
        """Return what ends the wait; `None` to poll again after the pause. `cut`: at the deadline, amid the poll."""
        self._asking = False
        if isinstance(answer, Exception):
            if not cut or self._last_error is None:  # what a callable makes of its cut tells less than what was before
                self._last_error = answer
        else:
            self._saw(answer.job if isinstance(answer, JobWithRetryAfter) else answer)
        decision = decide(self._policy, self, answer, now)
        if isinstance(decision, Done):
            return decision.job
        if isinstance(decision, Failed):
            return decision.error
        self.seen, self.shown = decision.seen, decision.shown
        self.bad_answers, self.refused_since = decision.bad_answers, decision.refused_since
        self.pause = moved_to_last_poll(decision, now, self.deadline, self._timeout) - now
        return None

    def _saw(self, job: AgentJob) -> None:
        previous, self._job, self._last_error = self._job, snapshot(job), None
        self._warnings.check(job)
        if previous is None or previous != job:
            self._tell(job)

    def _tell(self, job: AgentJob) -> None:
        if self._update is not None:
            self._update(job)

    def timed_out(self, now: float) -> WaitTimeoutError:
        """Return the error of a wait whose time has run out."""
        cause = self._last_error
        if cause is None and self._asking:
            cause = TransportError(CUT)
        return WaitTimeoutError(self.ref, self._job, cause, self.polls, now - self.started)
