from datetime import UTC, datetime

from agentjobs_async.batch import JournalRow, State
from agentjobs_async.cli.listing import markdown_lines, table_lines

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


def test_markdown() -> None:
    """Nothing in a cell is markup or ends its line."""
    lines = list(map(text, markdown_lines(ROWS)))
    assert lines[1] == "| --- | --- | --- | --- | --- |"
    assert lines[2] == f"| a | completed | job\\_1 | {LINK} |  |"
    assert lines[3] == f"| {'b' * 60} | rejected |  |  | no \\| \\<b\\>way\\</b\\> \\* |"
