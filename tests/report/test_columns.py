import gzip
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.report.columns import block, block_line
from agentjobs_async.report.document import SMALLEST, Document
from agentjobs_async.report.source import Source
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


async def test_cut_prompts(tmp_path: Path) -> None:
    """Where prompts have to be short, those of completed items are cut first."""
    await run_some(tmp_path / "run.db")
    rows = await rows_of(tmp_path / "run.db")
    prompts = joined(block(rows, most=9)["prompt"])
    expected = ["Document…" if row.state == "completed" else row.prompt for row in rows]
    assert prompts == expected
    assert joined(block(rows, most=1)["prompt"])[3] == "Document the pa…"


async def test_document_of_limited_size(tmp_path: Path) -> None:
    """Prompts that have little in common are cut so far that the document is as small as wanted; few are whole."""
    chance = random.Random(7)  # noqa: S311 - the same prompts each time
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add(
            [
                BatchItem(f"k{number}", chance.randbytes(20 + 20 * (number > 999)).hex(), "docs")
                for number in range(3000)
            ]
        )
        sizes, lengths = [], []
        for most in (math.inf, 60_000):
            document = Document(SMALLEST, most)
            async for _ in document.read(await Source.of(journal)):
                pass
            document.end()
            sizes.append(len(document.whole()))
            lines = [json.loads(line) for line in gzip.decompress(document.whole()).splitlines()]
            lengths.append(
                {len(prompt or "") for line in lines if "prompt" in line for prompt in joined(line["prompt"])}
            )
            assert any("cut" in line for line in lines) is (most < math.inf)
    assert sizes[0] > 120_000
    assert sizes[1] <= 60_000
    assert lengths[0] == {40, 80}
    assert 40 in lengths[1]  # the first ones are whole: they may take the share of many
    assert max(lengths[1]) < 80


@pytest.mark.parametrize(
    ("length", "most_bytes", "is_cut"), [(2000, math.inf, False), (2001, math.inf, True), (16, 0, False), (17, 0, True)]
)
async def test_document_that_is_cut(tmp_path: Path, length: int, most_bytes: float, *, is_cut: bool) -> None:
    """A document says that it is cut where it has not all of a prompt, however it came so, and only there."""
    document = Document(SMALLEST, most_bytes)
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem("k1", "p" * length, "docs"), BatchItem("k2", "p", "docs")])
        async for _ in document.read(await Source.of(journal)):
            pass
    document.end()
    assert (b'{"cut": true}' in gzip.decompress(document.whole())) is is_cut


async def test_long_and_acting_texts(tmp_path: Path) -> None:
    """A prompt of a million characters is cut, and control characters are escaped; a key stays as it is."""
    await fail_hostile(tmp_path / "run.db")
    columns = block(await rows_of(tmp_path / "run.db"))
    prompts = [prompt or "" for prompt in joined(columns["prompt"])]
    assert max(map(len, prompts)) == 2000
    assert any("\\u202egnp.exe" in prompt and "\\x1b[31m" in prompt for prompt in prompts)
    assert "key\u202egnp" in joined(columns["key"])
