import json
from pathlib import Path
from typing import Any

from agentjobs_async.report.columns import block, block_line
from tests.report.stage import fail_hostile, rows_of, run_some


def summed(less: list[int | None]) -> list[int | None]:
    last, values = 0, []
    for value in less:
        last += value or 0
        values.append(None if value is None else last)
    return values


def joined(column: dict[str, list[Any]]) -> list[str | None]:
    before, texts = "", []
    for start, end, rest in zip(column["start"], column["end"], column["text"], strict=True):
        text = None if rest is None else before[:start] + rest + before[len(before) - end :]
        before = before if text is None else text
        texts.append(text)
    return texts


async def test_columns_hold_the_rows(tmp_path: Path) -> None:
    """What is left out of a cell is in the cells before it."""
    await run_some(tmp_path / "run.db")
    rows = await rows_of(tmp_path / "run.db")
    columns = json.loads(block_line(rows))
    assert summed(columns["number"]) == [row.number for row in rows]
    assert columns["state"] == [row.state.value for row in rows]
    assert joined(columns["key"]) == [row.key for row in rows]
    jobs = joined(columns["job_id"])
    assert jobs == [row.job_id for row in rows]
    links = joined(columns["pr_link"])
    assert [link and link.replace("\x01", job or "") for link, job in zip(links, jobs, strict=True)] == [
        row.pr_link for row in rows
    ]
    sent = summed(columns["sent_at"])
    assert sent == [row.sent_at and round(row.sent_at.timestamp() * 1000) for row in rows]
    for place, row in enumerate(rows):
        if row.created_at and row.seen_at and row.ended_at:
            less = [columns[name][place] for name in ("created_at", "seen_at", "ended_at")]
            assert (sent[place] or 0) + sum(less) == round(row.ended_at.timestamp() * 1000)


async def test_long_and_acting_texts(tmp_path: Path) -> None:
    """A prompt of a million characters is cut, and control characters are escaped; a key stays as it is."""
    await fail_hostile(tmp_path / "run.db")
    columns = block(await rows_of(tmp_path / "run.db"))
    prompts = [prompt or "" for prompt in joined(columns["prompt"])]
    assert max(map(len, prompts)) == 2000
    assert any("\\u202egnp.exe" in prompt and "\\x1b[31m" in prompt for prompt in prompts)
    assert "key\u202egnp" in joined(columns["key"])
