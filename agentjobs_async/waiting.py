"""One wait, in the caller's task: ask, decide, sleep, until the job has ended or the time has run out."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from agentjobs_async._checks import checked_timeout
from agentjobs_async._documents import job_of
from agentjobs_async._scope import Scope
from agentjobs_async.decision import Answer, Done, Failed, decide, moved_to_last_poll
from agentjobs_async.errors import InvalidInputError, ProtocolError, TransportError, WaitTimeoutError
from agentjobs_async.models import AgentJob, JobRef, Paced
from agentjobs_async.policy import PollPolicy
from agentjobs_async.telemetry import Contained, StatusWarnings

__all__ = ["GetJob", "OnUpdate", "Read", "Wait", "checked_policy", "job_or_ref", "reader", "wait_for_job"]

GetJob = Callable[[JobRef], Awaitable[AgentJob | Mapping[str, object]]]
OnUpdate = Callable[[AgentJob], object]
Read = Callable[[JobRef], Awaitable[Answer]]

_CUT: Final = "no answer until the wait ended"

T = TypeVar("T")


async def wait_for_job(
    job: AgentJob | JobRef,
    *,
    get_job: GetJob,
    policy: PollPolicy | None = None,
    timeout: float | None = 1800.0,  # noqa: ASYNC109 - the settled face; the deadline also paces the last poll
    on_update: OnUpdate | None = None,
) -> AgentJob:
    """Give the job once it is completed, archived or failed. `failed` is a result, not an exception.

    Cancelling it leaves at once; the job itself goes on remotely.

    Args:
        job: An `AgentJob` that has ended already comes back without a poll.
        get_job: Reads the job: an async callable that gives an `AgentJob` or the service's document as a mapping.
        policy: When to ask again; by default more slowly the longer it takes, up to every 16 s.
        timeout: Seconds above 0; `None` waits for ever.
        on_update: A plain function, called with the job at first sight and at each change, the last included. What
            it raises is logged once.

    Raises:
        InvalidInputError: An argument makes no sense, before any poll; or the wait strategy gave no delay.
        WaitTimeoutError: The time ran out.
        ProtocolError: `policy.max_bad_answers` unusable answers in a row.
        NotFoundError: 404 for longer than `policy.not_found_grace`, or 410.
        AuthError, RejectedError, ServerError: An answer after which asking again is no use.
        Exception: What `get_job` raised, unchanged, when `policy.retry` does not accept it.
    """
    wait = Wait(job, policy=checked_policy(policy), timeout=timeout, on_update=on_update)
    return await wait.run(reader(get_job))


def checked_policy(policy: object) -> PollPolicy:
    """Give `policy`, or the default for `None`.

    Raises:
        InvalidInputError: It is no `PollPolicy`.
    """
    if policy is None:
        return _DEFAULT_POLICY
    if not isinstance(policy, PollPolicy):
        raise InvalidInputError(f"policy must be a PollPolicy, not {type(policy).__name__}")
    return policy


_DEFAULT_POLICY: Final = PollPolicy()


def reader(get_job: GetJob) -> Read:
    """Make of a user's get-job callable one that gives its exceptions as values, and jobs only.

    Raises:
        InvalidInputError: It is not callable.
    """
    if not callable(get_job):
        raise InvalidInputError(f"get_job must be an async callable, not {type(get_job).__name__}")

    async def read(ref: JobRef) -> Answer:
        try:
            return _checked_answer(await _awaitable(get_job(ref)), ref)
        except Exception as error:  # noqa: BLE001 - a value like any answer; the decision raises it or rides it out
            return error

    return read


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
        return ProtocolError("wrong_id", f"get_job gave another job than {ref.to_token()}")
    return job


def job_or_ref(job: object) -> AgentJob | JobRef:
    """Give `job` itself, where it is one.

    Raises:
        InvalidInputError: It is neither an `AgentJob` nor a `JobRef`.
    """
    if not isinstance(job, AgentJob | JobRef):
        raise InvalidInputError(f"job must be an AgentJob or a JobRef, not {type(job).__name__}")
    return job


class Wait:
    """One wait for one job. It is the `History` that the policy decides on.

    Raises:
        InvalidInputError: An argument makes no sense.
    """

    __slots__ = (
        "_job",
        "_last_error",
        "_policy",
        "_ref",
        "_timeout",
        "_update",
        "_warnings",
        "bad_answers",
        "polls",
        "seen",
        "started",
    )

    def __init__(
        self, job: AgentJob | JobRef, *, policy: PollPolicy, timeout: float | None, on_update: OnUpdate | None
    ) -> None:
        target = job_or_ref(job)
        self._ref = target.ref if isinstance(target, AgentJob) else target
        self._job = target if isinstance(target, AgentJob) else None
        self._last_error: Exception | None = None
        self._policy = policy
        self._timeout = checked_timeout(timeout)
        self._update = None if on_update is None else Contained("on_update", on_update)
        self._warnings = StatusWarnings()
        self.polls = 0
        self.bad_answers = 0

    async def run(self, read: Read) -> AgentJob:
        """Wait.

        Raises:
            Exception: As `wait_for_job` does.
        """
        self.started = self.seen = asyncio.get_running_loop().time()
        scope = Scope(None if self._timeout is None else self.started + self._timeout)
        result: AgentJob | Exception | None = None
        async with scope:
            result = await self._result(read, scope)
        if isinstance(result, AgentJob):
            return result
        if result is None:
            elapsed = asyncio.get_running_loop().time() - self.started
            result = WaitTimeoutError(self._ref, self._job, self._last_error, self.polls, elapsed)
        raise result

    async def _result(self, read: Read, scope: Scope) -> AgentJob | Exception | None:
        """Give the job or the error that ends the wait; `None` when the scope was cut."""
        if self._job is not None:
            self._tell(self._job)
            if self._job.is_terminal:
                return self._job
        clock = asyncio.get_running_loop().time
        while True:
            answer = await self._ask(read)
            now = clock()
            decision = decide(self._policy, self, answer, now)
            if isinstance(decision, Done):
                return decision.job
            if scope.ended:  # a get-job callable swallowed the cut, or failed at it
                return None
            if isinstance(decision, Failed):
                return decision.error
            self.seen, self.bad_answers = decision.seen, decision.bad_answers
            await asyncio.sleep(moved_to_last_poll(decision, now, scope.deadline, self._timeout) - now)

    async def _ask(self, read: Read) -> Answer:
        self.polls += 1
        self._last_error = TransportError(_CUT)
        answer = await read(self._ref)
        if isinstance(answer, Exception):
            self._last_error = answer
            return answer
        previous, self._job = self._job, answer.job if isinstance(answer, Paced) else answer
        self._last_error = None
        self._warnings.check(self._job)
        if previous is None or previous != self._job:
            self._tell(self._job)
        return answer

    def _tell(self, job: AgentJob) -> None:
        if self._update is not None:
            self._update(job)
