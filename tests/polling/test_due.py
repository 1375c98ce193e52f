"""The order of due jobs: first in, first out; projects take turns, and held ones keep their positions."""

from collections import Counter
from itertools import pairwise

import pytest

from agentjobs_async._polling.due import DueJobs
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.errors import AgentJobsError, ProtocolError, RateLimitedError, ServerError
from agentjobs_async.models import JobRef


def job(project: str, number: int) -> Tracked:
    return Tracked(JobRef(project, f"job_{number}"), None, 0.0)


def refused(seconds: float = 0.0) -> RateLimitedError:
    return RateLimitedError(429, None, seconds, "slow down")


def filled(*jobs: Tracked) -> DueJobs:
    """Return due jobs that were added at the time 100."""
    due = DueJobs()
    for tracked in jobs:
        due.add(tracked, 100.0)
    return due


def popped(due: DueJobs, now: float = 100.0) -> list[Tracked]:
    """Take all jobs that may be polled."""
    found = []
    while (tracked := due.pop(now)) is not None:
        found.append(tracked)
    return found


def hurry(due: DueJobs, tracked: Tracked) -> None:
    """Make a job urgent that is due."""
    due.discard(tracked)
    tracked.is_urgent = True
    due.add(tracked, 100.0)


def test_projects_take_turns() -> None:
    """Projects with few and many jobs go in turns; within a project the order is of arrival."""
    large, small = [job("large", number) for number in range(1000)], [job("small", number) for number in range(10)]
    due = filled(*large, *small)
    assert (len(due), due.ready) == (1010, 1010)
    found = popped(due)
    assert [tracked for tracked in found if tracked in large] == large
    assert [tracked for tracked in found[:100] if tracked in small] == small
    assert (len(due), due.ready) == (0, 0)


def test_many_projects() -> None:
    """Many projects with one job each do not push the jobs of another one back all at once."""
    due = filled(job("docs", 0), *(job(f"other_{number}", number) for number in range(50)))
    for number in range(1, 50):
        due.add(job("docs", number), 100.0)
    found = [tracked.ref.project_id for tracked in popped(due)]
    assert sorted(found[-60:]).count("docs") >= 40


def test_no_job_waits_for_long() -> None:
    """Whatever is due again at once, the polls between two of a job are few more than there are jobs."""
    due, jobs = DueJobs(), [job("docs" if number < 50 else f"other_{number}", number) for number in range(100)]
    last = dict.fromkeys(jobs, 0)
    for tracked in jobs:
        due.add(tracked, 100.0)
    longest = 0
    for number in range(5_000):
        polled = due.pop(100.0)
        assert polled is not None
        longest, last[polled] = max(longest, number - last[polled]), number
        due.add(polled, 100.0)
    assert max(longest, *(5_000 - at for at in last.values())) <= 1.15 * len(jobs)


def test_what_is_gone_takes_no_memory() -> None:
    """Projects without jobs and positions that were left take no memory for long, whatever comes and goes."""
    due = DueJobs()
    lasting = job("docs", 0)
    for number in range(2_000):
        tracked = job(f"project_{number}", number)
        tracked.error = refused() if number % 2 else None
        for each in (tracked, lasting):
            due.add(each, 100.0)
            due.add(due.pop(100.0) or each, 100.0)
            if number % 3 == 0:
                hurry(due, each)
        for each in (tracked, lasting):
            due.discard(each)
            each.is_urgent = False
        due.hold(f"project_{number}", 100.0 + number % 2, 1.0, 100.0)
        due.wake(102.0)
    popped(due, 102.0)
    assert len(due) == 0
    lines = [len(stored) for line in due._lines for stored in (line._jobs, line._turns, line._order, line._in_order)]
    assert max([*lines, len(due._holds), len(due._rests)]) <= 2


def test_removed_jobs() -> None:
    """A job that was removed does not come; one that was added again comes once, at its new position."""
    jobs = [job("docs", number) for number in range(4)]
    due = filled(*jobs)
    for tracked in (jobs[0], jobs[1]):
        due.discard(tracked)
    due.add(jobs[1], 100.0)
    assert popped(due) == [jobs[2], jobs[3], jobs[1]]


def test_urgent() -> None:
    """Urgent jobs go before all others, in order, also before a slow one that was set aside first."""
    jobs = [job("docs" if number < 3 else "other", number) for number in range(5)]
    due = filled(*jobs)
    for tracked in (jobs[4], jobs[2]):
        hurry(due, tracked)
    assert due.has_urgent()
    assert [due.pop(100.0) for _ in range(2)] == [jobs[4], jobs[2]]
    assert not due.has_urgent()
    due.put_aside(jobs[0])
    due.put_aside(jobs[2])
    assert [due.pop_aside(100.0) for _ in range(2)] == [jobs[2], jobs[0]]


