"""The order of due jobs: first in, first out; projects take turns, and jobs of held ones keep their positions."""

from collections import Counter
from itertools import pairwise

import pytest

from agentjobs_async._polling.lane import Lane
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.errors import AgentJobsError, ProtocolError, RateLimitedError, ServerError
from agentjobs_async.models import JobRef


def job(project: str, number: int) -> Tracked:
    return Tracked(JobRef(project, f"job_{number}"), None, 0.0)


def refused(seconds: float = 0.0) -> RateLimitedError:
    return RateLimitedError(429, None, seconds, "slow down")


def filled(*jobs: Tracked) -> Lane:
    """Return a lane with jobs."""
    lane = Lane()
    for tracked in jobs:
        lane.add(tracked, is_held=False)
    return lane


def popped(lane: Lane) -> list[Tracked]:
    """Take all jobs that may be polled."""
    return [lane.pop() for _ in range(lane.ready)]


def hurry(lane: Lane, tracked: Tracked) -> None:
    """Make a job urgent that is in a lane."""
    lane.discard(tracked)
    tracked.hurry(0.0)
    lane.add(tracked, is_held=False)


def test_projects_take_turns() -> None:
    """Projects with few and many jobs go in turns; within a project the order is of arrival."""
    large, small = [job("large", number) for number in range(1000)], [job("small", number) for number in range(10)]
    lane = filled(*large, *small)
    assert lane.ready == 1010
    found = popped(lane)
    assert [tracked for tracked in found if tracked in large] == large
    assert [tracked for tracked in found[:100] if tracked in small] == small
    assert lane.ready == 0


def test_many_projects() -> None:
    """Many projects with one job each do not push the jobs of another one back all at once."""
    lane = filled(job("docs", 0), *(job(f"other_{number}", number) for number in range(50)))
    for number in range(1, 50):
        lane.add(job("docs", number), is_held=False)
    found = [tracked.ref.project_id for tracked in popped(lane)]
    assert sorted(found[-60:]).count("docs") >= 40


def test_no_job_waits_for_long() -> None:
    """Whatever is due again at once, the polls between two of a job are few more than there are jobs."""
    lane, jobs = Lane(), [job("docs" if number < 50 else f"other_{number}", number) for number in range(100)]
    last = dict.fromkeys(jobs, 0)
    for tracked in jobs:
        lane.add(tracked, is_held=False)
    longest = 0
    for number in range(5_000):
        polled = lane.pop()
        longest, last[polled] = max(longest, number - last[polled]), number
        lane.add(polled, is_held=False)
    assert max(longest, *(5_000 - at for at in last.values())) <= 1.15 * len(jobs)


def test_what_is_gone_takes_no_memory() -> None:
    """Projects without jobs and positions that were left take no memory for long, whatever comes and goes."""
    lane, lasting = Lane(), job("docs", 0)
    for number in range(2_000):
        tracked = job(f"project_{number}", number)
        tracked.error = refused() if number % 2 else None
        for each in (tracked, lasting):
            lane.add(each, is_held=False)
            lane.add(lane.pop(), is_held=False)
        lane.hold(f"project_{number}", urgent=number % 3 == 0)
        for each in (tracked, lasting):
            lane.discard(each)
        lane.resume(f"project_{number}")
    assert lane.ready == 0
    assert (
        max(len(stored) for line in lane._lines for stored in (line._jobs, line._turns, line._order, line._in_order))
        <= 2
    )


def test_removed_jobs() -> None:
    """A job that was removed does not come; one that was added again comes once, at its new position."""
    jobs = [job("docs", number) for number in range(4)]
    lane = filled(*jobs)
    for tracked in (jobs[0], jobs[1]):
        lane.discard(tracked)
    lane.add(jobs[1], is_held=False)
    assert popped(lane) == [jobs[2], jobs[3], jobs[1]]


def test_urgent() -> None:
    """Urgent jobs go before others, in order."""
    jobs = [job("docs" if number < 3 else "other", number) for number in range(5)]
    lane = filled(*jobs)
    for tracked in (jobs[4], jobs[2]):
        hurry(lane, tracked)
    assert lane.has_urgent
    assert popped(lane) == [jobs[4], jobs[2], jobs[0], jobs[1], jobs[3]]
    assert not lane.has_urgent


