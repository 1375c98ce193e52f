"""For whom a Retry-After holds, and when the polls that it held back are sent."""

from agentjobs_async import JobRef
from agentjobs_async._polling.pauses import Pauses, RememberedPauses
from tests.rows import failures

A, B = JobRef("docs", "a"), JobRef("docs", "b")
ELSEWHERE = JobRef("elsewhere", "a")


def record(pauses: Pauses, ref: JobRef, status: int) -> bool:
    """Record an answer that no good one overlaps."""
    return pauses.record(ref, status, overlaps=False)


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
    """Two polls that were in flight while a good answer came do not pause all polls."""
    pauses = Pauses()
    for status in (429, 503):
        for ref in (A, ELSEWHERE, A):
            assert not pauses.record(ref, status, overlaps=True)
    assert not record(pauses, A, 429)
    assert record(pauses, ELSEWHERE, 429)


def test_kinds_are_apart() -> None:
    """A limited project and another project's unavailable job are two things, and two jobs of a project are one."""
    pauses = Pauses()
    assert not record(pauses, B, 500)
    assert not record(pauses, A, 429)
    assert not record(pauses, ELSEWHERE, 503)
    assert not record(pauses, B, 429)


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
