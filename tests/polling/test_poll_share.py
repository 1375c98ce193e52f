import pytest

from agentjobs_async._polling.pace import PollLimits
from agentjobs_async._polling.poll_share import PollShare
from tests.polled import peak
from tests.rows import failures


def polls_of(clock: PollLimits, begin: float, end: float, late: float = 0.0) -> list[float]:
    """Return when polls start that are due all the time; each timer is `late` by some seconds."""
    starts, now = [], begin
    while now < end:
        next_start = clock.next_start(now)
        if next_start > now:
            now = next_start + late
            continue
        clock.start(now)
        starts.append(now)
    return starts


def clocks_of(count: int, limit: float) -> list[PollLimits]:
    """Return the clocks of processes that share a limit, as a journal gives each its share."""
    clocks = [PollLimits(None) for _ in range(count)]
    for number, clock in enumerate(clocks):
        clock.share("journal", PollShare(limit / count, 7.0 + number / limit))
    return clocks


def test_all_at_once() -> None:
    """The polls of 20 processes that all have many due at once stay within the limit in each second, and use it."""

    def check(limit: float, late: float) -> None:
        starts = sorted(at for clock in clocks_of(20, limit) for at in polls_of(clock, 100.3, 160.3, late))
        assert peak(starts, 0.99) <= limit
        assert len(starts) == pytest.approx(60 * limit, rel=0.05, abs=20)

    assert failures(check, *((limit, late) for limit in (3.0, 5.0, 50.0, 190.0) for late in (0.0, 0.003))) == {}


def test_seldom_due() -> None:
    """A poll that comes up between two turns waits for the next one: others may have come up with it."""
    starts = []
    for clock in clocks_of(4, 2.0):
        at = clock.next_start(100.25)
        clock.start(at)
        starts.append(at)
    assert starts == pytest.approx([101.0, 101.5, 102.0, 100.5])


def test_a_moved_turn() -> None:
    """A share that is given anew, a little earlier than the last one, does not repeat the turn that was used."""
    clock = PollLimits(None)
    clock.share("journal", PollShare(1.0, 10.0))
    clock.start(clock.next_start(10.0))
    clock.share("journal", PollShare(1.0, 10.01))
    assert clock.next_start(10.001) == pytest.approx(11.01)


def test_none_at_present() -> None:
    """No poll starts without a share, or while it is not in force; the clock looks again after a second."""
    clock = PollLimits(None)
    in_force = False
    clock.share("journal", PollShare(0.0))
    assert clock.next_start(10.0) == 11.0
    clock.share("journal", PollShare(5.0, 10.0, lambda: in_force))
    assert clock.next_start(10.0) == 11.0
    in_force = True
    assert clock.next_start(10.0) == 10.0


def test_many_polls_need_no_turns() -> None:
    """A share with an interval that is as short as timers are late keeps the interval, at any time."""
    clock = PollLimits(None)
    clock.share("journal", PollShare(100.0, 7.0))
    assert clock.next_start(10.004) == 10.004
    clock.start(10.004)
    assert clock.next_start(10.004) == pytest.approx(10.014)


def test_the_smallest_limit_holds() -> None:
    """Of the budget's limit, the caller's own and the journal's, the smallest holds, and each can be lifted alone."""

    def check(budget: float | None, own: float | None, share: float) -> None:
        clock = PollLimits(budget)
        clock.limit(own)
        clock.share("journal", PollShare(share, 0.0))
        assert len(polls_of(clock, 0.1, 50.1)) == pytest.approx(100, abs=1)
        clock.share("journal", None)
        others = [limit for limit in (budget, own) if limit is not None]
        assert len(polls_of(clock, 100.1, 150.1)) == pytest.approx(50 * min(others), abs=1)
        clock.limit(None)
        clock.start(200.0)
        assert (clock.next_start(200.0) == 200.0) is (budget is None)

    assert failures(check, (2, 3, 4), (3, 2, 4), (4, None, 2), (None, 3, 2)) == {}


def test_two_journals() -> None:
    """The smaller of the shares of two journals holds, until it is lifted."""
    clock = PollLimits(None)
    clock.share("one", PollShare(1.0))
    clock.share("two", PollShare(4.0))
    assert len(polls_of(clock, 0.0, 50.0)) == pytest.approx(50, abs=1)
    clock.share("one", None)
    assert len(polls_of(clock, 100.0, 150.0)) == pytest.approx(200, abs=1)
    clock.share("two", None)
    assert clock.next_start(150.0) == 150.0