def test_urgent_jobs_without_end() -> None:
    """However many jobs become urgent, every third poll is of another one, unless it must be of an urgent one."""
    urgent, others = [job("urgent", number) for number in range(100)], [job("docs", number) for number in range(10)]
    lane = filled(*others)
    for tracked in urgent:
        tracked.hurry(0.0)
        lane.add(tracked, is_held=False)
    assert [lane.pop(only_urgent=True) for _ in range(10)] == urgent[:10]
    assert [tracked for tracked in popped(lane)[:30] if tracked in others] == others


def test_held_jobs_keep_their_positions() -> None:
    """Jobs of a held project are passed over; then they go in their order, before what came due after them."""
    held, others = [job("held", number) for number in range(10)], [job("other", number) for number in range(100)]
    lane = filled(*held[:5], *others)
    lane.hold("held", urgent=True)
    for tracked in held[5:]:
        lane.add(tracked, is_held=True)
    assert lane.ready == 100
    assert popped(lane) == others
    for tracked in others:
        lane.add(tracked, is_held=False)
    lane.resume("held")
    assert [tracked for tracked in popped(lane)[:9] if tracked in held] == held[:8]


def test_urgent_job_of_a_held_project() -> None:
    """A project that is held for its next poll only lets an urgent job pass, and the others wait."""
    jobs = [job("docs", number) for number in range(3)]
    lane = filled(*jobs)
    lane.hold("docs", urgent=False)
    hurry(lane, jobs[2])
    assert popped(lane) == [jobs[2]]


def test_jobs_without_an_answer() -> None:
    """A job that the server refused for now keeps its position; one that failed otherwise, or was shown, does not."""

    def check(error: Exception | None, *, keeps: bool) -> None:
        jobs = [job("docs", number) for number in range(3)]
        lane = filled(*jobs)
        assert lane.pop() is jobs[0]
        jobs[0].error = error
        lane.add(jobs[0], is_held=False)
        assert popped(lane) == (jobs if keeps else [*jobs[1:], jobs[0]])

    asked: list[AgentJobsError] = [refused(), refused(5.0), ServerError(503, None, 5.0, "later")]
    asked.append(ProtocolError("bad_json", "x", retry_after=5.0))
    for error in asked:
        check(error, keeps=True)
    others: list[Exception | None] = [None, ServerError(500, None, None, "no"), ProtocolError("bad_json", "x")]
    for other in others:
        check(other, keeps=False)


def test_refused_for_ever() -> None:
    """Jobs that are refused again and again get a third of the polls, in turns, and the others the rest."""
    lane, jobs = Lane(), [job("docs", number) for number in range(20)]
    for tracked in jobs:
        lane.add(tracked, is_held=False)
    found = Counter[Tracked]()
    for _ in range(3_000):
        polled = lane.pop()
        found[polled] += 1
        polled.error = refused() if polled in jobs[:10] else None
        lane.add(polled, is_held=False)
    assert [found[tracked] for tracked in jobs[:10]] == pytest.approx([100] * 10, abs=3)
    assert [found[tracked] for tracked in jobs[10:]] == pytest.approx([200] * 10, abs=3)


def test_many_refused_for_ever() -> None:
    """Where most jobs are refused, one that is refused now and then waits for less than two turns, as all others do."""
    lane, jobs = Lane(), [job("docs", number) for number in range(100)]
    for tracked in jobs:
        lane.add(tracked, is_held=False)
    last = dict.fromkeys(jobs, 0)
    longest = 0
    for number in range(5_000):
        polled = lane.pop()
        longest, last[polled] = max(longest, number - last[polled]), number
        polled.error = None if polled in jobs[:10] or (polled is jobs[-1] and polled.error) else refused()
        lane.add(polled, is_held=False)
    assert max(longest, *(5_000 - at for at in last.values())) < 2 * len(jobs)


def test_refusals_do_not_come_in_a_row() -> None:
    """Between two jobs that were refused, others are polled: two refusals in a row hold back the polls of all."""
    jobs = [job("docs" if number % 10 else f"refused_{number}", number) for number in range(100)]
    for tracked in jobs[::10]:
        tracked.error = refused()
    found = [tracked in jobs[::10] for tracked in popped(filled(*jobs))]
    assert sum(found) == 10
    assert not any(first and second for first, second in pairwise(found))
