"""A journal that others work on, seen from outside: its counts, its rate, its probable end, and its workers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from agentjobs_async import Estimate
from agentjobs_async._text import span
from agentjobs_async.batch import Rate, State
from agentjobs_async.batch._workers import WorkerState, is_at_work
from agentjobs_async.cli._output.columns import padded, shortened
from agentjobs_async.cli._output.moments import clock, ends_in, is_shown
from agentjobs_async.cli._output.screen import Styled

_HOUR_SECONDS: Final = 3600.0
_OPEN: Final = (State.PLANNED, State.SENDING, State.ACTIVE)
_FAILED: Final = (State.FAILED, State.REJECTED)
_WIDEST_NAME: Final = 40  # columns
_LEAST_HEIGHT: Final = 3  # lines: the counts, the pace and the head of the workers
_BESIDE_THE_NAME: Final = 19  # columns of its active items, and of a heartbeat that is not cut on a narrow terminal


@frozen
class FleetView:
    """A journal at one moment.

    Attributes:
        counts: How many items are in each state.
        ends_per_second: How many items have ended per second of late; `None` when none has.
        rate: The limit of creates; `None` without one.
        workers: As `workers_of` returns them.
        now: Seconds since the epoch.
        active_left: How long the active jobs have left; `None` while that is not known.
        unseen_for: For how many seconds no active job was seen; `None` if one was seen of late, or none is active.
    """

    counts: Mapping[State, int]
    ends_per_second: float | None
    rate: Rate | None
    workers: Sequence[WorkerState] | None
    now: float
    active_left: Estimate | None = None
    unseen_for: float | None = None

    @property
    def total(self) -> int:
        """The number of all items."""
        return sum(self.counts.values())

    @property
    def left(self) -> int:
        """The number of items that have not ended."""
        return sum(self.counts[state] for state in _OPEN)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until all have ended at the present rate, and no less than the rate of creates takes; else `None`."""
        if self.ends_per_second is None:
            return None
        at_this_rate = self.left / self.ends_per_second
        # A rate per project binds less where there are several: the present rate shows that.
        one_for_all = self.rate is not None and self.rate.scope == "all"
        creates = self.counts[State.PLANNED] / self.rate.count * self.rate.per if self.rate and one_for_all else 0.0
        return max(at_this_rate, creates)


def fleet_line(view: FleetView) -> str:
    """Return all of it in one line, for a log."""
    parts = [f"{clock(view.now)}  {', '.join(_tally(view))}", _pace(view)]
    parts += [] if view.active_left is None else [ends_in(view.active_left)]
    if view.workers:
        alive = _number(sum(not worker.is_dead for worker in view.workers), "worker")
        parts.append(f"{alive}, last heartbeat {span(min(worker.silent_for for worker in view.workers))} ago")
    return "; ".join(parts)


def fleet_lines(view: FleetView, width: int, height: int) -> Iterator[tuple[Styled, ...]]:
    """Return at most `height` lines of at most `width` columns, for a terminal."""
    yield ((shortened(", ".join(_tally(view)), width), "bold"),)
    is_stalled = view.left and not is_at_work(view.workers)
    yield ((shortened(_pace(view), width), "yellow" if is_stalled else ""),)
    if view.active_left is not None and height > _LEAST_HEIGHT:
        yield (shortened(ends_in(view.active_left), width),)
        height -= 1
    if not view.workers:
        return
    names = max(len(worker.name) for worker in view.workers)
    name = max(min(names, _WIDEST_NAME, width - _BESIDE_THE_NAME), len("WORKER"))
    yield ((f"{'WORKER':<{name}} {'ACTIVE':>6}  LAST HEARTBEAT"[:width], "bold"),)
    room = max(height - _LEAST_HEIGHT, 0)
    cut = room if len(view.workers) <= room else max(room - 1, 0)
    for worker in view.workers[:cut]:
        yield _worker_line(worker, name, width)
    if cut < len(view.workers) and room:
        yield (f"… and {len(view.workers) - cut} more",)


def _worker_line(worker: WorkerState, name: int, width: int) -> tuple[Styled, ...]:
    heard = f"{span(worker.silent_for)} ago{', counts as dead' if worker.is_dead else ''}"
    words = shortened(f" {worker.active:>6}  {heard}", max(width - name, 0))
    return padded(worker.name, name), (words, "yellow" if worker.is_dead else "")


def _tally(view: FleetView) -> Iterator[str]:
    counts = view.counts
    ended = view.total - view.left
    yield f"{ended:,} of {view.total:,} ended ({ended * 100 // max(view.total, 1)} %)"
    active = counts[State.SENDING] + counts[State.ACTIVE]
    numbers = {
        "completed": counts[State.COMPLETED],
        "failed": sum(counts[state] for state in _FAILED),
        "archived": counts[State.ARCHIVED],
        "abandoned": counts[State.ABANDONED],
        "unknown": counts[State.UNKNOWN],
        "active": active,
        "planned": counts[State.PLANNED],
    }
    yield from (f"{number:,} {word}" for word, number in numbers.items() if number)


def _pace(view: FleetView) -> str:
    if not view.left:
        return "all have ended"
    if not is_at_work(view.workers):
        return "no process works on it; agentjobs resume continues"
    if view.unseen_for is not None:
        return f"no active job was seen for {span(view.unseen_for)}: no run polls them, or no server answers"
    if view.ends_per_second is None:
        return "none has ended in the last 10 min"
    left, per_hour = view.seconds_left or 0.0, view.ends_per_second * _HOUR_SECONDS
    end = f"; end about {clock(view.now + left)}, in {span(left)}" if is_shown(left) else ""
    return f"{per_hour:,.0f} ended per hour{end}"


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
