import csv
from io import StringIO
from pathlib import Path

from tests.report.stage import fail_hostile, report_of, run_some


async def test_csv(tmp_path: Path) -> None:
    """Each item is a row, with its times, and with its prompt unless those are left out."""
    await run_some(tmp_path / "run.db")
    rows = list(csv.DictReader(StringIO(await report_of(tmp_path / "run.db", format="csv"))))
    assert [row["key"] for row in rows] == [f"page-{number}" for number in range(1, 10)]
    assert list(rows[0]) == [
        *("number", "key", "project", "state", "job_id", "pr_link", "error"),
        *("planned_at", "sent_at", "created_at", "seen_at", "ended_at", "seconds", "polls", "tries", "prompt"),
    ]
    assert rows[0]["prompt"] == "Document the page 1"
    assert rows[0]["ended_at"].endswith("Z")
    assert float(rows[0]["seconds"]) >= 0
    assert "Document the page" not in await report_of(tmp_path / "run.db", format="csv", prompts=False)


async def test_formulas(tmp_path: Path) -> None:
    """No cell begins a formula, acts on a screen, or is longer than a spreadsheet takes."""
    await fail_hostile(tmp_path / "run.db")
    text = await report_of(tmp_path / "run.db", format="csv")
    cells = [cell for row in csv.DictReader(StringIO(text)) for cell in row.values()]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for cell in cells)
    assert {"'-h", "'=1+1"} <= set(cells)
    assert max(map(len, cells)) == 32_000
    assert text.replace("\n", "").isprintable() or "\u200d" in text
    assert "\u202e" not in text
