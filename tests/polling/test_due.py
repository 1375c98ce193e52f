"""The order of due jobs: projects take turns, jobs go by what a poll gains, and held ones keep their places."""

from collections import Counter
from itertools import count, pairwise

import pytest

from agentjobs_async._polling.due import DueJobs
from agentjobs_async._polling.stats import Second
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef


def job(project: str, number: int, seen: float = 0.0) -> Tracked:
    """Return a job that was last seen at `seen`."""
    return Tracked(JobRef(project, f"job_{number}"), None, seen, Second(0))


def filled(*jobs: Tracked) -> DueJobs:
    """Return due jobs that were added at the time 100."""
    due = DueJobs()
    for tracked in jobs:
        due.add(tracked, 100.0)
    return due


def taken(due: DueJobs, now: float = 101.0) -> list[Tracked]:
    """Take all jobs that may be polled."""
    found = []
    while (tracked := due.take(now)) is not None:
        found.append(tracked)
    return found


def test_projects_take_turns() -> None:
    """Projects with few and many jobs go in turns; within a project the order is of arrival."""
    large, small = [job("large", number) for number in range(1000)], [job("small", number) for number in range(10)]
    due = filled(*large, *small)
    assert (len(due), due.ready) == (1010, 1010)
    found = taken(due)
    assert [tracked for tracked in found if tracked in large] == large
    assert [tracked for tracked in found[:100] if tracked in small] == small
    assert (len(due), due.ready) == (0, 0)


def test_many_projects() -> None:
    """Many projects with one job each do not push the jobs of another one back all at once."""
    due = filled(job("docs", 0), *(job(f"other_{number}", number) for number in range(50)))
    for number in range(1, 50):
        due.add(job("docs", number), 100.0)
    found = [tracked.ref.project_id for tracked in taken(due)]
    assert sorted(found[-60:]).count("docs") >= 40


def test_failing_jobs() -> None:
    """Jobs whose last poll failed keep the order of arrival: those of many projects do not come close together."""
    jobs = [job("docs" if number % 10 else f"broken_{number}", number) for number in range(100)]
    for number in range(0, 100, 10):
        jobs[number].error = ConnectionError("reset")
    found = [tracked.error is not None for tracked in taken(filled(*jobs))]
    assert sum(found) == 10
    assert not any(first and second for first, second in pairwise(found))


def test_what_is_gone_takes_no_memory() -> None:
    """Projects without jobs and places that were left take no memory for long, whatever comes and goes."""
    due = DueJobs()
    lasting = job("docs", 0)
    for number in range(2_000):
        tracked = job(f"project_{number}", number)
        for each in (tracked, lasting):
            each.mark = None
            due.add(each, 100.0)
            due.add(due.take(100.0) or each, 100.0, urgent=number % 3 == 0)
        for each in (tracked, lasting):
            due.discard(each)
        due.hold(f"project_{number}", 100.0 + number % 2, 1.0, 100.0)
        due.wake(102.0)
    taken(due, 102.0)
    project = due._projects.get("docs")
    sizes = [len(due._projects), len(due._known), len(due._turns), len(due._resting)]
    assert len(due) == 0
    assert max([*sizes, len(project.oldest) if project else 0, len(project.gains) if project else 0]) <= 200


def test_removed_jobs() -> None:
    """A job that was removed does not come; one that was added again comes once, at its new place."""
    jobs = [job("docs", number) for number in range(4)]
    due = filled(*jobs)
    for tracked in (jobs[0], jobs[1]):
        due.discard(tracked)
        tracked.mark = None
    due.add(jobs[1], 100.0)
    assert taken(due) == [jobs[2], jobs[3], jobs[1]]


def test_most_to_gain() -> None:
    """The job of the shortest delay comes first, unless another has missed its turn for long."""
    jobs = [job("docs", number, seen) for number, seen in enumerate((10.0, 20.0, 30.0, 90.0, 98.0))]
    assert taken(filled(*jobs)) == [jobs[0], jobs[1], jobs[2], jobs[4], jobs[3]]


