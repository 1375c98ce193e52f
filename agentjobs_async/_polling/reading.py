"""Reading a job through the caller's `get_job`, and checking what the caller passes as a job."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Protocol, TypeVar

from attrs import evolve

from agentjobs_async._documents import DocumentReader
from agentjobs_async._errors import caused_by
from agentjobs_async._polling.wait_state import Answer
from agentjobs_async._text import shown_name
from agentjobs_async._validation import has_surrogates
from agentjobs_async.errors import AgentJobsError, InvalidInputError, ProtocolError
from agentjobs_async.models import AgentJob, JobRef, Seen, with_label

GetJob = Callable[[JobRef], Awaitable[AgentJob | Mapping[str, object]]]
"""Reads a job: an async callable that returns an `AgentJob`, or the service's document as a mapping."""

OnUpdate = Callable[[AgentJob], object]
"""Called with the job at first sight and at each change, the last included; the returned value is ignored."""

E = TypeVar("E", bound=BaseException)


class Reader(Protocol):
    """Reads the jobs of one session or tracker: the service over HTTP, or the caller's `get_job`.

    Attributes:
        longest_poll: Seconds that a poll may hang at most while other jobs wait for its slot.
    """

    longest_poll: float

    async def answer(self, ref: JobRef, label: str | None) -> Answer:
        """Return the answer to one poll: the job as it is now, with `label` if that is not `None`, or an error.

        It raises only what is no `Exception`, such as its cancellation.
        """
        ...

    async def read(self, ref: JobRef, label: str | None) -> Answer:
        """Return the same to a caller who asks once, and not again soon."""
        ...

    def forget(self, ref: JobRef) -> None:
        """Forget a job that is no longer polled."""
        ...


class GetJobReader:
    """Reads jobs through the caller's `get_job`, which may return anything.

    Args:
        get_job: An async callable; what it returns when it is called must be awaitable.
        documents: Reads what `get_job` returns as a mapping.

    Raises:
        InvalidInputError: `get_job` is not callable.
    """

    __slots__ = ("_documents", "_get_job")

    longest_poll = 30.0

    def __init__(self, get_job: GetJob, documents: DocumentReader) -> None:
        if not callable(get_job):
            raise InvalidInputError(f"get_job must be an async callable, not {type(get_job).__name__}")
        self._get_job = get_job
        self._documents = documents

    async def answer(self, ref: JobRef, label: str | None) -> Answer:
        """Return the job that `get_job` returns, or the error that it raises or that its value means."""
        try:
            found = await self._reading(ref)
        except Exception as error:  # noqa: BLE001 - a value, as of any other reader: the caller judges or raises it
            return without_own_frame(error)
        if isinstance(found, AgentJob):
            answer = self._job_found(found, ref)
        elif isinstance(found, Mapping):
            answer = self._job_described(found, ref)
        else:
            return InvalidInputError(
                f"get_job must return an AgentJob, or the service's document as a mapping, not {type(found).__name__}"
            )
        return with_label(answer, label)

    async def read(self, ref: JobRef, label: str | None) -> Answer:
        """Return what `answer` returns."""
        return await self.answer(ref, label)

    def _reading(self, ref: JobRef) -> Awaitable[object]:
        """Call `get_job`.

        Raises:
            InvalidInputError: What it returned cannot be awaited.
        """
        reading = self._get_job(ref)
        if hasattr(reading, "__await__"):
            return reading
        raise InvalidInputError(f"get_job must be async: it returned {type(reading).__name__}, which cannot be awaited")

    def _job_found(self, found: AgentJob, ref: JobRef) -> Answer:
        """Return a job that the program itself made or read; one of another ref is a mistake in the program."""
        if (found.project_id, found.id) != (ref.project_id, ref.job_id):
            other = shown_name(found.project_id, found.id)
            return InvalidInputError(f"get_job returned another job, {other}: return the one that it was asked for")
        if has_surrogates((found.status, found.source, found.model, found.pr_link)):  # its `raw` is the caller's own
            return _surrogate_error()
        status = self._documents.status(found.status)
        return Seen(found if status == found.status else evolve(found, status=status))

    def _job_described(self, found: Mapping[str, object], ref: JobRef) -> Answer:
        """Return the job of a document, which is judged as a server's."""
        try:
            job = self._documents.job(found, ref.project_id)
        except ProtocolError as error:
            return error.with_traceback(None)
        if has_surrogates(found):
            return _surrogate_error()
        if job.id != ref.job_id:
            return ProtocolError("wrong_id", "get_job returned another job than this one")
        return Seen(job)

    def forget(self, ref: JobRef) -> None:
        """Do nothing: a `get_job` is not told when a job is no longer polled."""


def _surrogate_error() -> ProtocolError:
    """Return the error of a job that no web service could pass on."""
    return ProtocolError("bad_json", "get_job returned a lone surrogate")


def without_own_frame(error: E) -> E:
    """Return an error without the frame in which it was caught: if that lives on, the error would keep all of it."""
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def as_runtime_error(error: BaseException, kind: type[BaseException], message: str) -> BaseException:
    """Return `error`; if it is a `kind`, a RuntimeError caused by it.

    A kind such as StopIteration has a meaning of its own where it is raised, and would not count as an error.
    """
    if not isinstance(error, kind):
        return error
    return caused_by(RuntimeError(message), error)


def job_or_raise(result: AgentJob | Exception, ref: JobRef | None = None) -> AgentJob:
    """Return a job, or raise an error, whose `ref` is set to `ref` if it has none.

    The error's traceback holds the frames of this function and of its callers: none of them may hold the error, which
    would then stay until the garbage collector runs.

    Raises:
        Exception: `result` is an error.
    """
    try:
        if isinstance(result, Exception):
            raise result if ref is None else with_ref(result, ref)
        return result
    finally:
        del result


def job_or_ref(job: object, wanted: str = "an AgentJob or a JobRef") -> AgentJob | JobRef:
    """Return `job` itself.

    Raises:
        InvalidInputError: `job` is neither an `AgentJob` nor a `JobRef`; the message says what is `wanted`.
    """
    if isinstance(job, JobRef | AgentJob):
        return job
    hint = ": await it first" if isinstance(job, Awaitable) else ""
    if isinstance(job, Coroutine):
        job.close()  # else Python warns that it was never awaited
    raise InvalidInputError(f"job must be {wanted}, not {type(job).__name__}{hint}")


def label_of(target: AgentJob | JobRef) -> str | None:
    """Return the label of a job; `None` without one, and for a ref."""
    return target.label if isinstance(target, AgentJob) else None


def ref_of(target: AgentJob | JobRef) -> JobRef:
    """Return the ref of a job, or the ref itself."""
    return target.ref if isinstance(target, AgentJob) else target


def with_ref(error: E, ref: JobRef) -> E:
    """Return `error`; set its `ref` to the job if it is an error of this package that has none yet."""
    if isinstance(error, AgentJobsError) and error.ref is None:
        error.ref = ref
    return error
