"""For whom a server's Retry-After holds: one job, one project, or all once two of them have been asked to wait."""

from collections.abc import Hashable
from math import inf
from typing import Final

from agentjobs_async._polling.pace import ROUNDING_SECONDS
from agentjobs_async.models import JobRef

__all__ = ["Pauses", "RememberedPauses"]

_LIMITED: Final = 429
_UNAVAILABLE: Final = 503
_MAX_RELEASE_SECONDS: Final = 10.0  # no job waits for much longer than the server asked for
_BACKLOG_SECONDS: Final = 1.0  # a poll that comes up this soon had been waiting for its turn: no spacing is known of it
_GOLDEN_RATIO: Final = 0.6180339887498949  # its multiples, modulo 1, are spread evenly however many there are
_MAX_ENDED_PROJECTS: Final = 64  # from here on, projects whose pause is over are swept away
_MAX_REMEMBERED: Final = 1024  # jobs, so that memory is bounded; the pause of any further job is forgotten


class _Pause:
    """One project's pause, from `since` to `until` (loop times).

    Attributes:
        delay: Seconds after which the answered job is polled again: an estimate of the usual delay of the other jobs.
        released: The number of polls of the backlog that it has held back so far.
    """

    __slots__ = ("delay", "released", "since", "until")

    def __init__(self, since: float, until: float, delay: float) -> None:
        self.since = since
        self.until = until
        self.delay = delay
        self.released = 0

    def release(self, now: float, *, first: bool) -> float:
        """Return the loop time at which a poll that is due at `now` may be sent; `first`: it is the first of its job.

        After the pause, polls keep the spacing with which they came due during it. A pause that was shorter than the
        usual delay held back only some of the jobs, and the others come due after it: then the spacing is stretched
        over that delay. Polls that had been due before the pause, and first ones, have no such spacing: they are spread
        evenly.
        """
        duration, into = self.until - self.since, now - self.since
        at_most = min(max(duration, self.delay), _MAX_RELEASE_SECONDS)
        if first or into <= min(_BACKLOG_SECONDS, duration / 10):
            part = self.released * _GOLDEN_RATIO % 1
            self.released += 1
            return self.until + part * at_most
        return self.until + into * max(1.0, at_most / duration)


class Pauses:
    """The pauses that servers asked for with 429 and 503: each is for its project or job, and for all once two agree.

    Attributes:
        projects: The projects that are paused, and some whose pause is over.
        suspected: Whether a pause was asked for since the last good answer.
    """

    __slots__ = ("_first", "_for_all", "projects", "suspected")

    def __init__(self) -> None:
        self.projects: dict[str, _Pause] = {}
        self.suspected = False
        self._first: dict[int, Hashable] = {}
        self._for_all: set[int] = set()

    def record(self, ref: JobRef, status: int, until: float, due: float, now: float, *, overlaps: bool) -> bool:
        """Record an answer about the job `ref` that asked for no poll before `until`; return whether that is for all.

        The job itself is polled again at `due`. The pause is for all once two different jobs (503) or projects (429)
        have been answered so with no good answer between. `overlaps`: a good answer came while this poll was in flight.
        The order of the two says nothing, so that this answer is not one of the two.
        """
        if status == _LIMITED:
            self._pause(ref.project_id, until, due - now, now)
            return not overlaps and self._agree(status, ref.project_id)
        return status == _UNAVAILABLE and not overlaps and self._agree(status, ref)

    def _agree(self, status: int, source: Hashable) -> bool:
        self.suspected = True
        if self._first.setdefault(status, source) != source:
            self._for_all.add(status)
        return status in self._for_all

    def answered(self) -> None:
        """Record a good answer: the pauses asked for before it are not for all."""
        self.suspected = False
        self._first.clear()
        self._for_all.clear()

    def _pause(self, project_id: str, until: float, delay: float, now: float) -> None:
        pause = self.projects.get(project_id)
        if pause is not None and pause.until > now:
            pause.until = max(pause.until, until)
            return
        if len(self.projects) >= _MAX_ENDED_PROJECTS:
            self.projects = {name: pause for name, pause in self.projects.items() if pause.until > now}
        self.projects[project_id] = _Pause(now, until, delay)

    def until(self, project_id: str, now: float) -> float:
        """Return the loop time until which the project is paused; minus infinity where it is not."""
        pause = self.projects.get(project_id)
        if pause is None:
            return -inf
        if pause.until > now + ROUNDING_SECONDS:
            return pause.until
        del self.projects[project_id]
        return -inf

    def release(self, project_id: str, now: float, *, first: bool) -> float:
        """Return when a poll of a paused project that is due at `now` may be sent; `first`: the first of its job."""
        return self.projects[project_id].release(now, first=first)


class RememberedPauses:
    """The `not_before` of jobs that no caller waits for any more: the next wait for one of them keeps to it."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[JobRef, float] = {}

    def remember(self, ref: JobRef, until: float, now: float) -> None:
        """Remember that the job is not to be polled before `until`, which is after `now`."""
        if len(self._until) >= _MAX_REMEMBERED:
            self._until = {other: time for other, time in self._until.items() if time > now}
        if len(self._until) < _MAX_REMEMBERED:
            self._until[ref] = until

    def take(self, ref: JobRef, now: float) -> float:
        """Forget the job, and return the time from which it may be polled: `now`, or later."""
        return max(now, self._until.pop(ref, now)) if self._until else now
