"""Whether a poll may start: limits, pauses of all, outages, and what has piled up."""

from collections.abc import Sequence
from math import inf
from typing import Final

import pytest

from agentjobs_async import JobRef
from agentjobs_async._polling.gate import Gate
from agentjobs_async._polling.limiters import PollLimits
from agentjobs_async.errors import NotSentError, RateLimitedError, ServerError
from tests.rows import failures

A, B = JobRef("docs", "a"), JobRef("docs", "b")
ELSEWHERE = JobRef("elsewhere", "a")
GONE: Final = NotSentError("gone", "refused")


def gate_of(jobs: int, delay: float = 5.0, limits: PollLimits | None = None) -> Gate:
    """Return a gate of so many jobs with this delay between two polls, one of which was just answered, at 100 s."""
    gate = Gate(limits or PollLimits(None), range(jobs), 0.0)
    gate.start(99.0)
    good(gate, 100.0, delay)
    return gate


def good(gate: Gate, now: float, delay: float = 5.0, ref: JobRef = A) -> None:
    assert gate.on_answer(ref, None, now, now + delay, now, now) is None


def refused(
    gate: Gate, ref: JobRef, now: float, status: int = 503, wish: float = 60.0, began: float | None = None
) -> float | None:
    """Answer a poll with a wish; return until when its project is held."""
    error = RateLimitedError(429, None, wish, "no") if status == 429 else ServerError(status, None, wish, "no")
    until = now + wish
    return gate.on_answer(ref, error, now if began is None else began, until, until, now)


def unreached(gate: Gate, refs: Sequence[JobRef], now: float) -> None:
    for ref in refs:
        assert gate.on_answer(ref, GONE, now, now + 5.0, now, now) is None


def jobs(count: int) -> list[JobRef]:
    return [JobRef("docs", f"job_{number}") for number in range(count)]


def starts(gate: Gate, begin: float, end: float) -> list[float]:
    """Return when polls start that are due all the time."""
    found, now = [], begin
    while now < end:
        at = gate.opens_at(now)
        if at > now:
            now = at
            continue
        gate.start(now)
        found.append(now)
    return found


def test_pause_of_all() -> None:
    """One source never pauses all polls; two with no good answer between do, and so does each one after them."""

    def check(status: int, other: JobRef) -> None:
        gate = gate_of(9)
        for _ in range(3):
            refused(gate, A, 101.0, status)
            assert gate.opens_at(101.0) == 101.0
        good(gate, 102.0)
        refused(gate, other, 103.0, status)
        assert gate.opens_at(103.0) == 103.0
        refused(gate, A, 103.0, status, 20.0)
        assert gate.opens_at(103.0) == gate.opens_at(103.0, is_urgent=True) == 123.0
        refused(gate, A, 104.0, status)
        assert gate.opens_at(104.0) == 164.0
        good(gate, 105.0)
        assert gate.opens_at(106.0) == 106.0

    assert failures(check, (503, B), (503, ELSEWHERE), (429, ELSEWHERE)) == {}


def test_pause_before_any_delay_is_known() -> None:
    """Where the first answers of all ask for a pause, what waits is spread as well, until a delay is known."""
    gate = Gate(PollLimits(None), range(100), 0.0)
    for ref in (A, B):
        refused(gate, ref, 101.0, wish=20.0)
    assert 100 <= len(starts(gate, 101.0, 141.0)) <= 1.1 * 100 + 1
    good(gate, 141.0)
    assert gate.release_interval(1, 0.0) == pytest.approx(5.0 / 1.1)


def test_kinds_are_apart() -> None:
    """A limited project and another project's unavailable job are two things, and two jobs of a project are one."""
    gate = gate_of(9)
    for ref, status in ((B, 500), (A, 429), (ELSEWHERE, 503), (B, 429)):
        refused(gate, ref, 101.0, status)
    assert gate.opens_at(101.0) == 101.0


def test_overlapped_by_a_good_answer() -> None:
    """Polls that were in flight while a good answer came do not pause all polls."""
    gate = gate_of(9)
    for status in (429, 503):
        for ref in (A, ELSEWHERE, A):
            refused(gate, ref, 101.0, status, began=99.0)
    assert gate.opens_at(101.0) == 101.0


def test_whose_pause_it_is() -> None:
    """A 429 holds its project for as long as it asks, a 503 its job alone."""
    gate = gate_of(9)
    assert [refused(gate, A, 101.0, status, 20.0) for status in (429, 503)] == [121.0, None]


def test_backoffs_of_projects() -> None:
    """A 429 without a wish holds its project for 1 s, doubling; a good answer makes the next one the first of a row."""
    gate = gate_of(9)

    def held(project_id: str, now: float) -> float | None:
        error = RateLimitedError(429, None, None, "no")
        return gate.on_answer(JobRef(project_id, "a"), error, now, now + 5, now, now)

    assert [held("docs", now) for now in (101.0, 102.0)] == [102.0, 104.0]
    assert held("blog", 104.0) == 105.0
    good(gate, 104.5, ref=JobRef("blog", "a"))
    assert [held(name, 105.0) for name in ("docs", "blog")] == [109.0, 106.0]


def test_backoffs_are_bounded() -> None:
    """Of very many projects that are refused, those are kept whose polls are held back."""
    gate = gate_of(9)
    for number in range(5000):
        error = RateLimitedError(429, None, None, "no")
        gate.on_answer(JobRef(f"project_{number}", "a"), error, number, number, number, number)
    assert len(gate._backoffs) <= 1024


