import gzip
import json
import random
from pathlib import Path

import pytest

from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.report.columns import block, block_line
from agentjobs_async.report.document import Document
from agentjobs_async.report.source import Source
from tests.report.stage import HOSTILE, fail_hostile, rows_of, run_some, summed


async def test_columns_hold_the_rows(tmp_path: Path) -> None:
    """Texts are whole, a time or a number is the sum of the cells down to it, and what has not come is null."""
    await run_some(tmp_path / "run.db")
    rows = await rows_of(tmp_path / "run.db")
    columns = json.loads(block_line(rows))
    for name in ("number", "polls", "tries"):
        assert summed(columns[name]) == [getattr(row, name) for row in rows]
    for name in ("planned_at", "sent_at", "created_at", "seen_at", "ended_at"):
        times = [getattr(row, name) for row in rows]
        assert summed(columns[name]) == [time and round(time.timestamp() * 1000) for time in times]
    for name in ("state", "key", "job_id", "pr_link", "prompt"):
        assert columns[name] == [getattr(row, name) for row in rows]
    assert None in columns["job_id"]
    assert None in columns["ended_at"]
    assert columns["project"] == [row.project_id for row in rows]
    assert columns["error"][2] == "the agent failed"
    assert not {"context", "extra"} & set(columns)


async def test_where_to_look(tmp_path: Path) -> None:
    """A block says where to look for the jobs of unknown items alone; without any, it has no such column."""
    await run_some(tmp_path / "run.db")
    rows = await rows_of(tmp_path / "run.db")
    look = block(rows)["look"]
    assert [words is not None for words in look] == [row.state == "unknown" for row in rows]
    assert look[3].startswith("Look in project docs, for a job created about ")
    assert "look" not in block(rows[:3])


async def test_fields(tmp_path: Path) -> None:
    """A block has the fields of contexts and of extras, each by its column and as a text, where a row has any."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add(
            [BatchItem("a", "x", "docs", extra={"key": 2, "branch": "main"}), BatchItem("b", "y", "docs")]
        )
        rows = await journal.rows()
        await journal.add([BatchItem("c", "z", "docs", {"branch": "mine"}, {"branch": None})])
        more = (await journal.rows())[1:]
    columns = block(rows)
    assert "context" not in columns
    assert columns["extra"] == [{"extra.key": "2", "branch": "main"}, {}]
    columns = block(more)
    assert columns["context"] == [{}, {"branch": "mine"}]
    assert columns["extra"] == [{}, {"extra.branch": ""}]
    assert not {"context", "extra"} & set(block(more, prompts=False))


async def test_documents_of_long_prompts(tmp_path: Path) -> None:
    """However long its prompts are, and however little they have in common, a document has all of each."""
    chance = random.Random(7)  # noqa: S311 - the same prompts each time
    prompts = [chance.randbytes(size).hex() for size in (10, 2_000, 400_000, 5_000)]
    context = {"body": "x" * 5_000}
    async with Journal.open(tmp_path / "run.db") as journal:
        items = [BatchItem(f"k{index}", prompt, "docs", context) for index, prompt in enumerate(prompts)]
        assert await journal.add(items) == []
        document = Document()
        async for _ in document.read(await Source.of(journal)):
            pass
        document.end()
    _, found = map(json.loads, gzip.decompress(document.whole()).splitlines())
    assert found["prompt"] == prompts
    assert found["context"] == [context] * 4


@pytest.mark.parametrize(("length", "blocks"), [(1, [500, 2000, 1]), (4000, [500, 1000, 1000, 1])])
async def test_rows_of_a_block(tmp_path: Path, length: int, blocks: list[int]) -> None:
    """A block has the rows of some reads of the journal; fewer, where their prompts are long."""
    async with Journal.open(tmp_path / "run.db") as journal:
        await journal.add([BatchItem(f"k{number}", "x" * length, "docs") for number in range(2501)])
        document = Document()
        async for _ in document.read(await Source.of(journal)):
            pass
        document.end()
    lines = [json.loads(line) for line in gzip.decompress(document.whole()).splitlines()]
    assert [len(line["number"]) for line in lines[1:]] == blocks


async def test_hostile_texts(tmp_path: Path) -> None:
    """Control characters are escaped and a prompt of a million characters is whole; a key stays as it is."""
    await fail_hostile(tmp_path / "run.db")
    columns = block(await rows_of(tmp_path / "run.db"))
    assert HOSTILE[-1] in columns["prompt"]
    assert any("\\u202egnp.exe" in prompt and "\\x1b[31m" in prompt for prompt in columns["prompt"])
    assert any("line \\u2028 break" in prompt and "\\x00 null" in prompt for prompt in columns["prompt"])
    assert "key\u202egnp" in columns["key"]
