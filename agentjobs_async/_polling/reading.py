"""Reading a job through the caller's `get_job`, and checking what the caller passes as a job."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from inspect import CO_COROUTINE
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar

from attrs import evolve, frozen

from agentjobs_async._documents import job_of
from agentjobs_async._polling.wait_state import Answer
from agentjobs_async._validation import has_surrogates
from agentjobs_async.errors import AgentJobsError, InvalidInputError, ProtocolError
from agentjobs_async.models import AgentJob, JobRef, JobStatus, ReadJob

__all__ = [
    "KINDS",
    "GetJob",
    "OnUpdate",
    "Reader",
    "answer_of",
    "as_runtime_error",
    "job_or_raise",
    "job_or_ref",
    "no_job",
    "poll_of",
    "reader",
    "ref_of",
    "with_ref",
    "without_own_frame",
]

KINDS: Final = (JobRef, AgentJob)
"""The types that every wait accepts as a job."""

GetJob = Callable[[JobRef], Awaitable[AgentJob | Mapping[str, object]]]
"""Reads a job: an async callable that returns an `AgentJob`, or the service's document as a mapping."""

OnUpdate = Callable[[AgentJob], object]
"""Called with the job at first sight and at each change, the last included; the returned value is ignored."""

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


def _forget_nothing(_: JobRef) -> None:
    """Do nothing: a caller's `get_job` is not told when a job is no longer polled."""


@frozen
class Reader:
    """How the jobs of one session or tracker are read.

    Attributes:
        read: Reads a job once; an error is returned as a value, not raised.
        poll: Reads a job that is polled. It may raise anything, and return anything. Workers await it themselves: a
            coroutine between would cost a tenth of a poll in memory (`benchmarks/bench_waits.py`).
        check: Returns the answer for a ref that a value returned by `poll` stands for.
        forget: Called with the ref of a job that is no longer polled.
    """

    read: Callable[[JobRef], Awaitable[Answer]]
    poll: Callable[[JobRef], Awaitable[Any]]
    check: Callable[[Any, JobRef], Answer]
    forget: Callable[[JobRef], None] = _forget_nothing


def reader(get_job: GetJob, statuses: Mapping[str, JobStatus] | None = None) -> Reader:
    """Return a `Reader` over the caller's `get_job`; `statuses` maps the service's other words to a status.

    Raises:
        InvalidInputError: `get_job` is not callable.
    """
    check = partial(answer_of, statuses=statuses) if statuses else answer_of
    poll = poll_of(get_job)
    return Reader(partial(_read, poll, check), poll, check)


def poll_of(get_job: GetJob) -> GetJob:
    """Return `get_job` itself, or, if it may return anything, a callable that checks what it returns.

    Raises:
        InvalidInputError: `get_job` is not callable.
    """
    if not callable(get_job):
        raise InvalidInputError(f"get_job must be an async callable, not {type(get_job).__name__}")
    return get_job if _is_coroutine_function(get_job) else partial(_checked, get_job)


def _is_coroutine_function(get_job: GetJob) -> bool:
    """Return whether `async def` made `get_job`: what is only marked as a coroutine function may return anything."""
    function = get_job.__func__ if type(get_job) is MethodType else get_job
    return type(function) is FunctionType and bool(function.__code__.co_flags & CO_COROUTINE)


def _checked(get_job: GetJob, ref: JobRef) -> Awaitable[Any]:
    """Return what a call of `get_job` returned.

    Raises:
        InvalidInputError: It cannot be awaited.
    """
    reading = get_job(ref)
    if hasattr(reading, "__await__"):
        return reading
    raise InvalidInputError(f"get_job must be async: it returned {type(reading).__name__}, which cannot be awaited")


async def _read(
    poll: Callable[[JobRef], Awaitable[Any]], check: Callable[[Any, JobRef], Answer], ref: JobRef
) -> Answer:
    try:
        return check(await poll(ref), ref)
    except Exception as error:  # noqa: BLE001 - an answer like any other: `decide` says whether it ends the wait
        return error


def answer_of(found: object, ref: JobRef, statuses: Mapping[str, JobStatus] | None = None) -> Answer:
    """Return the job that the caller's `get_job` returned for `ref`, or the error that its value means.

    `statuses` maps the service's other words to a status.
    """
    if isinstance(found, AgentJob):
        job = evolve(found, status=statuses[found.status]) if statuses and found.status in statuses else found
        texts: object = (job.id, job.status, job.source, job.model, job.pr_link)  # its `raw` is the caller's own
    else:
        texts = found
        try:
            job = job_of(found, ref.project_id, statuses or {})
        except ProtocolError as error:
            return error.with_traceback(None)
    if has_surrogates(texts):  # no web service could pass the job on
        return ProtocolError("bad_json", "get_job returned a lone surrogate")
    if job.id != ref.job_id:
        return ProtocolError("wrong_id", "get_job returned another job than this one")
    return job


def without_own_frame(error: E) -> E:
    """Return an error without the frame in which it was caught: if that lives on, the error would keep all of it."""
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def as_runtime_error(error: BaseException, kind: type[BaseException], message: str) -> BaseException:
    """Return `error`; if it is a `kind`, a RuntimeError caused by it.

    A kind such as StopIteration has a meaning of its own where it is raised, and would not be taken for an error.
    """
    if not isinstance(error, kind):
        return error
    replacement = RuntimeError(message)
    replacement.__cause__ = error
    return replacement


def job_or_raise(answer: Answer, ref: JobRef | None = None) -> AgentJob:
    """Return the job of an answer, or raise its error, whose `ref` is set to `ref` if it has none.

    The error's traceback holds the frames of this function and of its callers: none of them may hold the error, which
    would then stay until the garbage collector runs.

    Raises:
        Exception: `answer` is an error.
    """
    try:
        if isinstance(answer, Exception):
            raise answer if ref is None else with_ref(answer, ref)
        return answer.job if isinstance(answer, ReadJob) else answer
    finally:
        del answer


def job_or_ref(job: object) -> AgentJob | JobRef:
    """Return `job` itself.

    Raises:
        InvalidInputError: `job` is neither an `AgentJob` nor a `JobRef`.
    """
    if not isinstance(job, KINDS):
        raise no_job(job, "an AgentJob or a JobRef")
    return job


def ref_of(target: AgentJob | JobRef) -> JobRef:
    """Return the ref of a job, or the ref itself."""
    return target.ref if isinstance(target, AgentJob) else target


def no_job(value: object, wanted: str) -> InvalidInputError:
    """Return the error for a `value` that was passed as a job and is not `wanted`."""
    hint = ": await it first" if isinstance(value, Awaitable) else ""
    if isinstance(value, Coroutine):
        value.close()  # else Python warns that it was never awaited
    return InvalidInputError(f"job must be {wanted}, not {type(value).__name__}{hint}")


def with_ref(error: E, ref: JobRef) -> E:
    """Return `error`; set its `ref` to the job if it is an error of this package that has none yet."""
    if isinstance(error, AgentJobsError) and error.ref is None:
        error.ref = ref
    return error
