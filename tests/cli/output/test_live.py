from attrs import evolve

from agentjobs_async.batch import State
from agentjobs_async.batch._estimates import End
from agentjobs_async.cli._output.live import Active, View, head_lines, in_one_line, live_lines

SENDING = Active("a-very-long-key-of-number-17", "Fix the broken links", State.SENDING, 5.0)
BY_RATE = End(10_800, "create_rate 100/h")


def view(active: list[Active], *, planned: int = 0, end: End | None = None, elapsed: float | None = 20_400.0) -> View:
    counts = dict.fromkeys(State, 0) | {State.PLANNED: planned, State.COMPLETED: 100, State.FAILED: 5, State.UNKNOWN: 2}
    counts[State.ACTIVE] = len(active)
    return View(counts, 1_700_000_000.0, active, end, elapsed=elapsed)


def items(count: int, age: float = 90.0) -> list[Active]:
    return [Active(f"{'a' * 60}{number}", "x " * 60, State.ACTIVE, age) for number in range(count)]


def text(lines: object) -> list[str]:
    return ["".join(part if isinstance(part, str) else part[0] for part in line) for line in lines]  # type: ignore[attr-defined]  # lines of parts


def shown(view: View, width: int = 80, height: int = 24) -> list[str]:
    return text(live_lines(view, width, height))


def test_it_fits() -> None:
    """Four thousand items under way fit the terminal; those left out are counted."""
    for found in (view(items(4000), planned=4000, end=BY_RATE), view(items(40), planned=9)):
        for width, height in ((80, 23), (60, 20), (40, 12), (20, 3)):
            lines = shown(found, width, height)
            assert len(lines) <= max(height, 3), (width, height)
            assert max(map(len, lines)) <= width, (width, height)
            assert height == 3 or lines[-1].endswith(" more"), (width, height)


def test_what_it_tells() -> None:
    """It tells the share done and the time, the end and what decides it, the counts, and the active items."""
    link = "https://code.example/pull/7"
    active = [Active("old\x1b", "Document the v2 endpoints of the service", State.ACTIVE, 90.0, 12, link), SENDING]
    found = evolve(view(active, planned=351, end=BY_RATE), next_create=120.0, usual=(2.0, 5.4))
    lines = shown(found)
    assert lines[0].startswith("22 % in 5.7 h [##########")
    assert lines[0].endswith("....] 105 of 460 ended")
    assert len(lines[0]) == 80
    assert lines[1].startswith("ends about ")
    assert ", in 3 h; --create-rate 100/h decides; next create " in lines[1]
    assert lines[2] == "2 unknown  5 failed  2 active  351 planned  100 completed"
    assert shown(found, 100)[2].endswith("100 completed  median 2 s, 9 of 10 within 5 s")
    assert lines[3].split() == ["KEY", "STATE", "AGE", "POLLS", "PROMPT,", "PULL", "REQUEST"]
    assert lines[4].split() == ["old\\x1b", "active", "2", "min", "12", "Document…", link]
    assert lines[5].split() == ["a-very-…umber-17", "sending", "5", "s", "-", "Fix", "the", "broken", "links"]
    assert len(lines) == 6


def test_seen_from_outside() -> None:
    """Another process shows the first lines of the same, but for the time of the run."""
    inside, outside = view([SENDING], planned=3), evolve(view([SENDING], planned=3), elapsed=None)
    first, *others = text(head_lines(outside, 80))
    assert first.startswith("94 % [###")
    assert others == shown(inside)[1:3]


def test_nobody_is_at_work() -> None:
    """Where nothing goes on, that is said in colour in place of an end: it would never come."""
    words = "no process works on it; agentjobs resume continues"
    found = evolve(view([], planned=1, end=BY_RATE), trouble=words)
    assert list(live_lines(found, 80, 24))[1] == ((words, "yellow"),)
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
    """The share and the time stand on top at any width; of the second line the end of the run is cut last."""
    for width, end in ((60, "; --create-rate 100/h decides"), (40, "in 3 h"), (34, "in 3 h")):
        lines = shown(evolve(view([SENDING], planned=350, end=BY_RATE), next_create=120.0), width=width)
        assert lines[0].startswith("22 % in 5.7 h"), width
        assert lines[1].startswith("ends about "), width
        assert end in lines[1], width
        assert lines[2].endswith((" failed", " unknown", " active", " planned", " completed")), width


def test_a_line_of_a_log() -> None:
    """A log gets the same in one line."""
    line = in_one_line(view([SENDING], planned=350, end=End(10_800, "create_rate 100/h", is_least=True)))
    assert " 22 % in 5.7 h: 2 unknown, 5 failed, 1 active, 350 planned, 100 completed; ends after " in line
    assert line.endswith(", in 3 h; --create-rate 100/h decides")


def test_what_holds_creates_back() -> None:
    """While all creates are held back by a fault, it says by which, and when the next may go."""
    held = evolve(view([], planned=4), held_by="no such name", next_create=5.0)
    line = shown(held)[1]
    assert line.startswith("no estimate of the end yet; next create ")
    assert line.endswith(": no such name")
    assert shown(evolve(held, next_create=None))[1] == "no estimate of the end yet; no such name"


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
    assert shown(view(items(1), elapsed=0.4))[0].startswith("97 % [")
