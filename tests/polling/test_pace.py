"""The clock of the polls, and the limits of their rate."""

import pytest

from agentjobs_async._polling.pace import PollClock, PollLimits, PollShare
from tests.polled import peak
from tests.rows import failures


def start(polls: PollLimits, now: float) -> float:
    """Start a poll and return 0; or return when the next may start."""
    next_start = polls.next_start(now)
    if next_start == now:
        polls.start(now)
    return 0 if next_start == now else next_start


def polls_of(limits: PollLimits, begin: float, end: float, late: float = 0.0) -> list[float]:
    """Return when polls start that are due all the time; each timer is `late` by some seconds."""
    starts, now = [], begin
    while now < end:
        next_start = limits.next_start(now)
        if next_start > now:
            now = next_start + late
            continue
        limits.start(now)
        starts.append(now)
    return starts


def limits_of(count: int, limit: float) -> list[PollLimits]:
    """Return the limits of processes that share one, as a journal gives each its share."""
    found = [PollLimits(None) for _ in range(count)]
    for number, limits in enumerate(found):
        limits.share("journal", PollShare(limit / count, 7.0 + number / limit))
    return found


class Sharer:
    """A process that may count as dead."""

    is_sure = False


def test_stands_still() -> None:
    """While it is stopped its time does not go on; afterwards what was due later still is, by the time lost."""
    polls = PollClock()
    due = polls.due(12, 10)
    polls.stop(10, 15)
    assert (polls.stopped, polls.unreachable, polls.resume_at) == (True, False, 15)
    assert [polls.time(now) for now in (10, 12, 30)] == [10, 10, 10]
    assert polls.resume(16) == 6
    assert (polls.stopped, polls.resume_at) == (False, None)
    assert (polls.time(16), polls.to_loop(due)) == (10, 18)
    polls.stop(20, 21)
    assert polls.resume(21) == 1
    assert (polls.to_loop(due), polls.to_loop(polls.due(30, 25))) == (19, 30)


def test_due_without_a_known_end() -> None:
    """A poll that is put while the server is unreachable keeps its delay, counted from when the clock goes on."""
    polls = PollClock()
    polls.stop(10, None)
    due = [polls.due(when, 12) for when in (11, 15)]
    polls.resume(50)
    assert [polls.to_loop(time) for time in due] == [50, 53]


def test_stopped_twice() -> None:
    """The latest time counts, and any time stands above `None`: it says when to go on."""

    def check(stops: list[float | None], resume_at: float | None) -> None:
        polls = PollClock()
        for number, until in enumerate(stops):
            polls.stop(10 + number, until)
        assert (polls.resume_at, polls.unreachable) == (resume_at, resume_at is None)
        assert polls.resume(20) == 10

    rows = ([20, 15], 20), ([15, 20], 20), ([15, None], 15), ([None, 15], 15), ([None, None], None)
    assert failures(check, *rows) == {}


def test_rate() -> None:
    """No two starts are closer than the rate allows, and unused starts are not saved up."""
    polls = PollLimits(4)
    assert [start(polls, now) for now in (10, 10, 10.2, 10.25, 10.26)] == [0, 10.25, 10.25, 0, 10.5]
    assert [start(polls, now) for now in (100, 100.1)] == [0, 100.25]
    assert start(polls, 100.25 - 1e-9) == 0
    assert start(polls, 100.3) == 100.5


def test_all_at_once() -> None:
    """The polls of 20 processes that all have many due at once stay within the limit in each second, and use it."""

    def check(limit: float, late: float) -> None:
        starts = sorted(at for limits in limits_of(20, limit) for at in polls_of(limits, 100.3, 160.3, late))
        assert peak(starts, 0.99) <= limit
        assert len(starts) == pytest.approx(60 * limit, rel=0.05, abs=20)

    assert failures(check, *((limit, late) for limit in (3.0, 5.0, 50.0, 190.0) for late in (0.0, 0.003))) == {}


def test_seldom_due() -> None:
    """A poll that comes up between two turns waits for the next one: others may have come up with it."""
    starts = []
    for limits in limits_of(4, 2.0):
        at = limits.next_start(100.25)
        limits.start(at)
        starts.append(at)
    assert starts == pytest.approx([101.0, 101.5, 102.0, 100.5])


def test_a_moved_turn() -> None:
    """A share that is given anew, a little earlier than the last one, does not repeat the turn that was used."""
    limits = PollLimits(None)
    limits.share("journal", PollShare(1.0, 10.0))
    limits.start(limits.next_start(10.0))
    limits.share("journal", PollShare(1.0, 10.01))
    assert limits.next_start(10.001) == pytest.approx(11.01)


def test_none_at_present() -> None:
    """No poll starts while the share is 0, or its sharer not sure of it; the process looks again after a second."""
    limits = PollLimits(None)
    limits.share("journal", PollShare(0.0))
    assert limits.next_start(10.0) == 11.0
    sharer = Sharer()
    limits.share("journal", PollShare(5.0, 10.0, sharer))
    assert limits.next_start(10.0) == 11.0
    sharer.is_sure = True
    assert limits.next_start(10.0) == 10.0


def test_many_polls_need_no_turns() -> None:
    """A share with an interval that is as short as timers are late keeps the interval, at any time."""
    limits = PollLimits(None)
    limits.share("journal", PollShare(100.0, 7.0))
    assert limits.next_start(10.004) == 10.004
    limits.start(10.004)
    assert limits.next_start(10.004) == pytest.approx(10.014)


def test_the_smallest_limit_holds() -> None:
    """Of the budget's limit, the caller's own and the journal's, the smallest counts, and each can be lifted alone."""

    def check(budget: float | None, own: float | None, share: float) -> None:
        limits = PollLimits(budget)
        limits.limit(own)
        limits.share("journal", PollShare(share, 0.0))
        assert len(polls_of(limits, 0.1, 50.1, 0.003)) == pytest.approx(100, abs=1)
        limits.share("journal", None)
        others = [limit for limit in (budget, own) if limit is not None]
        assert len(polls_of(limits, 100.1, 150.1)) == pytest.approx(50 * min(others), abs=1)
        limits.limit(None)
        limits.start(200.0)
        assert (limits.next_start(200.0) == 200.0) is (budget is None)

    assert failures(check, (2, 3, 4), (3, 2, 4), (4, None, 2), (None, 3, 2)) == {}


def test_two_journals() -> None:
    """The smaller of the shares of two journals counts, until it is lifted."""
    limits = PollLimits(None)
    limits.share("one", PollShare(1.0))
    limits.share("two", PollShare(4.0))
    assert len(polls_of(limits, 0.0, 50.0)) == pytest.approx(50, abs=1)
    limits.share("one", None)
    assert len(polls_of(limits, 100.0, 150.0)) == pytest.approx(200, abs=1)
    limits.share("two", None)
    assert limits.next_start(150.0) == 150.0
