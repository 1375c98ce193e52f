from attrs import evolve

import agentjobs_async
from agentjobs_async import AgentJob, JobPolled, NotSentError, WaitEnded
from agentjobs_async.batch import ActiveItem, BatchStats, State
from agentjobs_async.cli._output.live import PollCounts, View, in_one_line, live_lines
from agentjobs_async.cli.estimates import RunEstimate
from tests.polled import REF

SENDING = ActiveItem("a-very-long-key-of-number-17", State.SENDING, 5.0, None, "Fix the broken links")


def view(
    active: list[ActiveItem],
    *,
    planned: int = 0,
    due: float | None = 0.0,
    stopped: bool = False,
    left: RunEstimate | None = None,
) -> View:
    counts = dict.fromkeys(State, 0) | {State.PLANNED: planned, State.COMPLETED: 100, State.FAILED: 5, State.UNKNOWN: 2}
    counts[State.ACTIVE] = len(active)
    stats = BatchStats(3, len(active), due, {}, stopped)
    return View(counts, stats, active, 20_400.0, left, 90.0, 1_700_000_000.0)


def shown(view: View, width: int = 80, height: int = 24, polls: PollCounts | None = None) -> list[str]:
    lines = live_lines(view, polls or PollCounts(), width, height)
    return ["".join(part if isinstance(part, str) else part[0] for part in line) for line in lines]


def test_it_fits() -> None:
    """Four thousand items under way fit the terminal."""
    active = [ActiveItem(f"{'a' * 60}{number}", State.ACTIVE, number, REF, "x " * 60) for number in range(4000)]
    for width, height in ((80, 23), (60, 20), (40, 8), (20, 3)):
        lines = shown(view(active, planned=4000, left=RunEstimate(9_000, "100/h decides")), width, height)
        assert len(lines) <= max(height, 3), (width, height)
        assert max(map(len, lines)) <= width, (width, height)
        assert height == 3 or lines[-1].endswith(" more"), (width, height)


def test_what_it_tells() -> None:
    """It tells the share done and the time, the end and what decides it, the counts, and the active items."""
    polls = PollCounts()
    link = "https://code.example/pull/7"
    polls(JobPolled(AgentJob("job_1", "docs", "active", pr_link=link), 12))
    active = [ActiveItem("old\x1b", State.ACTIVE, 90.0, REF, "Document the v2 endpoints of the service"), SENDING]
    active.append(ActiveItem("waits", State.PLANNED, 9.0, None))
    lines = shown(view(active, planned=350, due=120.0, left=RunEstimate(10_800, "100/h decides")), polls=polls)
    assert lines[0].startswith("22 % in 5.7 h [##########")
    assert lines[0].endswith("....] 105 of 460")
    assert len(lines[0]) == 80
    assert lines[1].startswith("ends about ")
    assert ", in 3.0 h; 100/h decides; next create " in lines[1]
    assert lines[2] == "100 completed  5 failed  2 unknown  3 active  350 left"
    assert lines[3].split() == ["KEY", "STATE", "AGE", "POLLS", "PROMPT,", "PULL", "REQUEST"]
    assert lines[4].split() == ["old\\x1b", "active", "2", "min", "12", "Document…", link]
    assert lines[5].split() == ["a-very-…umber-17", "sending", "5", "s", "0", "Fix", "the", "broken", "links"]
    assert len(lines) == 6


def test_ended_rows_leave_at_once() -> None:
    """A job whose end was seen is not shown any more, though its item is under way until the journal has its end."""
    polls = PollCounts()
    active = [ActiveItem("old", State.ACTIVE, 90.0, REF)]
    polls(WaitEnded(REF, None, None, 12, 1.0))
    assert len(shown(view(active), polls=polls)) == 5
    polls(WaitEnded(REF, AgentJob("job_1", "docs", "completed"), None, 12, 1.0))
    assert len(shown(view(active), polls=polls)) == 4
    assert polls[REF] == (0, None)


def test_narrow() -> None:
    """The share and the time stand on top at any width; of the second line the end of the run is cut last."""
    for width, end in ((60, "; 100/h decides"), (40, "in 3.0 h"), (34, "in 3.0 h")):
        lines = shown(view([SENDING], planned=350, due=120.0, left=RunEstimate(10_800, "100/h decides")), width=width)
        assert lines[0].startswith("22 % in 5.7 h"), width
        assert lines[1].startswith("ends about "), width
        assert end in lines[1], width
        assert lines[2].endswith((" failed", " unknown", " active", " left")), width


def test_a_line_of_a_log() -> None:
    """A log gets the same in one line."""
    line = in_one_line(view([SENDING], planned=350, left=RunEstimate(10_800, "100/h decides", is_least=True)))
    assert line.startswith("22 % in 5.7 h: 105 of 458 ended, 1 active; ends after ")
    assert line.endswith(", in 3.0 h; 100/h decides")


def test_what_holds_creates_back() -> None:
    """While all creates are held back by a fault, it says by which, and when the next may go."""
    held = view([], planned=4, due=5.0)
    stats = evolve(held.stats, paused_by=NotSentError("nothing was sent to api.example.com: no such name", "dns"))
    line = shown(evolve(held, stats=stats), width=200)[1]
    assert "next create " in line
    assert ": nothing was sent to api.example.com: no such name; check --base-url" in line


def test_other_ends() -> None:
    """It says so when the end is not known, and when too many items have failed."""
    assert shown(view([]))[1] == "no estimate of the end yet"
    assert shown(view([], stopped=True))[1] == "no estimate of the end yet; too many failures: nothing more is begun"


def test_no_run_ends_in_no_time() -> None:
    """A run that has not ended is not said to end in 0 s, nor in the past: jobs are late, or it ends any moment."""
    late, soon = "jobs take longer than usual", "ends any moment now"
    for ages, seconds, words in (([9.0, 95.0], 0.4, late), ([9.0, 80.0], 0.4, soon), ([], 0.0, soon)):
        active = [ActiveItem(f"{number}", State.ACTIVE, age, REF) for number, age in enumerate(ages)]
        active.append(ActiveItem("waits", State.PLANNED, 500.0, None))
        found = view(active, left=RunEstimate(seconds, "--max-active 4 decides"))
        assert shown(found)[1] == words
        assert in_one_line(found).endswith(f" active; {words}")
        least = evolve(found, estimate=RunEstimate(seconds, "100/h decides", is_least=True))
        assert shown(least)[1] == "no estimate of the end yet"
        assert shown(evolve(found, estimate=RunEstimate(1.0, "x")))[1].endswith(", in 1 s")


def test_time_left() -> None:
    """Where the waits have learned it, it tells how long the active jobs have left, if the terminal has room."""
    active = [ActiveItem(f"{number}", State.ACTIVE, 90.0, REF) for number in range(20)]
    found = view(active)
    learned = evolve(found, stats=evolve(found.stats, left=agentjobs_async.Estimate(120.0, 300.0)))
    lines = shown(learned, height=10)
    assert lines[3] == "an active job ends in about 2 min, 9 of 10 within 5 min"
    assert len(lines) == 10
    assert shown(learned, height=5) == shown(found, height=5)
    assert in_one_line(learned) == f"{in_one_line(found)}; an active job ends in about 2 min, 9 of 10 within 5 min"