def test_outage() -> None:
    """When ten jobs in a row were not reached, one poll goes out per usual delay, until the server answers anything."""
    gate = gate_of(100)
    unreached(gate, jobs(9), 101.0)
    assert gate.opens_at(101.0) == 101.0
    gate.start(101.0)
    unreached(gate, jobs(10)[9:], 101.0)
    assert starts(gate, 101.0, 120.0) == pytest.approx([106, 111, 116], abs=0.05)
    gate.on_answer(A, ServerError(500, None, None, "no"), 120.0, 125.0, 120.0, 120.0)
    assert gate.opens_at(120.0) == 120.0


def test_no_outage() -> None:
    """A few jobs that were not reached make no outage, nor does one job alone, nor many with answers between them."""
    few, alone, answered, again = gate_of(100), gate_of(1), gate_of(100), gate_of(100)
    unreached(few, jobs(9), 101.0)
    unreached(alone, [A, A, A], 101.0)
    unreached(answered, jobs(9), 101.0)
    good(answered, 101.0)
    unreached(answered, jobs(9), 101.0)
    unreached(again, [A] * 30, 101.0)
    assert [gate.opens_at(101.0) for gate in (few, alone, answered, again)] == [101.0] * 4


def test_outage_of_few() -> None:
    """Where there are fewer jobs than ten, all of them make an outage."""
    gate = gate_of(3)
    gate.start(101.0)
    unreached(gate, jobs(3), 101.0)
    assert gate.opens_at(101.0) == pytest.approx(106, abs=0.05)


def test_deadline_in_an_outage() -> None:
    """Polls before deadlines go out in an outage, and the last counts as the one that tries: they add up to no stop."""
    gate = gate_of(100)
    gate.start(101.0)
    unreached(gate, jobs(10), 101.0)
    assert gate.opens_at(103.0, is_urgent=True) == 103.0
    for _ in range(50):
        gate.start(103.0)
    assert gate.opens_at(103.0) == pytest.approx(108, abs=0.05)
    good(gate, 104.0)
    assert len(starts(gate, 104.0, 109.0)) >= 100


def test_jobs_come_and_go() -> None:
    """The pace of what piled up, and whether there is an outage, follow the number of jobs, which changes meanwhile."""
    few, many = list(range(2)), list(range(1000))
    for begin, end in ((few, many), (many[:10], few[:1]), (many[:10], many)):
        tracked = list(begin)
        gate = Gate(PollLimits(None), tracked, 0.0)
        good(gate, 100.0)
        unreached(gate, jobs(10)[: len(begin)], 101.0)
        gate.start(102.0)
        assert gate.opens_at(102.0) == pytest.approx(107.0, abs=0.05)
        tracked[:] = end
        good(gate, 107.0)
        tracked[:] = many
        now = 107.0
        for _ in many:
            now = gate.opens_at(now)
            gate.start(now)
        assert now <= 112.0


def test_what_piled_up_in_an_outage() -> None:
    """After an outage polls go out at the healthy pace, until nothing is due any more."""
    gate = gate_of(100)
    unreached(gate, jobs(10), 101.0)
    gate.start(150.0)
    good(gate, 150.0)
    within = starts(gate, 150.0, 155.0)
    assert 100 <= len(within) <= 1.1 * 100 + 1
    gate.clear()
    assert gate.opens_at(155.0) == 155.0


def test_what_piled_up_in_a_pause() -> None:
    """After a pause of all polls they go out at the healthy pace, too; an urgent one need not wait for that."""
    gate = gate_of(2)
    for ref in (A, B):
        refused(gate, ref, 101.0, wish=10.0)
    assert gate.opens_at(101.0) == 111.0
    gate.start(111.0)
    assert 111.0 + 5.0 / 2.3 < gate.opens_at(111.0) < 111.0 + 5.0 / 2
    assert gate.opens_at(111.0, is_urgent=True) == 111.0


def test_deadlines_while_what_piled_up_leaves() -> None:
    """Polls before deadlines, one after the other without end, don't stop what piled up, which leaves beside them."""
    gate = gate_of(10)
    gate.pile_up(100.0)
    gate.start(100.0)
    left = 0
    for quarter in range(400, 420):
        gate.start(quarter / 4)
        left += len(starts(gate, quarter / 4, quarter / 4 + 0.25))
    assert 10 <= left <= 1.1 * 10 + 1


def test_what_takes_long_to_leave() -> None:
    """What has not left after a usual delay leaves faster, up to three times as fast."""
    gate = gate_of(10)
    gate.pile_up(100.0)
    gate.start(100.0)
    left = [len(starts(gate, begin, begin + 5.0)) for begin in (100.0, 105.0, 110.0, 115.0, 120.0)]
    assert 10 <= left[0] <= 12
    assert left == sorted(left)
    assert 32 <= left[3] <= left[4] <= 34


def test_usual_delay() -> None:
    """The usual delay is the mean of the policy's; what the server asked for is none."""
    gate = gate_of(4, delay=2.0)
    for number in range(400):
        good(gate, 100.0, 6.0 if number % 2 else 2.0)
        refused(gate, A, 100.0, 500, 60.0)
    assert 3.9 < 1.1 * 4 * gate.release_interval(4, 0.0) < 4.1


def test_limits_hold_for_all() -> None:
    """What a budget allows holds for urgent polls, too."""
    gate = gate_of(9, limits=PollLimits(0.5))
    gate.start(101.0)
    assert gate.opens_at(101.0) == gate.opens_at(101.0, is_urgent=True) == 103.0
    assert gate_of(9).opens_at(100.0) == 100.0
    assert gate_of(9, delay=inf).opens_at(100.0) == 100.0
