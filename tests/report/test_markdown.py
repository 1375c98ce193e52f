from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentjobs_async.batch import BatchItem, Journal, JournalRow, State
from agentjobs_async.report.markdown import _Table
from tests.report.stage import report_of, run_some

TIMES = ("planned_at", "sent_at", "created_at", "seen_at", "ended_at")
NO_TIMES = "  |  |  |  | 0 | 1 |"


def table_of(*rows: JournalRow) -> list[str]:
    table = _Table()
    for row in rows:
        table.add(row)
    return list(table.lines(()))[1:]


def test_times_in_markdown() -> None:
    """A row shows its times in UTC to the second, how often its job was polled, and how often the item was tried."""
    times: dict[str, Any] = {
        name: datetime(2026, 11, 22, hour, 5, 9, 999_000, UTC) for hour, name in enumerate(TIMES, 8)
    }
    row = JournalRow(
        "a", "x", "docs", State.COMPLETED, "j", None, None, datetime.now(UTC), 1, **times, polls=7, tries=2
    )
    head, _, line = table_of(row)
    assert head.endswith("| sent | created | seen | ended | polls | tries |")
    shown = " | ".join(f"2026-11-22 {hour:02}:05:09" for hour in range(9, 13))
    assert line == f"| a | completed | j |  |  | {shown} | 7 | 2 |"


def test_links_in_markdown() -> None:
    """A bare link keeps its underscores, in an error too; what would be markup in it is percent-encoded."""
    link = "https://code.example/my_org/my_repo/pull/7"
    rows = [
        JournalRow("a_b", "x", "docs", State.COMPLETED, "job_1", f"{link}?a|b*", None, datetime.now(UTC), 1),
        JournalRow("c", "x", "docs", State.REJECTED, None, None, f"see_also {link}_1, or_not", datetime.now(UTC), 2),
    ]
    lines = table_of(*rows)
    assert lines[3] == f"| a\\_b | completed | job\\_1 | <{link}?a%7Cb*> |  |{NO_TIMES}"
    assert lines[2] == f"| c | rejected |  |  | see\\_also <{link}_1>, or\\_not |{NO_TIMES}"


def test_what_github_makes_links_of() -> None:
    """Nothing in a cell is markup or ends its line; brackets that belong to a link stay in it, and no escapes do."""
    link = "https://code.example/a_b/_7_?x=(1)"
    error = f"l1\n| a | <script>x</script> `*z` ({link}) www.x.example/a_b_ https://( h"
    row = JournalRow("k_1\n|", "x", "docs", State.REJECTED, None, link, error, datetime.now(UTC), 1)
    _, _, line = table_of(row)  # as cmark-gfm shows it right
    assert line == (
        rf"| k\_1 \| | rejected |  | <{link}> | l1 \| a \| \<script\>x\</script\> \`\*z\` (<{link}>)"
        rf" www\.x.example/a\_b\_ https:\/\/( h |{NO_TIMES}"
    )


async def test_summary(tmp_path: Path) -> None:
    """The figures and a chart come first, then the items that need a person."""
    await run_some(tmp_path / "run.db")
    lines = (await report_of(tmp_path / "run.db", format="markdown")).splitlines()
    assert lines[0].startswith("## ")
    assert '    "unknown" : 1' in lines[lines.index("```mermaid") :]
    table = lines[lines.index(table_of()[0]) + 2 :]
    assert [line.split(" | ")[1] for line in table][:4] == ["unknown", "failed", "rejected", "planned"]
    assert len(table) == 9


async def test_length(tmp_path: Path) -> None:
    """A summary stays below 1 MiB, and says how many items it leaves out."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem(f"{number:05}-{'k' * 490}", "p") for number in range(2500)], project_id="docs")
    summary = await report_of(tmp_path / "run.db", format="markdown")
    assert 900_000 < len(summary.encode()) < 1_048_576
    left_out = 2500 - sum(line.startswith("| 0") for line in summary.splitlines()) + 1  # the figures begin with 0, too
    assert summary.endswith(f"… and {left_out:,} more\n")
