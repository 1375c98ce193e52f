"""The times in which jobs were active and nobody saw them, as far as a journal shows that."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Final, Self

from attrs import frozen

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.report.texts import milliseconds

__all__ = ["Seen", "unseen_spans"]

_LEAST: Final = 600_000  # ms between two polls of any job: longer than a sensible wait, or an outage
_OPEN_LEAST: Final = 180_000  # ms since an active job was seen, which is recorded each minute
_MOST_SPANS: Final = 50
_SLOWER: Final = 5.0  # times the usual interval: polls are not taken to be farther apart


@frozen
class Seen:
    """What a journal knows of when one job was looked at.

    Attributes:
        begun: When it was created, in milliseconds since the epoch, as the next one.
        until: When it was seen last.
        polls: How often it was polled in between.
        is_active: Whether it has not ended, as far as known.
    """

    begun: int
    until: int
    polls: int
    is_active: bool = False

    @classmethod
    def of(cls, row: JournalRow) -> Self | None:
        """Return what a row knows of its job; `None` if it has no job."""
        begun = milliseconds(row.created_at)
        if begun is None:
            return None
        last = row.ended_at if row.state.is_job_end else row.seen_at
        return cls(begun, max(milliseconds(last) or begun, begun), row.polls, row.state is State.ACTIVE)


def unseen_spans(jobs: Sequence[Seen], now: float) -> list[tuple[int, int]]:
    """Return the spans in which jobs were active and nobody saw them, in milliseconds since the epoch, ascending.

    In such a span, no job was created or seen to end for ten minutes, and most of the active ones have too few polls in
    all to have been seen in it, even by polls five times as far apart as usual. So a span may be missed, but one in
    which somebody looked is hardly ever returned. If no active job was seen for three minutes, the last span lasts
    until `now`, in seconds since the epoch.
    """
    if not jobs:
        return []
    moments = sorted({moment for job in jobs for moment in (job.begun, job.until)})
    quiet = sorted((span for span in pairwise(moments) if span[1] - span[0] >= _LEAST), key=_length)[-_MOST_SPANS:]
    spans = _without_polls(jobs, sorted(quiet))
    if any(job.is_active for job in jobs) and now * 1000 - moments[-1] >= _OPEN_LEAST:
        spans.append((moments[-1], round(now * 1000)))
    return spans


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


def _without_polls(jobs: Sequence[Seen], quiet: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return those spans across which jobs were active, most of them with too few polls to have been seen in it."""
    starts = [start for start, _ in quiet]
    longest = _SLOWER * _usual_interval(jobs)
    active, unseen = Counter[int](), Counter[int]()
    for job in jobs:
        for index in range(bisect_left(starts, job.begun), len(quiet)):
            if quiet[index][1] > job.until:
                break
            active[index] += 1
            unseen[index] += job.polls * longest < _length(quiet[index])
    return [quiet[index] for index in sorted(active) if 2 * unseen[index] > active[index]]


def _usual_interval(jobs: Sequence[Seen]) -> float:
    """Return the median, over all jobs, of the mean milliseconds between two polls of a job; 0 without any poll."""
    intervals = [(job.until - job.begun) / job.polls for job in jobs if job.polls]
    return median(intervals) if intervals else 0.0
