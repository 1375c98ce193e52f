"""The durations of the last jobs of one kind."""

from collections import deque
from collections.abc import Iterator
from math import inf
from typing import Any, ClassVar, Final

from agentjobs_async._text import limit
from agentjobs_async._validation import checked_seconds
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.learning.survival import Survival

__all__ = ["LEAST_DURATIONS", "MOST_DURATIONS", "History"]

MOST_DURATIONS: Final = 200  # enough for a smooth curve, few enough to follow slow changes
LEAST_DURATIONS: Final = 20  # with fewer, the default waits as well

# With these, nine of ten jobs end within p90: benchmarks/bench_learning.py.
_PRIOR, _NARROWEST = 0.02, 0.03
_SHOWN: Final = (0.1, 0.5, 0.9)  # the quantiles in its repr


class History:
    """The durations of the last 200 jobs of one kind, each as an interval. It pickles, and prints its quantiles.

    Recent ones weigh more: a duration weighs half as much as one that was added 50 durations later.

    It belongs to one event loop, as the session that adds to it: it has no lock. Another thread or process gets a copy,
    such as by pickling it in that loop.

    Attributes:
        added: The number of durations added so far, those included that were dropped since.
    """

    __slots__ = ("_for_estimates", "_intervals", "added")

    def __init__(self) -> None:
        self._intervals: deque[tuple[float, float]] = deque(maxlen=MOST_DURATIONS)
        self._for_estimates: Survival | None = None
        self.added: int = 0

    def add(self, earliest: float, latest: float) -> None:
        """Add a duration, and drop the oldest of more than 200.

        Args:
            earliest: Seconds from the job's start until it was last seen active; 0 if it never was.
            latest: Seconds from the job's start until it was seen to have ended; `math.inf` if the wait for it ended
                before the job did.

        Raises:
            InvalidInputError: An argument is negative or not a number, `earliest` is infinite, or `latest` is less.
        """
        low = checked_seconds("earliest", earliest, zero=True)
        high = inf if latest == inf else checked_seconds("latest", latest, zero=True)
        if high < low:
            raise InvalidInputError(f"latest must not be less than earliest: {limit(high)} is less than {limit(low)}")
        self._intervals.append((low, high))
        self._for_estimates = None
        self.added += 1

    def quantile(self, p: float, age: float = 0.0) -> float:
        """Return the seconds, counted from `age`, within which a share `p` of the jobs ends that are active at `age`.

        It is finite and at least 0, or `math.inf` beyond the longest known duration, which is at most 4 h.

        Args:
            p: The share: above 0 and below 1.
            age: Seconds since the job's start.

        Raises:
            InvalidInputError: An argument is out of range, or the history is empty.
        """
        if not _is_share(p):
            raise InvalidInputError("p must be a share of jobs: a number above 0 and below 1, such as 0.9")
        checked_seconds("age", age, zero=True)
        if not self._intervals:
            raise InvalidInputError("the history is empty: add durations first")
        survival = self._survival()
        return max(survival.age_at((1.0 - p) * survival.at(age)) - age, 0.0)

    def _survival(self) -> Survival:
        """Return the share of jobs that is still active at each age, for estimates; the history must not be empty."""
        if self._for_estimates is None:
            self._for_estimates = Survival(self._intervals, prior=_PRIOR, narrowest=_NARROWEST, extrapolated=False)
        return self._for_estimates

    def __len__(self) -> int:
        return len(self._intervals)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return iter(self._intervals)

    def __eq__(self, other: object) -> bool:
        return self._intervals == other._intervals if isinstance(other, History) else NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # it changes

    def __getstate__(self) -> Any:
        return (tuple(self._intervals),)  # never empty: pickle's protocols 0 and 1 leave an empty state out

    def __setstate__(self, state: Any) -> None:
        History.__init__(self)
        (intervals,) = state
        for earliest, latest in intervals:
            self.add(earliest, latest)

    def __repr__(self) -> str:
        if not self._intervals:
            return "<History of 0 durations>"
        shown = ", ".join(f"{share:.0%} within {self.quantile(share):.3g} s" for share in _SHOWN)
        return f"<History of {len(self)} durations: {shown}>"


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < 1
