"""Reading a job through the caller's `get_job`, and checking what the caller passes as a job."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Final, TypeVar

from attrs import evolve

from agentjobs_async._documents import job_of
from agentjobs_async._polling.decision import Answer
from agentjobs_async.errors import AgentJobsError, InvalidInputError, ProtocolError
from agentjobs_async.models import AgentJob, JobRef, JobStatus

__all__ = ["KINDS", "GetJob", "OnUpdate", "Read", "job_or_ref", "no_job", "reader", "ref_of", "with_ref"]

KINDS: Final = (JobRef, AgentJob)
"""The types that every wait accepts as a job."""

GetJob = Callable[[JobRef], Awaitable[AgentJob | Mapping[str, object]]]
"""Reads a job: an async callable that returns an `AgentJob`, or the service's document as a mapping."""

OnUpdate = Callable[[AgentJob], object]
"""Called with the job at first sight and at each change, the last included; the returned value is ignored."""

Read = Callable[[JobRef], Awaitable[Answer]]
"""Reads a job once; an error is returned as a value, not raised."""

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def reader(get_job: GetJob, statuses: Mapping[str, JobStatus] | None = None) -> Read:
    """Return a `Read` over the caller's `get_job`. What it returns or raises becomes a job or an error, as a value.

    `statuses` maps the service's other words to a status.

    Raises:
        InvalidInputError: `get_job` is not callable.
    """
    if not callable(get_job):
        raise InvalidInputError(f"get_job must be an async callable, not {type(get_job).__name__}")
    return partial(_read, get_job, statuses or {})


async def _read(get_job: GetJob, statuses: Mapping[str, JobStatus], ref: JobRef) -> Answer:
    try:
        found = await _awaitable(get_job(ref))
        if isinstance(found, AgentJob) and found.id == ref.job_id and not statuses:
            return found
        return _checked_answer(found, ref, statuses)
    except Exception as error:  # noqa: BLE001 - an answer like any other: `decide` says whether it ends the wait
        return error


def _awaitable(reading: T) -> T:
    if not hasattr(reading, "__await__"):
        raise InvalidInputError(f"get_job must be async: it returned {type(reading).__name__}, which cannot be awaited")
    return reading


def _checked_answer(found: object, ref: JobRef, statuses: Mapping[str, JobStatus]) -> Answer:
    try:
        job = found if isinstance(found, AgentJob) else job_of(found, ref.project_id, statuses)
    except ProtocolError as error:
        return error.with_traceback(None)
    if job.status in statuses:
        job = evolve(job, status=statuses[job.status])
    if job.id != ref.job_id:
        return ProtocolError("wrong_id", "get_job returned another job than this one")
    return job


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
