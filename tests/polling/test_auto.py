"""The limit of `per_second="auto"`: cut at refusals and grown between them, a quota is used and hardly exceeded."""

import asyncio
from collections import deque
from itertools import pairwise
from math import inf
from typing import Literal

import pytest

from agentjobs_async import AgentJob, JobRef, JobTracker, PollBudget, RateLimitedError
from agentjobs_async._polling.auto import AutoRate
from tests.polled import clock, every, in_memory, refs
from tests.rows import failures_at_once


def answered(per_second: float, begin: int, end: int) -> AutoRate:
    """Return a limit that has counted so many good answers in each second of a span."""
    rate = AutoRate()
    for second in range(begin, end):
        for number in range(int(per_second)):
            rate.answered(second + number / per_second)
    return rate


def test_no_limit_before_a_refusal() -> None:
    """Without a refusal there is no limit."""
    rate = answered(10, 0, 100)
    assert rate.at(100.0) == inf
    for _ in range(1000):
        assert rate.opens_at(100.0) <= 100.0
        rate.start(100.0)


def test_cut_and_growth() -> None:
    """A refusal leaves 0.8 of what was answered in the last minute; the limit grows by the rest of it a minute."""
    rate = answered(10, 0, 200)
    rate.refused(200.0)
    assert [rate.at(200.0 + later) for later in (0, 30, 60, 120)] == pytest.approx([8, 9, 10, 12])


def test_refusals_in_a_row() -> None:
    """Refusals with no answer in between cut once: of polls in flight together, or by a server that is gone."""
    rate = answered(10, 0, 200)
    for second in [200] * 50 + [*range(201, 401)]:
        rate.refused(float(second))
        assert rate.at(float(second)) >= 8
    assert rate.at(400.0) <= 15


def test_floor() -> None:
    """The limit never falls below 0.2 polls per second, with which the end of a shortage is noticed."""
    rate = AutoRate()
    rate.answered(10.0)
    for second in range(20, 70):
        rate.refused(float(second))
    assert rate.at(69.0) == 0.2


def test_refused_from_the_start() -> None:
    """A server that has never answered has shown no quota, and so sets no limit."""
    rate = AutoRate()
    for second in range(200):
        rate.refused(float(second))
    assert rate.at(200.0) == inf


def test_a_burst_that_uses_a_quota_up() -> None:
    """A burst at the start counts over the time since then, also when slow polls are refused after a whole minute."""
    rate = AutoRate()
    for _ in range(100):
        rate.answered(10.0)
    seen = []
    for later in (1.0, 10.0, 50.0, 62.0):
        rate.refused(10.0 + later)
        seen.append(rate.at(10.0 + later))
    assert seen == pytest.approx([80, 8, 1.6, 80 / 62])


def test_late_starts() -> None:
    """A start that is a few milliseconds late does not delay those after it."""
    rate = answered(10, 0, 100)
    rate.refused(100.0)
    rate.start(100.0)
    due = rate.opens_at(100.0)
    rate.start(due + 0.005)
    assert rate.opens_at(due + 0.005) == pytest.approx(due + 1 / rate.at(due), abs=0.002)


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
async def test_quota() -> None:
    """Polls use four fifths of a quota or more, and few are refused, whatever its span and its refusals' wishes."""

    async def check(quota: Quota, settles: float) -> None:
        async with JobTracker(quota.get_job, policy=every(3), budget=PollBudget(per_second="auto")) as tracker:
            waits = [tracker.watch(ref, timeout=None) for ref in refs(400)]
            await asyncio.sleep(settles)
            begin, refused, answered = clock(), len(quota.refused), len(quota.answered)
            await asyncio.sleep(2 * settles)
            assert quota.share(begin, begin + 2 * settles) >= 0.8
            assert len(quota.refused) - refused <= 0.05 * (len(quota.answered) - answered)
            for wait in waits:
                wait.cancel()

    rows = [
        (Quota(100, 60, None), 600.0),
        (Quota(100, 60, None, by_window=True), 600.0),
        (Quota(100, 60, inf, by_window=True), 600.0),
        (Quota(10, 1, 1.0), 180.0),
    ]
    assert await failures_at_once(check, *rows) == {}


@in_memory
async def test_project_that_is_refused_for_ever() -> None:
    """A project that is refused for ever, as a suspended one is, leaves the quota to the others."""
    quota = Quota(10)

    async def get_job(ref: JobRef) -> AgentJob:
        await asyncio.sleep(0.3)
        if ref.project_id == "gone":
            raise RateLimitedError(429, None, 7.0, "suspended")
        return await quota.get_job(ref)

    async with JobTracker(get_job, policy=every(3), budget=PollBudget(per_second="auto")) as tracker:
        gone = [JobRef("gone", ref.job_id) for ref in refs(8)]
        waits = [tracker.watch(ref, timeout=None) for ref in [*gone, *refs(392)]]
        await asyncio.sleep(900)
        assert quota.share(quota.began + 600, quota.began + 900) >= 0.8
        for wait in waits:
            wait.cancel()


@in_memory
@pytest.mark.parametrize(("changed", "seconds"), [(5, 60), (20, 300)])
async def test_quota_that_changes(changed: int, seconds: float) -> None:
    """A quota that is cut in half is kept within a minute, and one that is doubled is used within five."""
    quota = Quota(10)
    async with JobTracker(quota.get_job, policy=every(3), budget=PollBudget(per_second="auto")) as tracker:
        waits = [tracker.watch(ref, timeout=None) for ref in refs(200)]
        await asyncio.sleep(200)
        begin = clock() + seconds
        quota.count = changed
        await asyncio.sleep(seconds + 300)
        assert quota.share(begin, begin + 300) >= 0.8
        for wait in waits:
            wait.cancel()
    assert len(quota.refused) <= 0.05 * len(quota.answered)


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
