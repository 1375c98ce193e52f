"""For whom a Retry-After holds, and when the polls that it held back are sent."""

import pytest

from agentjobs_async import JobRef
from agentjobs_async._polling.pauses import Pauses, RememberedPauses
from tests.rows import failures

A, B = JobRef("docs", "a"), JobRef("docs", "b")
ELSEWHERE = JobRef("elsewhere", "a")
NEVER = float("-inf")


def record(pauses: Pauses, ref: JobRef, status: int, until: float = 10.0, now: float = 0.0, delay: float = 3.0) -> bool:
    """Record an answer that no good one overlaps."""
    return pauses.record(ref, status, until, max(until, now + delay), now, overlaps=False)


def test_jobs_and_projects() -> None:
    """A 429 pauses its project, a 503 none; another status is nothing."""
    pauses = Pauses()
    assert not record(pauses, A, 503)
    assert not record(pauses, A, 500)
    assert pauses.projects == {}
    assert not record(pauses, A, 429)
    assert (pauses.until("docs", 9.0), pauses.until("elsewhere", 9.0)) == (10.0, NEVER)


def test_two_make_all() -> None:
    """One source never pauses all polls; two with no good answer between do, and so does each one after them."""

    def check(status: int, other: JobRef) -> None:
        pauses = Pauses()
        assert not any(record(pauses, A, status) for _ in range(3))
        pauses.answered()
        assert not record(pauses, other, status)
        assert record(pauses, A, status)
        assert record(pauses, A, status)
        pauses.answered()
        assert not record(pauses, A, status)

    assert failures(check, (503, B), (503, ELSEWHERE), (429, ELSEWHERE)) == {}


def test_overlapped_by_a_good_answer() -> None:
    """Two polls that were in flight while a good answer came do not pause all polls; the project of a 429 pauses."""
    pauses = Pauses()
    for status in (429, 503):
        for ref in (A, ELSEWHERE, A):
            assert not pauses.record(ref, status, 10.0, 13.0, 0.0, overlaps=True)
    assert (pauses.until("docs", 9.0), pauses.until("elsewhere", 9.0)) == (10.0, 10.0)
    assert not record(pauses, A, 429)
    assert record(pauses, ELSEWHERE, 429)


def test_kinds_are_apart() -> None:
    """A limited project and another project's unavailable job are two things, and two jobs of a project are one."""
    pauses = Pauses()
    assert not record(pauses, A, 429)
    assert not record(pauses, ELSEWHERE, 503)
    assert not record(pauses, B, 429)


def test_longest_pause_of_a_project() -> None:
    """Of several pauses of a project the longest holds; one that comes after its end is a new one."""
    pauses = Pauses()
    for until in (5.0, 9.0, 3.0):
        record(pauses, A, 429, until, 1.0)
    assert pauses.until("docs", 8.9) == 9.0
    assert pauses.until("docs", 9.0) == NEVER
    assert pauses.projects == {}
    record(pauses, A, 429, 12.0, 10.0)
    assert pauses.until("docs", 11.0) == 12.0


def test_projects_that_are_gone() -> None:
    """Pauses of projects that are never asked for again do not fill the memory."""
    pauses = Pauses()
    for number in range(10_000):
        record(pauses, JobRef(f"project_{number}", "a"), 429, number + 5.0, float(number))
    assert len(pauses.projects) <= 70


def test_spacing() -> None:
    """Polls that come due in a pause keep their spacing after it; after a short pause over their usual delay."""

    def check(seconds: float, delay: float, factor: float) -> None:
        pauses = Pauses()
        record(pauses, A, 429, 100 + seconds, 100.0, delay)
        for into in (0.2 * seconds, 0.5 * seconds, 0.9 * seconds):
            released = pauses.release("docs", 100 + into, first=False)
            assert released == pytest.approx(100 + seconds + factor * into)

    rows = (60.0, 9.0, 1), (6.0, 6.0, 1), (3.0, 9.0, 3), (1.0, 3.0, 3), (2.0, 300.0, 5)
    assert failures(check, *rows) == {}


def test_backlog() -> None:
    """Polls due before a pause, and first polls, are spread evenly over at most 10 s after it."""

    def check(seconds: float, over: float, count: int) -> None:
        for first in (True, False):
            pauses = Pauses()
            record(pauses, A, 429, 100 + seconds, 100.0)
            now = 100 + seconds / 2 if first else 100.1
            released = sorted(pauses.release("docs", now, first=first) - 100 - seconds for _ in range(count))
            assert released[0] == 0
            assert released[-1] < over
            for start in range(10):
                within = sum(start <= 10 * at / over < start + 1 for at in released)
                assert abs(within - count / 10) <= 2

    spans = (60.0, 10.0), (4.0, 4.0), (1.0, 3.0)
    assert failures(check, *((*span, count) for span in spans for count in (1, 2, 10, 1000))) == {}


def test_remembered_pause() -> None:
    """The pause of a job is remembered until the next wait takes it, and no longer than it lasts."""
    remembered = RememberedPauses()
    remembered.remember(A, 10.0, 1.0)
    assert [remembered.take(ref, 5.0) for ref in (B, A, A)] == [5.0, 10.0, 5.0]
    remembered.remember(A, 10.0, 1.0)
    assert remembered.take(A, 12.0) == 12.0


def test_remembered_pauses_are_bounded() -> None:
    """A bounded number of pauses is remembered; those that are over make room."""
    remembered = RememberedPauses()
    for start in (0.0, 100.0):
        for number in range(1100):
            remembered.remember(JobRef("docs", f"job_{start}_{number}"), start + 50, start)
        assert list(remembered._until.values()) == [start + 50] * 1024
