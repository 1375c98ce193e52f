from datetime import UTC, datetime
from typing import Any

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.cli._output.listing import markdown_lines, table_lines

TIMES = ("planned_at", "sent_at", "created_at", "seen_at", "ended_at")
NO_TIMES = "  |  |  |  | 0 | 1 |"
LINK = "https://code.example/pull/7"
ROWS = [
    JournalRow("a", "x", "docs", State.COMPLETED, "job_1", LINK, None, datetime.now(UTC), 1),
    JournalRow("b" * 60, "x", None, State.REJECTED, None, None, "no | <b>way</b>\n*", datetime.now(UTC), 2),
    JournalRow("c", "x", None, State.PLANNED, None, None, None, datetime.now(UTC), 3),
]


def text(line: tuple[object, ...]) -> str:
    return "".join(str(part[0] if isinstance(part, tuple) else part) for part in line)


def test_table() -> None:
    """A row shows its pull request, else its error, else its job; a long key is cut, a link never."""
    lines = list(map(text, table_lines(ROWS)))
    assert lines[0].split() == ["KEY", "STATE", "PULL", "REQUEST,", "JOB", "OR", "ERROR"]
    assert lines[1].split() == ["a", "completed", LINK]
    assert lines[2].startswith(f"{'b' * 37}…  rejected   no |")
    assert lines[3].split() == ["c", "planned", "-"]
    assert next(map(text, table_lines([]))).startswith("KEY")


def test_table_on_a_narrow_terminal() -> None:
    """What does not fit beside a row gets a line of its own beneath it."""
    lines = list(map(text, table_lines(ROWS, 40)))
    assert lines[:5] == [
        f"{'KEY':<29}STATE      ",
        "  PULL REQUEST, JOB OR ERROR",
        f"{'a':<29}completed  ",
        f"  {LINK}",
        f"{'b' * 26}…  rejected   ",
    ]
    assert lines[-1].split() == ["c", "planned", "-"] or lines[-2:][0].split() == ["c", "planned"]


def test_markdown() -> None:
    """Nothing in a cell is markup or ends its line."""
    lines = list(map(text, markdown_lines(ROWS)))
    assert lines[1].count("|") == lines[0].count("|") == lines[2].count("|")
    assert lines[2] == f"| a | completed | job\\_1 | {LINK} |  |{NO_TIMES}"
    assert lines[3] == f"| {'b' * 60} | rejected |  |  | no \\| \\<b\\>way\\</b\\> \\* |{NO_TIMES}"


def test_times_in_markdown() -> None:
    """A row shows its times in UTC to the second, how often its job was polled, and how often the item was tried."""
    times: dict[str, Any] = {
        name: datetime(2026, 11, 22, hour, 5, 9, 999_999, UTC) for hour, name in enumerate(TIMES, 8)
    }
    row = JournalRow("a", "x", None, State.COMPLETED, "j", None, None, datetime.now(UTC), 1, **times, polls=7, tries=2)
    assert "| sent | created | seen | ended | polls | tries |" in text(next(markdown_lines([])))
    *_, line = map(text, markdown_lines([row]))
    shown = " | ".join(f"2026-11-22 {hour:02}:05:09" for hour in range(9, 13))
    assert line == f"| a | completed | j |  |  | {shown} | 7 | 2 |"


def test_links_in_markdown() -> None:
    """A bare link keeps its underscores, in an error too; what would be markup in it is percent-encoded."""
    link = "https://code.example/my_org/my_repo/pull/7"
    rows = [
        JournalRow("a_b", "x", None, State.COMPLETED, "job_1", f"{link}?a|b*", None, datetime.now(UTC), 1),
        JournalRow("c", "x", None, State.REJECTED, None, None, f"see_also {link}_1, or_not", datetime.now(UTC), 2),
    ]
    lines = list(map(text, markdown_lines(rows)))
    assert lines[2] == f"| a\\_b | completed | job\\_1 | {link}?a%7Cb%2A |  |{NO_TIMES}"
    assert lines[3] == f"| c | rejected |  |  | see\\_also {link}_1, or\\_not |{NO_TIMES}"
