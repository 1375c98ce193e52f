"""The limit that follows from the server's refusals."""

import asyncio
from collections import deque
from itertools import pairwise
from math import inf
from typing import Literal

import pytest

from agentjobs_async import AgentJob, JobRef, JobTracker, PollBudget
from agentjobs_async._polling.adaptive import AdaptiveRate
from agentjobs_async.errors import RateLimitedError
from tests.polled import clock, every, gaps, in_memory, refs
from tests.rows import failures_at_once


def answer(rate: AdaptiveRate, polls: int, begin: float, end: float) -> None:
    """Count polls that were answered at once, evenly over a time."""
    for number in range(polls):
        at = begin + (end - begin) * number / polls
        rate.count(at, at)


def refused(polls: int, begin: float = 100.0, end: float = 112.0) -> AdaptiveRate:
    """Return a rate for which so many polls were answered in a time at whose end one was refused, and the next not."""
    rate = AdaptiveRate()
    answer(rate, polls, begin, end)
    rate.refuse(end, end, end)
    rate.count(end, end)
    return rate


def test_no_limit_before_a_refusal() -> None:
    """Without a refusal there is no limit, but at first only a few polls are in flight, and more with each answer."""
    rate = AdaptiveRate()
    flights = []
    for _ in range(40):
        flights.append(0)
        while rate.next_start(10.0) <= 10.0:
            rate.start(10.0)
            flights[-1] += 1
        answer(rate, flights[-1], 10.0, 10.0)
    assert flights[:2] == [5, 5]
    assert flights == sorted(flights)
    assert flights[-1] > 100
    assert rate.at(112.0) == inf


def test_polls_that_fail_before_a_refusal() -> None:
    """Where polls fail in another way, some of them start nevertheless, until answers come again."""
    rate = AdaptiveRate()
    starts, now = 0, 10.0
    while now < 20.0:
        now = max(now, rate.next_start(now))
        rate.start(now)
        starts += 1
    assert 45 <= starts <= 60


def test_cut_and_regrowth() -> None:
    """A refusal leaves 0.7 of the measured rate; the limit regrows fast, hardly near that rate, then ever faster."""
    rate = refused(600)
    steps = [rate.at(112.0 + seconds) for seconds in (0, 4, 8, 12, 16, 60)]
    assert steps == sorted(steps)
    assert [steps[0], steps[2]] == pytest.approx([35, 49], rel=0.06)
    assert steps[1] - steps[0] > 10 * (steps[3] - steps[2]) > 0
    assert steps[-1] > 100


def test_one_cut_for_one_cause() -> None:
    """Polls that began before a cut, or before the refusals ended, do not cut again."""
    rate = refused(600)
    for began, now in ((111.9, 112.0), (111.9, 115.0)):
        rate.refuse(began, now, now)
    assert rate.at(120.0) == pytest.approx(49, rel=0.06)
    rate.refuse(112.9, 113.1, 113.1)
    assert rate.at(113.1) < 30


def test_trials() -> None:
    """While all polls are refused, single ones try, at intervals that grow from the last limit's to 10 s, and 60 s."""
    rate = AdaptiveRate()
    answer(rate, 100, 100.0, 101.0)
    trials, now = list[float](), 101.0
    while now < 3_000.0:
        rate.refuse(now, now, now)
        now = rate.next_start(now)
        rate.start(now)
        trials.append(now - 101.0)
    between = gaps(trials)
    assert trials[0] == pytest.approx(1 / 70, rel=0.06)
    assert all(later >= before - 1e-6 for before, later in pairwise(between))
    assert between[-1] == pytest.approx(60, abs=0.01)
    assert 10 <= sum(at < 60 for at in trials) <= 24


def test_a_long_span() -> None:
    """How long all polls are refused says over what span a quota is counted: the limit is what was answered in it."""
    rate = AdaptiveRate()
    answer(rate, 100, 100.0, 102.0)
    for now in (102.0, 110.0, 130.0, 155.0):
        rate.refuse(now, now, now)
    rate.count(160.0, 160.0)
    assert 0.9 <= rate.at(170.0) / (100 / 60) <= 1
    assert rate.at(230.0) <= 1.01 * rate.at(170.0)


def test_a_pause_is_no_span() -> None:
    """The time in which the server has asked for a pause says nothing about the span of the quota."""
    rate = AdaptiveRate()
    answer(rate, 600, 100.0, 112.0)
    rate.refuse(112.0, 112.0, 172.0)
    rate.count(172.0, 172.0)
    assert rate.at(180.0) == pytest.approx(49, rel=0.06)


def test_busiest_span() -> None:
    """Time without demand does not count: the measured rate is that of the busiest span of the last ones."""
    rate = AdaptiveRate()
    answer(rate, 100, 100.0, 101.0)
    rate.refuse(103.9, 104.0, 104.0)
    assert rate.at(104.0) == pytest.approx(0.7 * 25, rel=0.1)
    rate = AdaptiveRate()
    answer(rate, 100, 100.0, 101.0)
    rate.refuse(112.0, 112.1, 112.1)
    assert rate.at(112.1) == pytest.approx(0.14)


