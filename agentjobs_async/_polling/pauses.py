"""For whom a server's Retry-After holds: one job, one project, or all once two of them have been asked to wait."""

from collections.abc import Hashable
from typing import Final

from agentjobs_async.models import JobRef

__all__ = ["Pauses", "RememberedPauses"]

_LIMITED: Final = 429
_UNAVAILABLE: Final = 503
_MAX_REMEMBERED: Final = 1024  # jobs, so that memory is bounded; the pause of any further job is forgotten


class Pauses:
    """Whether the pauses that servers asked for with 429 and 503 are for all polls: once two of them agree.

    Attributes:
        suspected: Whether a pause was asked for since the last good answer.
    """

    __slots__ = ("_first", "_for_all", "suspected")

    def __init__(self) -> None:
        self.suspected = False
        self._first: dict[int, Hashable] = {}
        self._for_all: set[int] = set()

    def record(self, ref: JobRef, status: int, *, overlaps: bool) -> bool:
        """Record an answer about the job `ref` that asked for a pause; return whether that is for all polls.

        It is for all once two different jobs (503) or projects (429) have been answered so with no good answer between.
        `overlaps`: a good answer came while this poll was in flight. The order of the two says nothing, so that this
        answer is not one of the two.
        """
        if status == _LIMITED:
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
