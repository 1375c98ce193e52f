"""Hooks of the command line: the jobs that have not ended, what happens to them, and whether the server answers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import evolve

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    CreateFailed,
    Event,
    JobCreated,
    JobPolled,
    JobRef,
    KeyRequested,
    NotFoundError,
    NotSentError,
    PollFailed,
    ProtocolError,
    ResponseError,
    ServerError,
    TransportError,
    WaitEnded,
    WaitStarted,
)
from agentjobs_async._text import one_line
from agentjobs_async.cli._output.outcomes import described
from agentjobs_async.cli._output.results import Change

if TYPE_CHECKING:
    from agentjobs_async.batch import ActiveItem, BatchStats, JournalRow
    from agentjobs_async.cli._input.key_file import KeyFile

_SILENCE_SECONDS = 4.0  # longer than a healthy service takes for its first answer
_FAILURES_SHOWN = 2  # one failed poll alone is often over when it is read


class JobChanges:
    """A hook that reports each create, each change of a status, and each job whose polls fail twice in a row.

    Args:
        on_change: Called with each change, which does not name the item.
    """

    def __init__(self, on_change: Callable[[Change], object]) -> None:
        self._on_change = on_change
        self._jobs: dict[JobRef, AgentJob] = {}
        self._failures: dict[JobRef, int] = {}

    def __call__(self, event: Event, /) -> None:
        """Report a change."""
        match event:
            case JobCreated(job):
                self._changed("created", job)
            case JobPolled(job):
                self._polled(job)
            case PollFailed(ref, Exception() as error):
                self._failures[ref] = self._failures.get(ref, 0) + 1
                if self._failures[ref] == _FAILURES_SHOWN:
                    self._on_change(Change("trouble", ref, error=described(error)))
            case WaitEnded(ref):
                self._failures.pop(ref, None)

    def last_job(self, ref: JobRef) -> AgentJob | None:
        """Return a job as it was last seen; `None` if it was not."""
        return self._jobs.get(ref)

    def is_seen(self, ref: JobRef) -> bool:
        """Return whether its last poll has shown a job: one whose polls fail may have ended."""
        return ref in self._jobs and ref not in self._failures

    def forget(self, ref: JobRef) -> None:
        """Drop what is known of a job that has ended."""
        self._jobs.pop(ref, None)
        self._failures.pop(ref, None)

    def _polled(self, job: AgentJob) -> None:
        self._failures.pop(job.ref, None)
        known = self._jobs.get(job.ref)
        if known is None or known.status != job.status:
            self._changed("status", job)
        else:
            self._jobs[job.ref] = job

    def _changed(self, event: str, job: AgentJob) -> None:
        self._jobs[job.ref] = job
        self._on_change(Change(event, job.ref, job))


class Watched(Protocol):
    """A run whose state can be read: a batch or a worker."""

    def stats(self) -> "BatchStats":
        """Return the counts of the run."""
        ...

    def active(self) -> "Sequence[ActiveItem]":
        """Return the items under way."""
        ...


class ItemChanges:
    """A hook that reports the changes of a batch's jobs, each as it happens; a create once the journal has it.

    An event names the job, and a line names the item: the item under way that has this job. A change of any other job
    is left out.

    Args:
        on_change: Called with each change.
    """

    def __init__(self, on_change: Callable[[Change], object]) -> None:
        self._run: Watched | None = None
        self._on_change = on_change
        self._changes = JobChanges(self._report)
        self._rows: dict[JobRef, JournalRow] = {}
        self._created: dict[JobRef, JobCreated] = {}

    def __call__(self, event: Event, /) -> None:
        """Report a change."""
        match event:
            case JobCreated(job):
                self._created[job.ref] = event
                return
            case WaitStarted(ref):  # a batch waits only for jobs that its journal has
                self._report_create(ref)
        self._changes(event)

    def begin(self, run: Watched) -> None:
        """Report changes of the items of `run` from now on."""
        self._run = run

    def end(self, ref: JobRef, row: "JournalRow | None") -> None:
        """Report the create of a job that was not waited for, since it had ended at once, and forget the job."""
        if row is not None:
            self._rows[ref] = row
            self._report_create(ref)
        self._rows.pop(ref, None)
        self._changes.forget(ref)

    def _report_create(self, ref: JobRef) -> None:
        created = self._created.pop(ref, None)
        if created is not None:
            self._changes(created)

    def _report(self, change: Change) -> None:
        row = self._rows.get(change.ref) or self._find(change)
        if row is not None:
            self._rows[change.ref] = row
            self._on_change(evolve(change, number=row.number, key=row.key, prompt=row.prompt))

    def _find(self, change: Change) -> "JournalRow | None":
        items = () if self._run is None else self._run.active()
        return next((item.row for item in items if item.ref == change.ref), None)


class Polls:
    """A hook that records the number of polls and the pull request of each watched job, and which jobs have ended.

    Attributes:
        trouble: Why the service gives no usable answer: the error of the last poll, where at least two in a row had
            none, of whichever jobs; `None` after any other answer.
    """

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self._failures = 0
        self._polls: dict[JobRef, tuple[int, str | None]] = {}
        self._ended: set[JobRef] = set()

    def __call__(self, event: Event, /) -> None:
        """Record a poll, or drop a job whose wait ended."""
        match event:
            case JobPolled(job, poll_number):
                self._failures, self.trouble = 0, None
                self._polls[job.ref] = poll_number, job.pr_link
            case PollFailed(error=NotSentError() | TransportError() | ServerError() | ProtocolError() as error):
                self._failures += 1
                self.trouble = error if self._failures >= _FAILURES_SHOWN else None
            case PollFailed(error=ResponseError()):
                self._failures, self.trouble = 0, None
            case WaitEnded(ref, job):
                self._polls.pop(ref, None)
                if job is not None:
                    self._ended.add(ref)

    def __getitem__(self, ref: JobRef | None, /) -> tuple[int, str | None]:
        """Return the number of polls of a job and its pull request."""
        return (0, None) if ref is None else self._polls.get(ref, (0, None))

    def not_ended(self, items: "Sequence[ActiveItem]") -> "list[ActiveItem]":
        """Return the items without those whose jobs have ended: their ends may still be on their way to the journal."""
        self._ended &= {item.ref for item in items if item.ref is not None}
        return [item for item in items if item.ref not in self._ended]


class SilenceHook:
    """A hook that calls `notice` every 4 s until it has something to say, or the server has answered anything.

    Creates that cannot be sent are tried again and again, and no other line would show it.

    Args:
        notice: Returns whether it said that the server does not answer: not where nothing was asked of it yet.
    """

    def __init__(self, notice: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._notice = notice
        self._timer = self._loop.call_later(_SILENCE_SECONDS, self._on_silence)

    def _on_silence(self) -> None:
        if not self._notice():
            self._timer = self._loop.call_later(_SILENCE_SECONDS, self._on_silence)

    def __call__(self, event: Event, /) -> None:
        """Record an answer."""
        match event:
            case JobCreated() | JobPolled() | CreateFailed(error=ResponseError()) | PollFailed(error=ResponseError()):
                self._timer.cancel()


class OpenJobs:
    """A hook that knows the jobs that this run created or waited for, until they are seen to end."""

    def __init__(self) -> None:
        self._recorded: dict[JobRef, bool] = {}

    def __call__(self, event: Event, /) -> None:
        """Add a job, or drop it."""
        match event:
            case JobCreated(job):
                self._recorded[job.ref] = False
            case WaitStarted(ref):  # a batch waits only for jobs that its journal has
                self._recorded[ref] = True
            case JobPolled(job) if job.is_terminal:
                self._recorded.pop(job.ref, None)
            case WaitEnded(ref, job, error):
                if (job is not None and job.is_terminal) or isinstance(error, NotFoundError):
                    self._recorded.pop(ref, None)

    @property
    def all(self) -> list[JobRef]:
        """All open jobs."""
        return list(self._recorded)

    @property
    def unrecorded(self) -> list[JobRef]:
        """The open jobs that the journal may not have."""
        return [ref for ref, recorded in self._recorded.items() if not recorded]


class KeyNotices:
    """A hook that shows what came of reading the key file again, one line for each time; not twice the same failure.

    Args:
        file: The key file.
        notice: Shows a line.
    """

    def __init__(self, file: "KeyFile", notice: Callable[[str], object]) -> None:
        self._file = file
        self._notice = notice
        self._last: str | None = None

    def __call__(self, event: Event, /) -> None:
        """Show a line."""
        match event:
            case KeyRequested(True):
                self._show(f"The service refused the API key; {one_line(self._file.path, 200)} has another one now.")
                self._last = None  # each change is one
            case KeyRequested(_, None):
                self._show(f"The service refused the API key; {one_line(self._file.path, 200)} has no other one.")
            case KeyRequested(_, AgentJobsError() as error):
                self._show(f"The service refused the API key; {self._file.defect or described(error)}.")

    def _show(self, words: str) -> None:
        if words != self._last:
            self._last = words
            self._notice(words)