def test_no_rate_is_known() -> None:
    """Where no poll was answered before the refusals, the limit doubles every 6 s from the first answer on."""
    rate = AdaptiveRate()
    rate.refuse(10.0, 10.0, 20.0)
    rate.count(20.0, 20.0)
    assert [rate.at(20.0), rate.at(26.0)] == pytest.approx([0.14, 0.42])
    assert rate.at(32.0) == pytest.approx(2 * rate.at(26.0))


def test_free_growth() -> None:
    """A limit that has grown beyond the refused rate for a span without a refusal doubles every 6 s."""
    rate = refused(600)
    free = next(now for now in range(112, 200) if rate.at(now) > 1.051 * rate.at(112.0) / 0.7)
    assert rate.at(free) < 1.25 * 50
    assert rate.at(free + 6) == pytest.approx(2 * rate.at(free))
    assert 1e9 < rate.at(1e6) < inf


def test_late_starts() -> None:
    """A start that is a few milliseconds late does not delay those after it, once there is a limit."""
    rate = refused(600)
    due = rate.next_start(112.0)
    rate.start(due + 0.005)
    assert rate.next_start(due + 0.005) == pytest.approx(due + 1 / rate.at(due), abs=0.002)


class Quota:
    """A get-job callable that answers at most `count` polls in any `window` seconds, and refuses the others.

    With `by_window`, the windows follow each other. A refusal asks for a pause of `retry_after` seconds, or where that
    is `inf` until the window is over.
    """

    def __init__(
        self, count: int, window: int = 1, retry_after: float | None = 1.0, *, by_window: bool = False
    ) -> None:
        self.count = count
        self.window = window
        self.retry_after = retry_after
        self.by_window = by_window
        self.began = clock()
        self.answered: list[float] = []
        self.refused: list[float] = []
        self.held = 0.0
        """Seconds in which all jobs were asked to wait, so far."""
        self._held_until = self.began
        self.seen: dict[JobRef, list[tuple[float, float]]] = {}
        """When each job was seen, and `held` by then."""
        self._recent: deque[float] = deque()

    async def get_job(self, ref: JobRef) -> AgentJob:
        now = clock()
        begin = now - (now - self.began) % self.window if self.by_window else now - self.window + 1e-6
        while self._recent and self._recent[0] < begin:
            self._recent.popleft()
        if len(self._recent) >= self.count:
            self.refused.append(now)
            wish = begin + self.window - now if self.retry_after == inf else self.retry_after
            if wish is not None:
                self.held += max(0.0, now + wish - max(now, self._held_until))
                self._held_until = max(self._held_until, now + wish)
            raise RateLimitedError(429, None, wish, "slow down")
        self._recent.append(now)
        self.answered.append(now)
        self.seen.setdefault(ref, [(self.began, 0.0)]).append((now, self.held - max(0.0, self._held_until - now)))
        return AgentJob(ref.job_id, ref.project_id, "active")

    def share(self, begin: float, end: float) -> float:
        """Return how much of the quota the answers used between two times."""
        return sum(begin <= at < end for at in self.answered) * self.window / (self.count * (end - begin))

    def longest_unseen(self) -> float:
        """Return for how long some job was not seen, without the time in which all were asked to wait."""
        pairs = (pair for times in self.seen.values() for pair in pairwise(times))
        return max(end - begin - (held_by_end - held) for (begin, held), (end, held_by_end) in pairs)


@in_memory
@pytest.mark.parametrize("changed", [5, 40])
async def test_quota(changed: int) -> None:
    """Polls use 92 % of a quota, few are refused, and a quota that changes is found within a minute."""
    quota = Quota(10)
    async with JobTracker(quota.get_job, policy=every(3), budget=PollBudget(per_second="auto")) as tracker:
        waits = [tracker.watch(ref, timeout=None) for ref in refs(200)]
        await asyncio.sleep(200)
        begin = clock()
        assert quota.share(begin - 140, begin) >= 0.92
        quota.count = changed
        await asyncio.sleep(200)
        assert quota.share(begin + 60, begin + 200) >= 0.92
        for wait in waits:
            wait.cancel()
    assert len(quota.refused) <= 0.02 * len(quota.answered)


@in_memory
async def test_two_turns() -> None:
    """Under a quota, no job stays unseen for more than two fair turns beside its delay and the pauses asked for."""

    async def check(quota: Quota, per_second: Literal["auto"] | None) -> None:
        async with JobTracker(quota.get_job, policy=every(3), budget=PollBudget(per_second=per_second)) as tracker:
            waits = [tracker.watch(ref, timeout=None) for ref in refs(400)]
            await asyncio.sleep(600)
            assert len(quota.seen) == len(waits)
            for wait in waits:
                wait.cancel()
        assert quota.longest_unseen() <= 3 + 2 * 400 * quota.window / quota.count

    rows: list[tuple[Quota, Literal["auto"] | None]] = [
        (Quota(20, retry_after=5.0), None),
        (Quota(20, retry_after=1.0), "auto"),
        (Quota(20, retry_after=30.0), "auto"),
        (Quota(100, 10, inf, by_window=True), "auto"),
    ]
    assert await failures_at_once(check, *rows) == {}
