from attrs import evolve

from agentjobs_async import Estimate
from agentjobs_async.batch import Rate, State
from agentjobs_async.batch._workers import WorkerState
from agentjobs_async.cli._output.fleet_view import FleetView, fleet_line, fleet_lines

COUNTS = dict.fromkeys(State, 0) | {State.COMPLETED: 30, State.FAILED: 9, State.ACTIVE: 1, State.PLANNED: 60}
WORKERS = [WorkerState("host-a:12", 1, 3.0, is_dead=False), WorkerState("host-b:7", 0, 95.0, is_dead=True)]


def view(ends_per_second: float | None = 0.01, rate: Rate | None = None, workers: object = WORKERS) -> FleetView:
    return FleetView(COUNTS, ends_per_second, rate, workers, 0.0)  # type: ignore[arg-type]  # what the tests give


def text(lines: object) -> list[str]:
    return ["".join(part if isinstance(part, str) else part[0] for part in line) for line in lines]  # type: ignore[attr-defined]  # lines of parts


def test_on_a_terminal() -> None:
    """A terminal gets the counts, the rate, the end, and each worker with its last heartbeat."""
    first, second, *workers = text(fleet_lines(view(), 80, 24))
    assert first == "39 of 100 ended (39 %), 30 completed, 9 failed, 1 active, 60 planned"
    assert second.startswith("36 ended per hour; end about ")
    assert second.endswith(", in 1.7 h")
    assert workers == [
        "WORKER    ACTIVE  LAST HEARTBEAT",
        "host-a:12      1  3 s ago",
        "host-b:7       0  2 min ago, counts as dead",
    ]


def test_large_numbers() -> None:
    """Numbers of a thousand and more have separators, as in the live view of a run."""
    large = evolve(view(ends_per_second=1.0), counts=COUNTS | {State.COMPLETED: 30_000})
    first, second, *_ = text(fleet_lines(large, 100, 24))
    assert first == "30,009 of 30,070 ended (99 %), 30,000 completed, 9 failed, 1 active, 60 planned"
    assert second.startswith("3,600 ended per hour; end about ")


def test_time_left() -> None:
    """Where it is known, it tells how long the active jobs have left, if the terminal has room."""
    found = view()
    known = evolve(found, active_left=Estimate(120.0, 300.0))
    words = "an active job ends in about 2 min, 9 of 10 within 5 min"
    assert text(fleet_lines(known, 80, 24))[2] == words
    assert text(fleet_lines(known, 80, 3)) == text(fleet_lines(found, 80, 3))
    assert words in fleet_line(known)


def test_nobody_is_at_work() -> None:
    """Where no process works on the journal, no end is told: it would never come."""
    idle = "no process works on it; agentjobs resume continues"
    unseen = "no active job was seen for 25 min: no run polls them, or no server answers"
    for found, words in (
        (view(workers=[]), idle),
        (view(workers=[WORKERS[1]]), idle),
        (evolve(view(workers=None), unseen_for=1500.0), unseen),
    ):
        assert text(fleet_lines(found, 80, 24))[1] == words
        assert f"; {words}" in fleet_line(found)


def test_colour_of_what_nobody_works_on() -> None:
    """Only work that is left and stands still is coloured."""
    idle = view(workers=[])
    done = evolve(idle, counts=dict.fromkeys(State, 0) | {State.COMPLETED: 3})
    for found, style in ((idle, "yellow"), (done, ""), (view(), "")):
        pace = list(fleet_lines(found, 80, 24))[1]
        assert [part[1] for part in pace] == [style]


def test_no_terminal_is_too_small() -> None:
    """No line is wider than the terminal, nor are there more lines than it has; workers left out are counted."""
    many = [WorkerState(f"a-host-with-a-very-long-name-of-its-own:{n}", n, 3.0, is_dead=n % 2 == 0) for n in range(40)]
    for width, height in ((80, 24), (60, 24), (40, 24), (20, 5), (80, 3), (80, 2)):
        lines = text(fleet_lines(view(workers=many), width, height))
        assert max(map(len, lines)) <= width, (width, height)
        assert len(lines) <= max(height, 3), (width, height)
        assert height < 24 or lines[-1] == "… and 20 more", (width, height)
    assert text(fleet_lines(view(), 30, 24))[-1] == "host-b:7       0  2 min ago,…"


def test_in_a_log() -> None:
    """A log gets all of it in one line, the living workers counted."""
    line = fleet_line(view())
    assert "39 of 100 ended (39 %), 30 completed" in line
    assert line.endswith("1 worker, last heartbeat 3 s ago")
    assert "worker" not in fleet_line(view(workers=None))
    assert "worker" not in fleet_line(view(workers=[]))


def test_the_rate_of_creates_binds() -> None:
    """The end is not told earlier than the rate of creates allows."""
    assert view().seconds_left == 6100
    assert view(rate=Rate(1, per=600, scope="all")).seconds_left == 36_000
    assert view(rate=Rate(1, per=600)).seconds_left == 6100


def test_an_end_that_is_due() -> None:
    """An end that would be in 0 s is left out: there are items that have not ended; so is one where none has ended."""
    assert text(fleet_lines(view(ends_per_second=100.0), 80, 24))[1] == "360,000 ended per hour"
    assert text(fleet_lines(view(ends_per_second=61.0), 80, 24))[1].endswith(", in 1 s")
    still = view(ends_per_second=None)
    assert still.seconds_left is None
    assert "none has ended in the last 10 min" in fleet_line(still)
