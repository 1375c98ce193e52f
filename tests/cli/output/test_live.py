import pytest
from attrs import evolve

from agentjobs_async import AgentJob, JobPolled, JobRef, NotSentError, WaitEnded
from agentjobs_async.batch import ActiveItem, BatchStats, Rate, State
from agentjobs_async.cli._output.live import PollCounts, View, live_lines

REF = JobRef("docs", "job_1")


def view(
    active: list[ActiveItem], *, planned: int = 0, waiting: int = 3, due: float | None = 0.0, stopped: bool = False
) -> View:
    counts = dict.fromkeys(State, 0) | {State.PLANNED: planned, State.COMPLETED: 100, State.FAILED: 5, State.UNKNOWN: 2}
    stats = BatchStats(waiting, len(active), due, {}, stopped)
    return View(counts, planned, stats, active, 60.0, 10, Rate(100, per=3600), 1_700_000_000.0)


def shown(view: View, width: int = 80, height: int = 24, polls: PollCounts | None = None) -> list[str]:
    lines = live_lines(view, polls or PollCounts(), width, height)
    return ["".join(part if isinstance(part, str) else part[0] for part in line) for line in lines]


@pytest.mark.parametrize("size", [(80, 23), (40, 8), (20, 3)])
def test_it_fits(size: tuple[int, int]) -> None:
    """Four thousand items under way fit the terminal."""
    width, height = size
    active = [ActiveItem(f"{'a' * 60}{number}", State.CREATED, number, REF) for number in range(4000)]
    lines = shown(view(active, planned=4000), width, height)
    assert len(lines) <= max(height, 3)
    if width >= 60:
        assert max(map(len, lines)) <= width
        assert lines[-1].endswith(" more")


def test_what_it_tells() -> None:
    """It tells the counts, the next create, the end, and each active item's key, state, age, polls and link."""
    polls = PollCounts()
    link = "https://code.example/pull/7"
    polls(JobPolled(AgentJob("job_1", "docs", "active", pr_link=link), 12))
    active = [ActiveItem("old\x1b", State.CREATED, 90.0, REF), ActiveItem("new", State.SENDING, 5.0, None)]
    active.append(ActiveItem("waits", State.PLANNED, 9.0, None))
    lines = shown(view(active, planned=350, due=120.0), polls=polls)
    assert lines[0] == "3 active, 3 waiting to be created, 347 after them; 457 in all"
    assert lines[1].startswith("rate limit: next create ")
    assert lines[1].endswith("in 3.0 h")
    assert lines[2] == "100 done  5 failed  0 archived  2 unknown"
    assert lines[3].split() == ["KEY", "STATE", "AGE", "POLLS", "PULL", "REQUEST"]
    assert lines[4].split() == ["old\\x1b", "created", "2", "min", "12", link]
    assert lines[5].split() == ["new", "sending", "5", "s", "0", "-"]
    assert len(lines) == 6
    polls(WaitEnded(REF, None, None, 12, 1.0))
    assert polls[REF] == (0, None)


@pytest.mark.parametrize(("queue", "hours"), [(350, "3.0 h"), (150, "1.0 h")])
def test_end_under_a_rate_per_project(queue: int, hours: str) -> None:
    """Under a rate for each project, the project with the most planned items decides when the run ends."""
    line = shown(evolve(view([], planned=350, due=120.0), queue=queue))[1]
    assert line.endswith(f"in {hours}")


def test_what_holds_creates_back() -> None:
    """While all creates are held back by a fault, it says by which, and when the next may go."""
    held = view([], planned=4, due=5.0)
    stats = evolve(held.stats, paused_by=NotSentError("nothing was sent to api.example.com: no such name", "dns"))
    (line,) = [line for line in shown(evolve(held, stats=stats), width=200) if line.startswith("next create ")]
    assert ": nothing was sent to api.example.com: no such name; check --base-url" in line


def test_other_outlooks() -> None:
    """It tells when nothing holds creates back, and what else but the rate does."""
    assert shown(view([]))[1].startswith("next create at any time")
    assert shown(view([], planned=9, waiting=0))[1].startswith("next create when an active job has ended")
    assert shown(view([], due=None))[1].startswith("next create when one under way")
    assert shown(view([], stopped=True))[1].startswith("too many failures")
