"""Which projects are passed over, and until when: as the server asked, and then between one poll and the next."""

from heapq import heappop, heappush
from math import inf

from agentjobs_async._polling.limiters import ROUNDING_SECONDS


class Hold:
    """A span in which the jobs of one project are passed over.

    Attributes:
        until: Loop time at which it ends.
        is_pause: Whether the server asked for it, so that urgent jobs wait too. Else it is the rest between two polls
            after such a pause.
        released_at: Loop time at which the pause ends, or did.
        jobs: How many jobs the project had when the pause began.
        ended_at: When it ended; infinity before.
    """

    __slots__ = ("ended_at", "is_pause", "jobs", "released_at", "until")

    def __init__(self, until: float, released_at: float, jobs: int, *, is_pause: bool) -> None:
        self.until = until
        self.released_at = released_at
        self.jobs = jobs
        self.is_pause = is_pause
        self.ended_at = inf

    @property
    def is_in_force(self) -> bool:
        """Whether it has not ended."""
        return self.ended_at == inf

    def holds(self, *, urgent: bool) -> bool:
        """Return whether a job has to wait."""
        return self.is_in_force and (self.is_pause or not urgent)

    def end(self, now: float) -> None:
        """Record that it has ended."""
        self.ended_at = now


class Holds:
    """The holds of all projects.

    Attributes:
        by_project: The holds in force, and those that have ended while jobs of their project were due, and still are.
        ends_at: Loop time at which `end_due` is to be called next; infinity without holds.
    """

    def __init__(self) -> None:
        self.ends_at = inf
        self.by_project: dict[str, Hold] = {}
        self._ends: list[tuple[float, str]] = []
        """A heap of the ends of holds. Removal is lazy: an item counts only while its time is that of the hold."""

    def is_held(self, project_id: str, *, urgent: bool) -> bool:
        """Return whether a job of a project has to wait."""
        hold = self.by_project.get(project_id)
        return hold is not None and hold.holds(urgent=urgent)

    def pause(self, project_id: str, until: float, jobs: int) -> bool:
        """Hold a project of so many jobs until a loop time, as the server asks.

        Return `False` if it is paused for longer already.
        """
        hold = self.by_project.get(project_id)
        if hold is not None and hold.holds(urgent=True) and hold.until >= until:
            return False
        self._set(project_id, Hold(until, until, jobs, is_pause=True))
        return True

    def rest(self, project_id: str, until: float) -> None:
        """Hold a project that was paused between one poll, which starts now, and the next."""
        pause = self.by_project[project_id]
        self._set(project_id, Hold(until, pause.released_at, pause.jobs, is_pause=False))

    def _set(self, project_id: str, hold: Hold) -> None:
        self.by_project[project_id] = hold
        heappush(self._ends, (hold.until, project_id))
        self.ends_at = self._ends[0][0]

    def end_due(self, now: float) -> list[str]:
        """End the holds whose time has come, and return their projects."""
        projects = []
        while self._ends and self._ends[0][0] <= now + ROUNDING_SECONDS:
            until, project_id = heappop(self._ends)
            hold = self.by_project.get(project_id)
            if hold is not None and hold.until == until:  # else another one has taken its place
                hold.end(now)
                projects.append(project_id)
        self.ends_at = self._ends[0][0] if self._ends else inf
        return projects

    def forget(self, project_id: str) -> None:
        """Forget that a project was held: none of its jobs is due."""
        self.by_project.pop(project_id, None)
