"""The rows that pages know already, so that only changes are sent."""

from collections.abc import Iterable
from typing import Final

from attrs import define, field

from agentjobs_async.batch import JournalRow

__all__ = ["KnownRows"]

_ROUNDING_SECONDS: Final = 2e-6  # the time of a row has whole microseconds


@define(eq=False)
class KnownRows:
    """The newest try of each item, as pages know it.

    Attributes:
        hashes: The hash of each row, by its number: the rows themselves would take far more memory.
        times: When each row was changed, by its number; of earlier tries, too.
        numbers: The number of the newest try of each item, by the item's key.
        newest: When the row that was changed last was changed, in seconds since the epoch.
    """

    hashes: dict[int, int] = field(factory=dict)
    times: dict[int, float] = field(factory=dict)
    numbers: dict[str, int] = field(factory=dict)
    newest: float = 0.0

    def take(self, rows: Iterable[JournalRow]) -> tuple[list[JournalRow], list[int]]:
        """Return which of the rows are new or have changed, and the numbers of those whose item has a newer try."""
        changed, removed = [], []
        for row in rows:
            time = self.times[row.number] = row.updated_at.timestamp()
            self.newest = max(self.newest, time)
            before = self.numbers.get(row.item_key, 0)
            # A retry leaves the time of the earlier try as it is: the new row alone tells of it.
            if row.retried_as is not None or before > row.number:
                removed += self._forget(row.number)
                continue
            if 0 < before < row.number:
                removed += self._forget(before)
            self.numbers[row.item_key] = row.number
            if self.hashes.get(row.number) != (found := hash(row)):
                self.hashes[row.number] = found
                changed.append(row)
        return changed, removed

    def unknown(self, times: Iterable[tuple[int, float]]) -> list[int]:
        """Return the numbers of those rows, given with their times, that have changed since they were taken."""
        return [number for number, time in times if abs(self.times.get(number, 0.0) - time) > _ROUNDING_SECONDS]

    def keep(self, numbers: set[int]) -> list[int]:
        """Forget all rows but these, and return the numbers of the others."""
        return [number for other in self.hashes.keys() - numbers for number in self._forget(other)]

    def _forget(self, number: int) -> list[int]:
        return [] if self.hashes.pop(number, None) is None else [number]
