"""The live view: what it shows of a run at one moment, drawn at some size."""

import io
import re
from collections.abc import Sequence

import pytest
from attrs import evolve
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType

from agentjobs_async.batch import State
from agentjobs_async.batch._estimates import End
from agentjobs_async.cli._output.live import head_of, live_view
from agentjobs_async.cli._output.view import Active, View, in_one_line

SENDING = Active("a-very-long-key-of-number-17", "Fix the broken links", State.SENDING, 5.0)
BY_RATE = End(10_800, "create_rate 100/h")
PROMPTS = ["x " * 60, "文書を書いてください" * 9, "\x1b[31m\r\n[red]bold[/red]:smile:\u202e" * 5]
SIZES = [(120, 40), (80, 24), (60, 20), (40, 12), (20, 5)]


def view(active: list[Active], *, planned: int = 0, end: End | None = None, elapsed: float | None = 20_400.0) -> View:
    counts = dict.fromkeys(State, 0) | {State.PLANNED: planned, State.COMPLETED: 100, State.FAILED: 5, State.UNKNOWN: 2}
    counts[State.ACTIVE] = len(active)
    return View(counts, 1_700_000_000.0, active, end, elapsed=elapsed)


def items(count: int, age: float = 90.0) -> list[Active]:
    return [Active(f"{'a' * 60}{number}", "x " * 60, State.ACTIVE, age) for number in range(count)]


def rows(parts: Sequence[RenderableType], width: int, *, colours: bool = False) -> list[str]:
    """Return what a terminal of this width shows."""
    written = io.StringIO()
    console = Console(
        file=written, width=width, height=200, force_terminal=True, color_system="standard" if colours else None
    )
    console.print(Group(*parts))
    return [line if colours else line.rstrip() for line in written.getvalue().splitlines()]


def shown(view: View, width: int = 80, height: int = 24) -> list[str]:
    return rows(live_view(view, width, height), width)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_it_fits(width: int, height: int, prompt: str) -> None:
    """Four thousand items under way fit the terminal, wide letters too; those left out are counted."""
    link = f"https://code.example/{'acme/' * 20}pull/7"
    active = [evolve(item, prompt=prompt, pr_link=link, key=f"{prompt}{n}") for n, item in enumerate(items(4000))]
    for found in (view(active, planned=4000, end=BY_RATE), view(active[:40], planned=9)):
        lines = shown(found, width, height)
        assert len(lines) <= height
        assert max(map(cell_len, lines)) <= width
        assert lines[-1].endswith(" more") or height == 5
        assert all(line.isprintable() for line in lines)


def test_no_room_for_items() -> None:
    """A terminal of a few lines shows the head alone, or its first lines."""
    found = view(items(3), planned=4, end=BY_RATE)
    head = rows(head_of(found, 80), 80)
    for height, lines in {-1: 0, 0: 0, 2: 2, 3: 3, 4: 3, 5: 3, 6: 6}.items():
        assert len(shown(found, 80, height)) == lines, height
        assert shown(found, 80, height)[:3] == head[:lines], height


def test_what_it_tells() -> None:
    """It tells the share done and the time, the end and what decides it, the counts, and the active items."""
    active = [Active("old\x1b", "Document the v2 endpoints of the service", State.ACTIVE, 90.0, 12), SENDING]
    found = evolve(view(active, planned=351, end=BY_RATE), next_create=120.0, usual=(2.0, 5.4))
    lines = shown(found)
    assert lines[0].startswith("22 % in 5.7 h ━━━━━━━━━━")
    assert lines[0].endswith(" 105 of 460 ended")
    assert len(lines[0]) == 80
    assert lines[1].startswith("ends about ")
    assert ", in 3 h; --create-rate 100/h decides; next create " in lines[1]
    assert lines[2] == "2 unknown  5 failed  2 active  351 planned  100 completed"
    assert shown(found, 100)[2].endswith("100 completed  median 2 s, 9 of 10 within 5 s")
    assert lines[3].split() == ["KEY", "STATE", "AGE", "POLLS", "PROMPT"]
    assert re.split("  +", lines[4]) == ["old\\x1b", "active", "2 min", "12", "Document the v2 endpoints of the…"]
    assert re.split("  +", lines[5]) == ["a-very-lo…-number-17", "sending", "5 s", "-", "Fix the broken links"]
    assert len(lines) == 6


def test_pull_requests() -> None:
    """A wide terminal has a column of pull requests, once a job has one."""
    link = "https://code.example/acme/docs/pull/7"
    without, active = [SENDING], [SENDING, Active("k", "Document it", State.ACTIVE, 90.0, 12, link)]
    assert "PULL REQUEST" not in "".join(shown(view(without), 120))
    assert "PULL REQUEST" not in "".join(shown(view(active), 80))
    *_, named, first, _ = shown(view(active), 120)
    assert named.endswith("PULL REQUEST")
    assert first.endswith(f"Document it{' ' * (first.index(link) - first.index('Document it') - 11)}{link}")


