"""One wait, in the caller's task: ask, decide, sleep, until the job has ended or the time has run out."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from agentjobs_async._checks import checked_timeout
from agentjobs_async._scope import Scope
from agentjobs_async._wire import job_of
from agentjobs_async.errors import InvalidInputError, ProtocolError, TransportError, WaitTimeoutError
from agentjobs_async.models import AgentJob, JobRef, JobStatus, Paced
from agentjobs_async.policy import Again, Answer, Done, PollPolicy, decide, moved_to_last_poll
from agentjobs_async.telemetry import (
    Contained,
    Hooks,
    JobChanged,
    JobPolled,
    PollFailed,
    WaitEnded,
    warn_of_status,
)

__all__ = ["GetJob", "OnUpdate", "Read", "Wait", "checked_policy", "reader", "wait_for_job"]

GetJob = Callable[[JobRef], Awaitable[AgentJob | Mapping[str, object]]]
OnUpdate = Callable[[AgentJob], object]
Read = Callable[[JobRef], Awaitable[Answer]]

_NO_HOOKS: Final = Hooks()

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
            found = await _awaitable(get_job(ref))
        except Exception as error:  # noqa: BLE001 - a value like any answer; the decision raises it or rides it out
            return error
        return _checked_answer(found, ref)

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


class Wait:
    """One wait for one job.

    Raises:
        InvalidInputError: An argument makes no sense.
    """

    __slots__ = (
        "_asking",
        "_hooks",
        "_last_error",
        "_last_job",
        "_policy",
        "_ref",
        "_timeout",
        "_update",
        "_warned",
        "bad_answers",
        "polls",
        "seen",
        "started",
    )

    def __init__(
        self,
        job: AgentJob | JobRef,
        *,
        policy: PollPolicy,
        timeout: float | None,
        on_update: OnUpdate | None = None,
        hooks: Hooks = _NO_HOOKS,
    ) -> None:
        if not isinstance(job, AgentJob | JobRef):
            raise InvalidInputError(f"job must be an AgentJob or a JobRef, not {type(job).__name__}")
        self._ref = job.ref if isinstance(job, AgentJob) else job
        self._last_job = job if isinstance(job, AgentJob) else None
        self._last_error: Exception | None = None
        self._policy = policy
        self._timeout = checked_timeout(timeout)
        self._update = None if on_update is None else Contained("on_update", on_update)
        self._hooks = hooks
        self.polls = 0
        self.bad_answers = 0
        self._asking = False
        self._warned = False

    async def run(self, read: Read, group: set[Scope] | None = None) -> AgentJob:
        """Wait. While it lasts, its scope is in `group`, for who wants to interrupt it.

        Raises:
            Exception: As `wait_for_job` does, and the reason that the scope was interrupted with.
        """
        self.started = self.seen = asyncio.get_running_loop().time()
        scope = Scope(None if self._timeout is None else self.started + self._timeout, group)
        result: AgentJob | Exception | None = None
        try:
            async with scope:
                result = await self._result(read, scope)
        except asyncio.CancelledError as error:
            self._end(error)
            raise
        except Exception as error:  # noqa: BLE001 - what a strategy of the user's raised ends the wait like an answer
            result = error
        if result is None:
            result = self._cut(scope)
        self._end(result)
        if isinstance(result, AgentJob):
            return result
        raise result

    async def _result(self, read: Read, scope: Scope) -> AgentJob | Exception | None:
        """Give the job or the error that ends the wait; `None` when the scope was cut."""
        if self._last_job is not None:
            self._tell(self._last_job)
            if self._last_job.is_terminal:
                return self._last_job
        loop = asyncio.get_running_loop()
        while not scope.ended:  # a get-job callable may have swallowed the cut
            answer = await self._ask(read)
            now = loop.time()
            decision = decide(self._policy, self, answer, now)
            if not isinstance(decision, Again):
                return decision.job if isinstance(decision, Done) else decision.error
            self.seen, self.bad_answers = decision.seen, decision.bad_answers
            await asyncio.sleep(moved_to_last_poll(decision, now, scope.deadline, self._timeout) - now)
        return None

    async def _ask(self, read: Read) -> Answer:
        self.polls += 1
        self._asking = True
        answer = await read(self._ref)
        self._asking = False
        if isinstance(answer, Exception):
            self._failed(answer)
        else:
            self._saw(answer.job if isinstance(answer, Paced) else answer)
        return answer

    def _saw(self, job: AgentJob) -> None:
        previous, self._last_job, self._last_error = self._last_job, job, None
        if self._hooks:
            self._hooks.emit(JobPolled(job, self.polls))
        if not self._warned and not isinstance(job.status, JobStatus):
            self._warned = True
            warn_of_status(job)
        if previous is None or previous != job:
            self._tell(job)
            if self._hooks and previous is not None:
                self._hooks.emit(JobChanged(job, previous))

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._last_error = error
        if self._hooks:
            self._hooks.emit(PollFailed(self._ref, error, self.polls))

    def _tell(self, job: AgentJob) -> None:
        if self._update is not None:
            self._update(job)

    def _cut(self, scope: Scope) -> Exception:
        if self._asking:
            self._asking = False
            self._failed(TransportError("no answer until the wait ended"))
        if scope.reason is not None:
            return scope.reason
        return WaitTimeoutError(self._ref, self._last_job, self._last_error, self.polls, self._elapsed())

    def _end(self, result: AgentJob | BaseException) -> None:
        if self._asking:
            self._failed(result if isinstance(result, BaseException) else TransportError("cut"))
        if self._hooks:
            job, error = (result, None) if isinstance(result, AgentJob) else (None, result)
            self._hooks.emit(WaitEnded(self._ref, job, error, self.polls, self._elapsed()))

    def _elapsed(self) -> float:
        return asyncio.get_running_loop().time() - self.started
