"""The order in which waits began, and the durations that are still to be compared in that order."""

from collections import deque
from collections.abc import Callable, Iterator
from math import inf
from time import time
from typing import Final

from agentjobs_async.models import AgentJob
from agentjobs_async.policy import PollHistory

__all__ = ["Start", "Starts", "is_late"]

_LATEST_START_SECONDS: Final = 10.0  # after the job's creation: clocks differ, and a create's answer takes a moment
_MOST_CLOSED: Final = 20_000  # waits that are over, some 150 B each, behind one whose job may never end


def is_late(job: AgentJob, began: float) -> bool:
    """Return whether a job was created long before the wait for it began, at the wall-clock time `began`."""
    return job.created_at is not None and began - job.created_at.timestamp() > _LATEST_START_SECONDS


class Start:
    """One wait, from its start until its duration may be compared.

    Attributes:
        number: The number of the wait, in the order of the starts.
        wait: The wait while it continues, else `None`.
        began: Wall-clock time at which it began.
        job: The project and the model of the job; `None` while the wait continues.
        earliest: As in `History.add`.
        latest: As in `History.add`.
    """

    __slots__ = ("began", "earliest", "job", "latest", "number", "wait")

    def __init__(self, number: int, wait: PollHistory | None) -> None:
        self.number = number
        self.wait = wait
        self.began = time()
        self.job: tuple[str, str | None] | None = None
        self.earliest, self.latest = 0.0, inf

    def kind(self) -> tuple[str, str | None] | None:
        """Return the project and the model of the job; `None` if neither an answer nor the caller has shown it."""
        if self.wait is None or self.wait.job is None:
            return self.job
        return self.wait.job.project_id, self.wait.job.model

    def look(self) -> bool:
        """Set `earliest` to what the wait has shown by now; return whether its job is too old to say anything."""
        wait = self.wait
        if wait is None or wait.job is None:
            return False
        if is_late(wait.job, self.began):
            self.earliest = 0.0
            return True
        self.earliest = wait.seen - wait.started
        return False


class Starts:
    """Yields durations in the order in which the waits for the jobs began, each once it is known or known to be long.

    Jobs that run at the same time end in the order of their durations. Only in the order of the starts are the
    durations of jobs of one kind exchangeable: one as likely as the other to be the longer.

    Attributes:
        count: The number of waits that have begun.
    """

    __slots__ = ("_active", "_closed", "_queues", "count")

    def __init__(self) -> None:
        self.count = 0
        self._queues: dict[str | None, deque[Start]] = {}
        self._active: dict[PollHistory, Start] = {}
        self._closed = 0

    def begin(self, queue: str | None, wait: PollHistory) -> None:
        """Add a wait that begins now, to the queue of this name."""
        self._active[wait] = self._append(queue, wait)

    def add(self, queue: str | None, job: tuple[str, str | None], earliest: float, latest: float) -> None:
        """Add a duration of which no wait is known: it counts as one that began now."""
        self._close(self._append(queue, None), job, earliest, latest)

    def end(self, wait: PollHistory, job: tuple[str, str | None], earliest: float, latest: float) -> None:
        """Record how long the job of a wait took; waits that were not begun here are ignored."""
        start = self._active.pop(wait, None)
        if start is not None:
            self._close(start, job, earliest, latest)

    def leave(self, wait: PollHistory) -> None:
        """Record that a wait is over before its job: that tells only how long the job was seen active."""
        start = self._active.pop(wait, None)
        if start is not None:
            start.look()
            self._close(start, start.kind(), start.earliest, inf)

    def _append(self, queue: str | None, wait: PollHistory | None) -> Start:
        self.count += 1
        start = Start(self.count, wait)
        self._queues.setdefault(queue, deque()).append(start)
        return start

    def _close(self, start: Start, job: tuple[str, str | None] | None, earliest: float, latest: float) -> None:
        start.wait, start.job, start.earliest, start.latest = None, job, earliest, latest
        self._closed += 1
        if self._closed > _MOST_CLOSED:
            # All waits begun so far are left out, the long ones and the short ones: those that begin from now on are
            # as exchangeable with the earlier ones as before. To leave out the first alone would favour short ones.
            self._queues.clear()
            self._active.clear()
            self._closed = 0

    def decided(self, queue: str | None, horizon: Callable[[Start], float]) -> Iterator[Start]:
        """Remove and yield the waits in the order of their starts, up to the first of which too little is known.

        Args:
            queue: The name of the queue.
            horizon: Returns the seconds beyond which the duration of a job need not be known more exactly. Called
                after the caller has used what was yielded before.
        """
        starts = self._queues.get(queue)
        while starts:
            start = starts[0]
            late = start.look()
            if start.wait is None:
                self._closed -= 1
            elif late or start.earliest > horizon(start):
                del self._active[start.wait]
                start.job, start.wait = start.kind(), None
            else:
                return
            starts.popleft()
            yield start
        self._queues.pop(queue, None)
