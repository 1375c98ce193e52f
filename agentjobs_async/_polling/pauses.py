"""For whom a server's Retry-After holds: one job, one project, or, once two of them have been told so, all."""

from collections.abc import Hashable
from math import inf
from typing import Final

from agentjobs_async._polling.clock import ROUNDING
from agentjobs_async.models import JobRef

__all__ = ["Pauses"]

_LIMITED: Final = 429
_UNAVAILABLE: Final = 503
_LONGEST_RELEASE_SECONDS: Final = 10.0  # nothing waits for much longer than the server wishes
_BACKLOG_SECONDS: Final = 1.0  # what comes out this soon had been waiting for its turn: it has no rhythm of its own
_GOLDEN_RATIO: Final = 0.6180339887498949  # its multiples, modulo 1, are spread evenly however many there are
_MANY_PROJECTS: Final = 64  # from here on, projects whose pause is over are swept away


class _Pause:
    """One project's pause, from `since` to `until` (loop times).

    Attributes:
        delay: Seconds after which the answered job is polled again: what the others' usual delay may be.
        released: How many polls of the backlog it has held back.
    """

    __slots__ = ("delay", "released", "since", "until")

    def __init__(self, since: float, until: float, delay: float) -> None:
        self.since = since
        self.until = until
        self.delay = delay
        self.released = 0

    def release(self, now: float, *, first: bool) -> float:
        """Return when a poll that is due at `now` may go instead; `first`: it is the first of its job.

        After the pause the polls come in the rhythm in which they came due during it. Where it is shorter than their
        usual delay, others come due after it that it did not shift: then over that delay. Those that had been due
        before, and first ones, have no rhythm and are spread evenly.
        """
        lasts, into = self.until - self.since, now - self.since
        at_most = min(max(lasts, self.delay), _LONGEST_RELEASE_SECONDS)
        if first or into <= min(_BACKLOG_SECONDS, lasts / 10):
            part = self.released * _GOLDEN_RATIO % 1
            self.released += 1
            return self.until + part * at_most
        return self.until + into * max(1.0, at_most / lasts)


class Pauses:
    """What servers wished with 429 and 503: each holds for its project or job, and for all once two agree.

    Attributes:
        projects: The projects that are paused, or were.
        suspected: Whether a wish has been heard since the last good answer.
    """

    __slots__ = ("_first", "_for_all", "projects", "suspected")

    def __init__(self) -> None:
        self.projects: dict[str, _Pause] = {}
        self.suspected = False
        self._first: dict[int, Hashable] = {}
        self._for_all: set[int] = set()

    def hear(self, ref: JobRef, status: int, until: float, due: float, now: float) -> bool:
        """Record that an answer about the job `ref` wished no poll before `until`; return whether it holds for all.

        The job itself is polled again at `due`. The wish holds for all once two different jobs (503) or projects (429)
        have been answered so with no good answer between.
        """
        if status == _LIMITED:
            self._pause(ref.project_id, until, due - now, now)
            return self._agree(status, ref.project_id)
        return status == _UNAVAILABLE and self._agree(status, ref)

    def _agree(self, status: int, source: Hashable) -> bool:
        self.suspected = True
        if self._first.setdefault(status, source) != source:
            self._for_all.add(status)
        return status in self._for_all

    def answered(self) -> None:
        """Record a good answer: what was wished before it is no longer taken for a wish for all."""
        self.suspected = False
        self._first.clear()
        self._for_all.clear()

    def _pause(self, project_id: str, until: float, delay: float, now: float) -> None:
        pause = self.projects.get(project_id)
        if pause is not None and pause.until > now:
            pause.until = max(pause.until, until)
            return
        if len(self.projects) >= _MANY_PROJECTS:
            self.projects = {name: pause for name, pause in self.projects.items() if pause.until > now}
        self.projects[project_id] = _Pause(now, until, delay)

    def until(self, project_id: str, now: float) -> float:
        """Return the loop time until which the project is paused; minus infinity where it is not."""
        pause = self.projects.get(project_id)
        if pause is None:
            return -inf
        if pause.until > now + ROUNDING:
            return pause.until
        del self.projects[project_id]
        return -inf

    def release(self, project_id: str, now: float, *, first: bool) -> float:
        """Return when a poll of a paused project may go that is due at `now`; `first`: it is the first of its job."""
        return self.projects[project_id].release(now, first=first)