def test_delays_are_stretched_alike() -> None:
    """Under pressure jobs are polled the more often, the shorter their delays are; none waits for two turns."""
    now = 0.0
    due, jobs = DueJobs(), [job("docs", number) for number in range(100)]
    delays = {tracked: 2.0 if number < 50 else 8.0 for number, tracked in enumerate(jobs)}
    later, polls, gaps, last = dict.fromkeys(jobs, 0.0), Counter[Tracked](), Counter[Tracked](), dict.fromkeys(jobs, 0)
    for number in count():
        for tracked in [tracked for tracked, time in later.items() if time <= now]:
            del later[tracked]
            due.add(tracked, now)
        now += 1.0
        polled = due.take(now)
        if number == 5_000 or polled is None:
            break
        gaps[polled] = max(gaps[polled], number - last[polled])
        polls[polled] += 1
        last[polled], polled.seen, polled.mark = number, now, None
        later[polled] = now + delays[polled]
    often = sum(polls[tracked] for tracked in jobs[:50])
    assert 1.7 <= often / (polls.total() - often) <= 4
    assert max(gaps.values()) <= 2 * len(jobs)
    assert len(due._projects["docs"].gains) <= 3 * len(jobs)


def test_urgent() -> None:
    """Urgent jobs go before all others, in order, also before a slow one that was set aside first."""
    jobs = [job("docs" if number < 3 else "other", number) for number in range(5)]
    due = filled(*jobs)
    for tracked in (jobs[4], jobs[2]):
        due.discard(tracked)
        due.add(tracked, 100.0, urgent=True)
    assert due.has_urgent()
    assert [due.take(100.0) for _ in range(2)] == [jobs[4], jobs[2]]
    assert not due.has_urgent()
    due.put_aside(jobs[0])
    due.put_aside(jobs[2])
    assert [due.take_aside(100.0) for _ in range(2)] == [jobs[2], jobs[0]]


def test_held_jobs_keep_their_places() -> None:
    """A pause concerns its project alone. Its jobs go out after it in their order, the refused one first, spread."""
    held, others = [job("held", number) for number in range(10)], [job("other", number) for number in range(100)]
    due = filled(*held, *others)
    refused = due.take(100.0)
    assert refused is held[0]
    due.hold("held", 103.0, 6.0, 100.0)
    due.hold("held", 105.0, 6.0, 101.0)
    due.hold("held", 104.0, 6.0, 102.0)
    due.add(held[0], 102.0)
    assert (due.ready, len(due), due.wakes_at()) == (100, 110, 103.0)
    due.wake(103.0)
    assert (taken(due, 103.0), due.wakes_at()) == (others, 105.0)
    found = []
    while len(due):
        now = due.wakes_at()
        due.wake(now)
        found += [(now, tracked) for tracked in taken(due, now)]
    assert [tracked for _, tracked in found] == held
    assert [at for at, _ in found] == pytest.approx([105 + 0.6 * number for number in range(10)])


def test_what_comes_due_after_a_pause() -> None:
    """Polls that come due while a backlog goes out come on top of it, and the oldest go first."""
    jobs = [job("docs", number) for number in range(20)]
    due = filled(*jobs[:10])
    due.hold("docs", 110.0, 1.0, 100.0)
    due.wake(110.0)
    found = taken(due, 110.0)
    for tracked in jobs[10:]:
        due.add(tracked, 110.0)
        due.wake(110.0)
        found += taken(due, 110.0)
    assert found == jobs[:11]


def test_refused_for_ever() -> None:
    """Jobs that are refused again and again keep their places, and get every second poll at most."""
    now = 100.0
    due, refused = DueJobs(), [job("docs", number) for number in range(3)]
    for tracked in refused:
        tracked.error = ConnectionError("503")
    found = Counter[bool]()
    healthy = [job("docs", number) for number in range(3, 10)]
    for tracked in (*refused, *healthy):
        due.add(tracked, now)
    for _ in range(1_000):
        polled = due.take(now)
        assert polled is not None
        found[polled in refused] += 1
        if polled not in refused:
            polled.mark, polled.seen = None, now
        now += 1
        due.add(polled, now)
    assert found[False] >= 500
