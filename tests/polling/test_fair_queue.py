"""The queue in which projects take turns, and jobs go by what a poll gains."""

from collections import Counter
from itertools import count, pairwise

import pytest

from agentjobs_async._polling.fair_queue import FairQueue
from agentjobs_async._polling.stats import Second
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef


def due(project: str, number: int, seen: float = 0.0) -> Tracked:
    """Return a job that was last seen at `seen`."""
    return Tracked(JobRef(project, f"job_{number}"), None, seen, Second(0))


def filled(jobs: list[Tracked]) -> FairQueue:
    """Return a queue to which the jobs were added at the time 100."""
    queue = FairQueue(lambda: 100.0)
    for tracked in jobs:
        queue.append(tracked)
    return queue


def taken(queue: FairQueue) -> list[Tracked]:
    """Take all jobs."""
    return [queue.popleft() for _ in range(len(queue))]


def test_projects_take_turns() -> None:
    """Projects with few and many jobs go in turns; within a project the order is of arrival."""
    large, small = [due("large", number) for number in range(1000)], [due("small", number) for number in range(10)]
    queue = filled(large + small)
    assert (len(queue), list(queue)) == (1010, large + small)
    found = taken(queue)
    assert [tracked for tracked in found if tracked in large] == large
    assert [tracked for tracked in found[:100] if tracked in small] == small
    assert not queue
    with pytest.raises(IndexError):
        queue.popleft()


def test_many_projects() -> None:
    """Many projects with one job each do not push the jobs of another one back all at once."""
    queue = filled([due("docs", 0), *(due(f"other_{number}", number) for number in range(50))])
    for number in range(1, 50):
        queue.append(due("docs", number))
    found = [tracked.ref.project_id for tracked in taken(queue)]
    assert sorted(found[-60:]).count("docs") >= 40
    assert len(queue._projects) <= 51


def test_failing_jobs() -> None:
    """Jobs whose last poll failed keep the order of arrival: those of many projects do not come close together."""
    jobs = [due("docs" if number % 10 else f"broken_{number}", number) for number in range(100)]
    for number in range(0, 100, 10):
        jobs[number].in_trouble().error = ConnectionError("reset")
    found = [tracked.error is not None for tracked in taken(filled(jobs))]
    assert sum(found) == 10
    assert not any(first and second for first, second in pairwise(found))


def test_projects_are_forgotten() -> None:
    """A project without jobs takes no memory once its turn has come."""
    queue = filled([due(f"project_{number}", number) for number in range(100)])
    taken(queue)
    queue.append(due("docs", 0))
    queue.append(due("docs", 1))
    taken(queue)
    assert len(queue._projects) <= 100
    queue.clear()
    assert (len(queue), len(queue._projects), len(queue._turns)) == (0, 0, 0)


def test_removed_jobs() -> None:
    """A job that was removed does not come; one that was added again comes once, at its new place."""
    jobs = [due("docs", number) for number in range(4)]
    queue = filled(jobs)
    for tracked in (jobs[0], jobs[1], due("docs", 9)):
        queue.discard(tracked)
    queue.append(jobs[1])
    assert taken(queue) == [jobs[2], jobs[3], jobs[1]]


def test_most_to_gain() -> None:
    """Under a limit, the job of the shortest delay comes first, unless another has missed its turn for long."""
    jobs = [due("docs", number, seen) for number, seen in enumerate((10.0, 20.0, 30.0, 90.0, 98.0))]
    assert taken(filled(jobs)) == [jobs[0], jobs[1], jobs[2], jobs[4], jobs[3]]


def test_delays_are_stretched_alike() -> None:
    """Under pressure jobs are polled the more often, the shorter their delays are; none waits for two turns."""
    now = 0.0
    queue, jobs = FairQueue(lambda: now), [due("docs", number) for number in range(100)]
    delays = {tracked: 2.0 if number < 50 else 8.0 for number, tracked in enumerate(jobs)}
    later, polls, gaps, last = dict.fromkeys(jobs, 0.0), Counter[Tracked](), Counter[Tracked](), dict.fromkeys(jobs, 0)
    for number in count():
        for tracked in [tracked for tracked, time in later.items() if time <= now]:
            del later[tracked]
            queue.append(tracked)
        now += 1.0
        polled = queue.popleft()
        if number == 5_000:
            break
        gaps[polled] = max(gaps[polled], number - last[polled])
        polls[polled] += 1
        last[polled], polled.seen = number, now
        later[polled] = now + delays[polled]
    often = sum(polls[tracked] for tracked in jobs[:50])
    assert 1.7 <= often / (polls.total() - often) <= 4
    assert max(gaps.values()) <= 2 * len(jobs)
    assert len(queue._projects["docs"].jobs) <= 3 * len(jobs)


def test_many_first_jobs() -> None:
    """The first jobs get their places bit by bit: those of a small project behind many soon have their turns."""
    large, small = [due("large", number) for number in range(1000)], [due("small", number) for number in range(10)]
    queue = FairQueue(lambda: 100.0, large + small)
    assert (len(queue), list(queue)) == (1010, large + small)
    queue.discard(large[500])
    queue.append(due("late", 0))
    found = taken(queue)
    assert len(found) == 1010
    assert len(set(found)) == 1010
    assert large[500] not in found
    assert all(tracked in found[:100] for tracked in small)