def test_held_jobs_keep_their_positions() -> None:
    """A pause concerns its project alone. Its jobs go out after it in their order, the refused one first, spread."""
    held, others = [job("held", number) for number in range(10)], [job("other", number) for number in range(100)]
    due = filled(*held, *others)
    assert due.pop(100.0) is held[0]
    held[0].error = refused(2.0)
    due.hold("held", 103.0, 6.0, 100.0)
    due.hold("held", 105.0, 6.0, 101.0)
    due.hold("held", 104.0, 6.0, 102.0)
    due.add(held[0], 102.0)
    assert (due.ready, len(due), due.wakes_at()) == (100, 110, 103.0)
    due.wake(103.0)
    assert (popped(due, 103.0), due.wakes_at()) == (others, 105.0)
    found = []
    while len(due):
        now = due.wakes_at()
        due.wake(now)
        found += [(now, tracked) for tracked in popped(due, now)]
    assert [tracked for _, tracked in found] == held
    assert [at for at, _ in found] == pytest.approx([105 + 0.6 * number for number in range(10)])


def test_what_comes_due_after_a_pause() -> None:
    """Polls that come due while a backlog goes out come on top of it, and the oldest go first."""
    jobs = [job("docs", number) for number in range(20)]
    due = filled(*jobs[:10])
    due.hold("docs", 110.0, 1.0, 100.0)
    due.wake(110.0)
    found = popped(due, 110.0)
    for tracked in jobs[10:]:
        due.add(tracked, 110.0)
        due.wake(110.0)
        found += popped(due, 110.0)
    assert found == jobs[:11]


def test_jobs_without_an_answer() -> None:
    """A job that the server refused for now keeps its position; one that failed otherwise, or was shown, does not."""

    def check(error: Exception | None, *, keeps: bool) -> None:
        jobs = [job("docs", number) for number in range(3)]
        due = filled(*jobs)
        assert due.pop(100.0) is jobs[0]
        jobs[0].error = error
        due.add(jobs[0], 100.0)
        assert popped(due) == (jobs if keeps else [*jobs[1:], jobs[0]])

    asked: list[AgentJobsError] = [refused(), refused(5.0), ServerError(503, None, 5.0, "later")]
    asked.append(ProtocolError("bad_json", "x", retry_after=5.0))
    for error in asked:
        check(error, keeps=True)
    others: list[Exception | None] = [None, ServerError(500, None, None, "no"), ProtocolError("bad_json", "x")]
    for other in others:
        check(other, keeps=False)


def test_refused_for_ever() -> None:
    """Jobs that are refused again and again get a third of the polls, in turns, and the others the rest."""
    due, jobs = DueJobs(), [job("docs", number) for number in range(20)]
    for tracked in jobs:
        due.add(tracked, 100.0)
    found = Counter[Tracked]()
    for _ in range(3_000):
        polled = due.pop(100.0)
        assert polled is not None
        found[polled] += 1
        polled.error = refused() if polled in jobs[:10] else None
        due.add(polled, 100.0)
    assert [found[tracked] for tracked in jobs[:10]] == pytest.approx([100] * 10, abs=3)
    assert [found[tracked] for tracked in jobs[10:]] == pytest.approx([200] * 10, abs=3)


def test_many_refused_for_ever() -> None:
    """Where most jobs are refused, one that is refused now and then waits for less than two turns, as all others do."""
    due, jobs = DueJobs(), [job("docs", number) for number in range(100)]
    for tracked in jobs:
        due.add(tracked, 100.0)
    last = dict.fromkeys(jobs, 0)
    longest = 0
    for number in range(5_000):
        polled = due.pop(100.0)
        assert polled is not None
        longest, last[polled] = max(longest, number - last[polled]), number
        polled.error = None if polled in jobs[:10] or (polled is jobs[-1] and polled.error) else refused()
        due.add(polled, 100.0)
    assert max(longest, *(5_000 - at for at in last.values())) < 2 * len(jobs)


def test_refusals_do_not_come_in_a_row() -> None:
    """Between two jobs that were refused, others are polled: two refusals in a row hold back the polls of all."""
    jobs = [job("docs" if number % 10 else f"refused_{number}", number) for number in range(100)]
    for tracked in jobs[::10]:
        tracked.error = refused()
    found = [tracked in jobs[::10] for tracked in popped(filled(*jobs))]
    assert sum(found) == 10
    assert not any(first and second for first, second in pairwise(found))
