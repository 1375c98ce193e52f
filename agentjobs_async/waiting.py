"""One wait, in the caller's task: ask, decide, sleep, until the job has ended or the time has run out."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Final, TypeVar

from agentjobs_async._checks import checked_instance, checked_timeout
from agentjobs_async._documents import job_of
from agentjobs_async._scope import Scope
from agentjobs_async.decision import CUT, Answer, Done, Failed, decide, moved_to_last_poll
from agentjobs_async.errors import InvalidInputError, ProtocolError, TransportError, WaitTimeoutError, about
from agentjobs_async.models import AgentJob, JobRef, Paced
from agentjobs_async.policy import PollPolicy
from agentjobs_async.telemetry import Contained, StatusWarnings

__all__ = ["KINDS", "GetJob", "OnUpdate", "Read", "checked_policy", "job_or_ref", "no_job", "reader", "wait_for_job"]

GetJob = Callable[[JobRef], Awaitable[AgentJob | Mapping[str, object]]]
"""Reads a job: gives an `AgentJob`, or the service's document as a mapping."""
OnUpdate = Callable[[AgentJob], object]
"""Is called with the job at first sight and at each change, the last included; what it returns is ignored."""
Read = Callable[[JobRef], Awaitable[Answer]]


T = TypeVar("T")


async def wait_for_job(
    job: AgentJob | JobRef,
    *,
    get_job: GetJob,
    policy: PollPolicy | None = None,
    timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature; the deadline also paces the last poll
    on_update: OnUpdate | None = None,
) -> AgentJob:
    """Give the job once it is completed, archived or failed. `failed` is a result, not an exception.

    Cancelling it leaves at once; the job itself goes on remotely.

    Args:
        job: An `AgentJob` that has ended already comes back without a poll.
        get_job: Reads the job: an async callable that gives an `AgentJob` or the service's document as a mapping.
        policy: When to ask again; by default after 3.3 s, and more slowly the longer it takes, up to every 9 s,
            all that give or take a tenth.
        timeout: Seconds above 0; `None` waits for ever.
        on_update: A plain function, called with the job at first sight and at each change, the last included. What
            it raises is logged once.

    Raises:
        InvalidInputError: An argument makes no sense, before any poll; or the wait strategy gave an invalid delay.
        WaitTimeoutError: The time ran out.
        ProtocolError: `policy.max_bad_answers` unusable answers in a row.
        NotFoundError: 404 for longer than `policy.not_found_grace`, or 410.
        AuthError, RejectedError, ServerError: An answer after which asking again is no use.
        Exception: What `get_job` raised, unchanged, when `policy.retry` does not accept it.
    """
    wait = _Wait(job, policy=checked_policy(policy), timeout=timeout, on_update=on_update)
    read, clock = reader(get_job), asyncio.get_running_loop().time
    result: AgentJob | Exception | None = wait.begin(clock())
    with Scope(wait.deadline) as scope:
        while result is None:
            wait.ask()
            result = wait.take(await read(wait.ref), clock())
            if scope.ended:  # a get-job callable swallowed the cut, or failed at it
                break
            if result is None:
                await asyncio.sleep(wait.pause)
                if wait.deadline is not None and clock() >= wait.deadline:
                    break  # a poll that begins now would be cut before it reaches the server
    if isinstance(result, AgentJob):
        return result
    raise wait.timed_out(clock()) if result is None or scope.ended else about(result, wait.ref)


def checked_policy(policy: object) -> PollPolicy:
    """Give `policy`, or the default for `None`.

    Raises:
        InvalidInputError: It is no `PollPolicy`.
    """
    return checked_instance("policy", policy, PollPolicy) or _DEFAULT_POLICY


_DEFAULT_POLICY: Final = PollPolicy()


def reader(get_job: GetJob) -> Read:
    """Make of a user's get-job callable one that gives its exceptions as values, and jobs only.

    Raises:
        InvalidInputError: It is not callable.
    """
    if not callable(get_job):
        raise InvalidInputError(f"get_job must be an async callable, not {type(get_job).__name__}")

    return partial(_read, get_job)


async def _read(get_job: GetJob, ref: JobRef) -> Answer:
    try:
        found = await _awaitable(get_job(ref))
        return found if isinstance(found, AgentJob) and found.id == ref.job_id else _checked_answer(found, ref)
    except Exception as error:  # noqa: BLE001 - a value like any answer; the decision raises it or rides it out
        return error


def _awaitable(reading: T) -> T:
    if not hasattr(reading, "__await__"):
        raise InvalidInputError(f"get_job must be async: it gave {type(reading).__name__}, nothing to await")
    return reading


def _checked_answer(found: object, ref: JobRef) -> Answer:
    try:
        job = found if isinstance(found, AgentJob) else job_of(found, ref.project_id)
    except ProtocolError as error:
        return error.with_traceback(None)
    if job.id != ref.job_id:
        return ProtocolError("wrong_id", "get_job gave another job than this one")
    return job


def job_or_ref(job: object) -> AgentJob | JobRef:
    """Give `job` itself, where it is one.

    Raises:
        InvalidInputError: It is neither an `AgentJob` nor a `JobRef`.
    """
    if not isinstance(job, KINDS):
        raise no_job(job, "an AgentJob or a JobRef")
    return job


def no_job(value: object, wanted: str) -> InvalidInputError:
    """Give the error that refuses `value`, which is none of what is `wanted`."""
    hint = ": await it first" if isinstance(value, Awaitable) else ""
    if isinstance(value, Coroutine):
        value.close()  # nobody will await it any more
    return InvalidInputError(f"job must be {wanted}, not {type(value).__name__}{hint}")


KINDS: Final = (JobRef, AgentJob)


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
        "seen",
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
        self._update = None if on_update is None else Contained("on_update", on_update)
        self._warnings = StatusWarnings()
        self.pause = 0.0
        self.polls = 0
        self.bad_answers = 0

    def begin(self, now: float) -> AgentJob | None:
        """Begin at the loop time `now`; give the job where it has ended already."""
        self.started = self.seen = now
        self.deadline = None if self._timeout is None else now + self._timeout
        if self._job is not None:
            self._tell(self._job)
        return self._job if self._job is not None and self._job.is_terminal else None

    def ask(self) -> None:
        """Take notice that a poll goes out."""
        self.polls += 1
        self._asking = True

    def take(self, answer: Answer, now: float) -> AgentJob | Exception | None:
        """Give what ends the wait; `None` to poll again after the pause."""
        self._asking = False
        if isinstance(answer, Exception):
            self._last_error = answer
        else:
            self._saw(answer.job if isinstance(answer, Paced) else answer)
        decision = decide(self._policy, self, answer, now)
        if isinstance(decision, Done):
            return decision.job
        if isinstance(decision, Failed):
            return decision.error
        self.seen, self.bad_answers = decision.seen, decision.bad_answers
        self.pause = moved_to_last_poll(decision, now, self.deadline, self._timeout) - now
        return None

    def _saw(self, job: AgentJob) -> None:
        previous, self._job, self._last_error = self._job, job, None
        self._warnings.check(job)
        if previous is None or previous != job:
            self._tell(job)

    def _tell(self, job: AgentJob) -> None:
        if self._update is not None:
            self._update(job)

    def timed_out(self, now: float) -> WaitTimeoutError:
        """Give the error of a wait whose time has run out."""
        error = TransportError(CUT) if self._asking else self._last_error
        return WaitTimeoutError(self.ref, self._job, error, self.polls, now - self.started)
