"""The rate limit of the emulated service."""

import math
from collections import defaultdict, deque

import attrs
from attrs.validators import ge, gt

__all__ = ["RateLimit", "RateWindow"]


@attrs.frozen
class RateLimit:
    """At most so many creates per project in any span of `per` seconds.

    Raises:
        ValueError: A negative number of creates, or no time above 0.
    """

    creates: int = attrs.field(default=100, validator=ge(0))
    per: float = attrs.field(default=3600.0, validator=gt(0.0))


class RateWindow:
    """Counts the creates of each project against a `RateLimit`."""

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._taken: defaultdict[str, deque[float]] = defaultdict(deque)

    def take(self, project_id: str, now: float) -> int | None:
        """Take one place; when none is free, give the whole seconds until one is, and take nothing.

        Args:
            project_id: Whose places are counted.
            now: Seconds of a monotonic clock.
        """
        taken = self._taken[project_id]
        while taken and now - taken[0] >= self._limit.per:
            taken.popleft()
        if len(taken) >= self._limit.creates:
            oldest = taken[0] if taken else now
            return max(1, math.ceil(oldest + self._limit.per - now))
        taken.append(now)
        return None
