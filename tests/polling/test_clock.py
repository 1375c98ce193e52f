"""The clock of the polls, and their pace."""

import pytest

from agentjobs_async._polling.clock import PollClock


def test_runs_with_the_loop() -> None:
    """A clock that was never stopped is the loop's own, and without a pace any poll may start."""
    tempo = PollClock(None)
    assert (tempo.time(7), tempo.due(9, 7), tempo.to_loop(9)) == (7, 9, 9)
    assert (tempo.free, tempo.stopped, tempo.unreachable, tempo.resume_at) == (True, False, False, None)
    assert tempo.resume(7) == 0
    assert [tempo.start(7) for _ in range(3)] == [0, 0, 0]


def test_stands_still() -> None:
    """While it is stopped its time does not go on; afterwards what was due later still is, by the time lost."""
    tempo = PollClock(None)
    due = tempo.due(12, 10)
    tempo.stop(10, 15)
    assert (tempo.free, tempo.stopped, tempo.unreachable, tempo.resume_at) == (False, True, False, 15)
    assert [tempo.time(now) for now in (10, 12, 30)] == [10, 10, 10]
    assert tempo.resume(16) == 6
    assert (tempo.free, tempo.stopped, tempo.resume_at) == (True, False, None)
    assert (tempo.time(16), tempo.to_loop(due)) == (10, 18)
    tempo.stop(20, 21)
    assert tempo.resume(21) == 1
    assert (tempo.to_loop(due), tempo.to_loop(tempo.due(30, 25))) == (19, 30)


@pytest.mark.parametrize(("when", "later"), [(11, 15), (15, 15), (17, 17)])
def test_due_while_it_stands(when: float, later: float) -> None:
    """What is placed while it stands is due at its own loop time, but not before it goes on."""
    tempo = PollClock(None)
    tempo.stop(10, 15)
    due = tempo.due(when, 12)
    tempo.resume(15)
    assert tempo.to_loop(due) == later


def test_due_while_nobody_knows_the_end() -> None:
    """What is placed while the server is gone keeps its delay, counted from when it goes on."""
    tempo = PollClock(None)
    tempo.stop(10, None)
    due = [tempo.due(when, 12) for when in (11, 15)]
    tempo.resume(50)
    assert [tempo.to_loop(time) for time in due] == [50, 53]


@pytest.mark.parametrize(
    ("stops", "resume_at"),
    [
        ([20, 15], 20),
        ([15, 20], 20),
        ([15, None], 15),
        ([None, 15], 15),
        ([None, None], None),
    ],
)
def test_stopped_twice(stops: list[float | None], resume_at: float | None) -> None:
    """The latest wish holds, and a wish stands above not being reachable: it says when to go on."""
    tempo = PollClock(None)
    for number, until in enumerate(stops):
        tempo.stop(10 + number, until)
    assert (tempo.resume_at, tempo.unreachable) == (resume_at, resume_at is None)
    assert tempo.resume(20) == 10


def test_pace() -> None:
    """No two starts are closer than the pace allows, and starts that were not taken are not saved up."""
    tempo = PollClock(4)
    assert not tempo.free
    assert [tempo.start(now) for now in (10, 10, 10.2, 10.25, 10.26)] == [0, 10.25, 10.25, 0, 10.5]
    assert [tempo.start(now) for now in (100, 100.1)] == [0, 100.25]
    assert tempo.start(100.25 - 1e-9) == 0
    assert tempo.start(100.3) == 100.5
