"""The limits from outside: of the budget, of the caller, and of a fleet."""

import pytest
from attrs import define

from agentjobs_async._polling.gate import Gate
from agentjobs_async._polling.limiters import PollLimits
from tests.polled import peak
from tests.rows import failures


@define
class Share:
    """What a process has of a limit that several share; it may change at any time."""

    per_second: float


def opens_at(limits: PollLimits, now: float) -> float:
    """Return when each limit in force lets the next poll start; `now` if that is at once."""
    return Gate(limits, (), now).opens_at(now)


def count(limits: PollLimits, now: float) -> None:
    """Count a poll as started."""
    for limiter in limits.in_force:
        limiter.start(now)


def start(limits: PollLimits, now: float) -> float:
    """Start a poll and return 0; or return when the next may start."""
    at = opens_at(limits, now)
    if at == now:
        count(limits, now)
    return 0 if at == now else at


def polls_of(limits: PollLimits, begin: float, end: float, late: float = 0.0) -> list[float]:
    """Return when polls start that are due all the time; each timer is `late` by some seconds."""
    starts, now = [], begin
    while now < end:
        at = opens_at(limits, now)
        if at > now:
            now = at + late
            continue
        count(limits, now)
        starts.append(now)
    return starts


def limits_of(count: int, limit: float) -> list[PollLimits]:
    """Return the limits of processes that share one, as a journal gives each its share."""
    found = [PollLimits(None) for _ in range(count)]
    for limits in found:
        limits.share("journal", Share(limit / count))
    return found


def test_rate() -> None:
    """No two starts are closer than the rate allows, and unused starts are not saved up."""
    polls = PollLimits(4)
    assert [start(polls, now) for now in (10, 10, 10.2, 10.25, 10.26)] == [0, 10.25, 10.25, 0, 10.5]
    assert [start(polls, now) for now in (100, 100.1)] == [0, 100.25]
    assert start(polls, 100.25 - 1e-9) == 0
    assert start(polls, 100.3) == 100.5


def test_all_at_once() -> None:
    """The polls of 20 processes that all have many due at once use the limit; each may exceed its share by one poll."""

    def check(limit: float, late: float) -> None:
        starts = sorted(at for limits in limits_of(20, limit) for at in polls_of(limits, 100.3, 160.3, late))
        assert peak(starts, 0.99) <= limit + 20
        assert len(starts) == pytest.approx(60 * limit, rel=0.05, abs=20)

    assert failures(check, *((limit, late) for limit in (3.0, 5.0, 50.0, 190.0) for late in (0.0, 0.003))) == {}


def test_none_at_present() -> None:
    """No poll starts while the share is 0, and the process looks again after a second; a share may grow at any time."""
    limits, share = PollLimits(None), Share(0.0)
    limits.share("journal", share)
    assert opens_at(limits, 10.0) == 11.0
    share.per_second = 5.0
    assert opens_at(limits, 10.0) == 10.0
    count(limits, 10.0)
    assert opens_at(limits, 10.0) == pytest.approx(10.2)
    share.per_second = 2.0
    assert opens_at(limits, 10.0) == pytest.approx(10.5)


def test_the_smallest_limit_holds() -> None:
    """Of the budget's limit, the caller's own and the journal's, the smallest counts, and each can be lifted alone."""

    def check(budget: float | None, own: float | None, share: float) -> None:
        limits = PollLimits(budget)
        limits.limit(own)
        limits.share("journal", Share(share))
        assert len(polls_of(limits, 0.1, 50.1, 0.003)) == pytest.approx(100, abs=1)
        limits.share("journal", None)
        others = [limit for limit in (budget, own) if limit is not None]
        assert len(polls_of(limits, 100.1, 150.1)) == pytest.approx(50 * min(others), abs=1)
        limits.limit(None)
        count(limits, 200.0)
        assert (opens_at(limits, 200.0) == 200.0) is (budget is None)

    assert failures(check, (2, 3, 4), (3, 2, 4), (4, None, 2), (None, 3, 2)) == {}


def test_two_journals() -> None:
    """The smaller of the shares of two journals counts, until it is lifted."""
    limits = PollLimits(None)
    limits.share("one", Share(1.0))
    limits.share("two", Share(4.0))
    assert len(polls_of(limits, 0.0, 50.0)) == pytest.approx(50, abs=1)
    limits.share("one", None)
    assert len(polls_of(limits, 100.0, 150.0)) == pytest.approx(200, abs=1)
    limits.share("two", None)
    assert opens_at(limits, 150.0) == 150.0
