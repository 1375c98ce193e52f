"""What happens to jobs while they are waited for: events of the spans of their waits."""

import time
from collections.abc import Iterator
from typing import Final

from attrs import define, field, frozen

from agentjobs_async._text import shown_status
from agentjobs_async.errors import NotSentError, RateLimitedError, TransportError
from agentjobs_async.models import JobRef
from agentjobs_async.telemetry.attributes import Attributes, error_attributes
from agentjobs_async.telemetry.events import JobChanged, JobPolled, PollFailed, WaitEnded, WaitStarted

__all__ = ["Note", "WaitNotes"]

_MAX_NOTES: Final = 100  # of one job: the oldest are dropped


@frozen
class Note:
    """Something that happened to a job at `time_ns`, in nanoseconds since 1970."""

    time_ns: int
    name: str
    attributes: Attributes


@define(eq=False)
class _WatchedJob:
    """What is kept of a job that is waited for.

    Attributes:
        waits: How many waits for it are open.
        notes: What happened to it since the first of them began.
        trouble: The name of the last trouble.
        poll_number: The last poll that met it. The trouble is over if that was not the poll before this one.
    """

    waits: int = 0
    notes: list[Note] = field(factory=list)
    trouble: str | None = None
    poll_number: int = 0


class WaitNotes:
    """The notes on all jobs that are waited for: changes of status, and the beginning of each outage or rate limit.

    Args:
        polls: Whether each poll is a note, too.
    """

    def __init__(self, *, polls: bool) -> None:
        self._polls = polls
        self._watched: dict[tuple[int, JobRef], _WatchedJob] = {}

    def begin(self, event: WaitStarted) -> None:
        """Record that a wait for a job began."""
        self._watched.setdefault((event.source, event.ref), _WatchedJob()).waits += 1

    def end(self, event: WaitEnded, start_ns: int) -> Iterator[Note]:
        """Return the notes since `start_ns`, at which the wait began that has ended now."""
        key = event.source, event.ref
        watched = self._watched.get(key)
        if watched is None:
            return iter(())  # the hook was not there when the wait began, or failed then
        watched.waits -= 1
        if not watched.waits:
            del self._watched[key]
        return (note for note in watched.notes if note.time_ns >= start_ns)

    def on_change(self, event: JobChanged) -> None:
        """Note a change of status."""
        watched = self._watched.get((event.source, event.job.ref))
        if watched is not None and event.job.status != event.previous.status:
            _note(watched, "status", {"agentjobs.job.status": shown_status(event.job.status)})

    def on_poll(self, event: JobPolled | PollFailed) -> None:
        """Note a poll, if asked for, and trouble that begins with it. Polls that show the job may be left out."""
        if isinstance(event, JobPolled) and not self._polls:
            return
        ref, error = (event.job.ref, None) if isinstance(event, JobPolled) else (event.ref, event.error)
        watched = self._watched.get((event.source, ref))
        if watched is None:
            return  # the last wait has ended, and its poll was cut
        if self._polls:
            _note(watched, "poll", {"agentjobs.poll.duration": event.elapsed, **error_attributes(error)})
        trouble = _trouble(error)
        if trouble is not None:
            if (trouble, event.poll_number) != (watched.trouble, watched.poll_number + 1):
                _note(watched, trouble, error_attributes(error))
            watched.trouble, watched.poll_number = trouble, event.poll_number


def _note(watched: _WatchedJob, name: str, attributes: Attributes) -> None:
    watched.notes.append(Note(time.time_ns(), name, attributes))
    del watched.notes[:-_MAX_NOTES]


def _trouble(error: BaseException | None) -> str | None:
    """Return the name of what keeps a poll from its answer; `None` if nothing does, or the poll was cut."""
    if isinstance(error, RateLimitedError):
        return "rate_limited"
    if isinstance(error, NotSentError | TransportError):
        return "unreachable"
    return "failing" if isinstance(error, Exception) else None