def test_colours() -> None:
    """Colours say what is well and what is not; trouble is told in colour."""
    found = evolve(view([SENDING], planned=1), trouble="polls fail: no answer")
    drawn = "\n".join(rows(live_view(found, 80, 24), 80, colours=True))
    for words in ("\x1b[36m━━", "\x1b[33mpolls fail: no answer", "\x1b[1;31m5 failed", "\x1b[32m100 completed"):
        assert words in drawn, words


def test_seen_from_outside() -> None:
    """Another process shows the first lines of the same, but for the time of the run."""
    inside, outside = view([SENDING], planned=3), evolve(view([SENDING], planned=3), elapsed=None)
    first, *others = rows(head_of(outside, 80), 80)
    assert first.startswith("94 % ━━━")
    assert others == shown(inside)[1:3]


def test_nobody_is_at_work() -> None:
    """Where nothing goes on, that is said in place of an end: it would never come."""
    words = "no process works on it; agentjobs resume continues"
    found = evolve(view([], planned=1, end=BY_RATE), trouble=words)
    assert shown(found)[1] == words
    assert f"; {words}" in in_one_line(found)
    done = evolve(view([]), trouble=words)
    assert not any(words in line for line in shown(done))
    assert in_one_line(done).endswith(
        " 98 % in 5.7 h: 2 unknown, 5 failed, 100 completed"
    )  # what is unknown has no end
    assert in_one_line(evolve(done, counts={State.COMPLETED: 1})).endswith(
        "100 % in 5.7 h: 1 completed; all have ended"
    )


def test_narrow() -> None:
    """The share and the time stand on top at any width; the end is wrapped between words, the counts are whole."""
    for width in (60, 40, 34):
        found = evolve(view([SENDING], planned=350, end=BY_RATE), next_create=120.0)
        lines = shown(found, width=width)
        assert lines[0].startswith("22 % in 5.7 h"), width
        counts = next(number for number, line in enumerate(lines) if line.startswith("2 unknown"))
        assert re.fullmatch(
            "ends about [^;]+, in 3 h; --create-rate 100/h decides; next create .*", " ".join(lines[1:counts])
        )
        assert lines[counts].endswith((" failed", " unknown", " active", " planned", " completed")), width
    assert lines[counts + 1].split() == ["KEY", "AGE", "PROMPT"]


def test_a_line_of_a_log() -> None:
    """A log gets the same in one line."""
    line = in_one_line(view([SENDING], planned=350, end=End(10_800, "create_rate 100/h", is_least=True)))
    assert " 22 % in 5.7 h: 2 unknown, 5 failed, 1 active, 350 planned, 100 completed; ends after " in line
    assert line.endswith(", in 3 h; --create-rate 100/h decides")


def test_what_holds_creates_back() -> None:
    """While all creates are held back by a fault, it says by which, whole, and when the next may go."""
    why = "no such name, and the words of this reason are more than a line of this terminal has room for"
    held = evolve(view([], planned=4), held_by=why, next_create=5.0)
    words = " ".join(shown(held)[1:-1])
    assert words.startswith("no estimate of the end yet; next create ")
    assert words.endswith(f": {why}")
    assert " ".join(shown(evolve(held, next_create=None))[1:-1]) == f"no estimate of the end yet; {why}"


def test_a_reason_without_end() -> None:
    """The longest reason leaves room for the items under way."""
    held = evolve(view([SENDING], planned=4), held_by="why " * 2000)
    assert len(shown(held)) == 8


def test_no_run_ends_in_no_time() -> None:
    """A run that has not ended is not said to end in 0 s, nor in the past: jobs are late, or it ends soon."""
    late, soon = "jobs take longer than usual", "ends soon"
    for ages, seconds, words in (([9.0, 95.0], 0.4, late), ([9.0, 80.0], 0.4, soon), ([9.0], 0.0, soon)):
        active = [Active(f"{number}", "", State.ACTIVE, age) for number, age in enumerate(ages)]
        found = evolve(view(active, end=End(seconds, "max_active 4")), usual=(90.0, 95.0))
        assert shown(found)[1] == words
        assert f"; {words}" in in_one_line(found)
        least = evolve(found, end=End(seconds, "create_rate 100/h", is_least=True))
        assert shown(least)[1] == "no estimate of the end yet"
        assert shown(evolve(found, end=End(1.0, "x")))[1].endswith(", in 1 s")
    assert shown(view(items(1), elapsed=0.4))[0].startswith("97 % ━")
