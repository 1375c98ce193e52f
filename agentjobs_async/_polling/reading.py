"""How one read of a job is asked for, and what a caller may give as a job."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Final, TypeVar

from attrs import evolve

from agentjobs_async._documents import job_of
from agentjobs_async._polling.decision import Answer
from agentjobs_async.errors import InvalidInputError, ProtocolError
from agentjobs_async.models import AgentJob, JobRef, JobStatus

__all__ = ["KINDS", "GetJob", "OnUpdate", "Read", "job_or_ref", "no_job", "reader"]

GetJob = Callable[[JobRef], Awaitable[AgentJob | Mapping[str, object]]]
"""Reads a job: gives an `AgentJob`, or the service's document as a mapping."""


OnUpdate = Callable[[AgentJob], object]
"""Is called with the job at first sight and at each change, the last included; what it returns is ignored."""


Read = Callable[[JobRef], Awaitable[Answer]]


T = TypeVar("T")


def reader(get_job: GetJob, statuses: Mapping[str, JobStatus] | None = None) -> Read:
    """Make of a user's get-job callable one that gives its exceptions as values, and jobs only.

    `statuses` says what other words than the four mean as a status.

    Raises:
        InvalidInputError: It is not callable.
    """
    if not callable(get_job):
        raise InvalidInputError(f"get_job must be an async callable, not {type(get_job).__name__}")

    return partial(_read, get_job, statuses or {})


async def _read(get_job: GetJob, statuses: Mapping[str, JobStatus], ref: JobRef) -> Answer:
    try:
        return _checked_answer(await _awaitable(get_job(ref)), ref, statuses)
    except Exception as error:  # noqa: BLE001 - a value like any answer; the decision raises it or rides it out
        return error


def _awaitable(reading: T) -> T:
    if not hasattr(reading, "__await__"):
        raise InvalidInputError(f"get_job must be async: it gave {type(reading).__name__}, nothing to await")
    return reading


def _checked_answer(found: object, ref: JobRef, statuses: Mapping[str, JobStatus]) -> Answer:
    try:
        job = found if isinstance(found, AgentJob) else job_of(found, ref.project_id, statuses)
    except ProtocolError as error:
        return error.with_traceback(None)
    if job.status in statuses:
        job = evolve(job, status=statuses[job.status])
    if job.id != ref.job_id:
        return ProtocolError("wrong_id", "get_job gave another job than this one")
    return job


def job_or_ref(job: object) -> AgentJob | JobRef:
    """Return `job` itself, where it is one.

    Raises:
        InvalidInputError: It is neither an `AgentJob` nor a `JobRef`.
    """
    if not isinstance(job, KINDS):
        raise no_job(job, "an AgentJob or a JobRef")
    return job


def no_job(value: object, wanted: str) -> InvalidInputError:
    """Return the error that refuses `value`, which is none of what is `wanted`."""
    hint = ": await it first" if isinstance(value, Awaitable) else ""
    if isinstance(value, Coroutine):
        value.close()  # nobody will await it any more
    return InvalidInputError(f"job must be {wanted}, not {type(value).__name__}{hint}")


KINDS: Final = (JobRef, AgentJob)
