"""More fields of an item's create: the journal keeps them, and what is sent has them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import select

from agentjobs_async.batch import BatchItem, BatchWorker, Journal, run_batch
from agentjobs_async.batch._database.schema import ITEMS
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import items, outcomes, run
from tests.batch.store.owned import WHY, claimed, records_of

EXTRA = {"branch": "main", "limits": {"b": [1, 2.5, None], "a": "é\0"}}
SAME = {"limits": {"a": "é\0", "b": [1, 2.5, None]}, "branch": "main"}
SOON = JobScript(duration=0.01)


def item(extra: dict[str, Any] | None, key: str = "k", prompt: str = "p") -> BatchItem:
    return BatchItem(key, prompt, "docs", extra=extra)


def bodies(emulator: Emulator) -> list[Mapping[str, Any]]:
    """Return the JSON objects of all creates, sorted by their prompts."""
    found = [json.loads(request.body) for request in emulator.requests if request.method == "POST"]
    return sorted(found, key=lambda body: str(body["prompt"]))


async def test_rows(journal: Journal) -> None:
    """A row has the extra of its item, in a document too; an item without one, or with an empty one, has none."""
    await journal.add([item(EXTRA, "a"), item(None, "b"), item({}, "c"), BatchItem("d", "x", "docs", {"row": 1})])
    rows = await journal.rows()
    assert [row.extra for row in rows] == [EXTRA, None, None, None]
    assert [row.item.extra for row in rows] == [EXTRA, None, None, None]
    assert rows[0].item.context is None
    assert rows[0].to_dict()["extra"] == EXTRA
    assert "branch" not in repr(rows[0]) + repr(rows[0].item)
    stored = await journal.store.read(select(ITEMS.c.extra).order_by(ITEMS.c.number))
    assert stored[0][0] == json.dumps(EXTRA, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [(EXTRA, {"branch": "other"}), (EXTRA, None), (None, EXTRA), ({"depth": 1}, {"depth": "1"}), ({"a": None}, None)],
)
async def test_another_extra(journal: Journal, first: dict[str, Any] | None, second: dict[str, Any] | None) -> None:
    """An item whose key has a row of another extra is refused, by a check as by planning; the row stays as it is."""
    assert await journal.add([item(first)]) == []
    for refusing in (journal.check, journal.add):
        ((refused, error),) = await refusing([item(second), item(first, "other")])
        assert refused.key == "k"
        assert "the key 'k' is that of another extra in the journal" in str(error)
    assert [row.extra for row in await journal.rows()] == [first, first]


async def test_the_same_extra(journal: Journal) -> None:
    """An extra in another order, or an empty one instead of none, is the same: the item is the one that is there."""
    await journal.add([item(EXTRA, "a"), item(None, "b"), item({}, "c")])
    for adding in (journal.check, journal.add):
        assert await adding([item(SAME, "a"), item({}, "b"), item(None, "c")]) == []
    assert await journal.add([item(None, "b")]) == []
    assert len(await journal.rows()) == 3


async def test_tries(journal: Journal) -> None:
    """A retry has the extra of its item, and so has the try before it."""
    await journal.add([item(EXTRA)])
    await records_of(journal).rejected("k", await claimed(journal, "k"), WHY)
    await journal.retry("k")
    rows = await journal.rows(all_tries=True)
    assert [(row.tries, row.extra) for row in rows] == [(1, EXTRA), (2, EXTRA)]


@pytest.mark.looptime
async def test_batch(journal: Journal) -> None:
    """A create has the fields of its item's extra beside the prompt, also where an earlier run has planned it."""
    async with Emulator(script=SOON) as emulator, emulator.session(project_id="docs") as session:
        await journal.add([item(EXTRA, "a", "p0")])
        results = await run(session, [item({"depth": 2}, "b", "p1"), *items(3)[2:]], journal)
    assert outcomes(results) == {"a": "completed", "b": "completed", "k2": "completed"}
    assert {result.item.key: result.item.extra for result in results} == {"a": EXTRA, "b": {"depth": 2}, "k2": None}
    assert bodies(emulator) == [{"prompt": "p0", **EXTRA}, {"prompt": "p1", "depth": 2}, {"prompt": "p2"}]


@pytest.mark.looptime
async def test_worker(journal: Journal) -> None:
    """A worker sends a create with the extra of its item."""
    await journal.add([item(EXTRA)])
    async with (
        Emulator(script=SOON) as emulator,
        emulator.session(project_id="docs") as session,
        BatchWorker(session, journal) as worker,
    ):
        assert await worker.run(["k"]) == ()
    assert bodies(emulator) == [{"prompt": "p", **EXTRA}]


@pytest.mark.looptime
async def test_refused_fields(journal: Journal) -> None:
    """An extra that names the prompt is not sent: its item is rejected, and says why; others are sent."""
    async with Emulator(script=SOON) as emulator, emulator.session(project_id="docs") as session:
        async with run_batch(session, [item({"prompt": "secret"}), item(None, "b", "x")], journal=journal) as results:
            found = {result.item.key: result async for result in results}
    assert (found["k"].outcome, found["b"].outcome) == ("rejected", "completed")
    assert "prompt" in str(found["k"].error)
    assert bodies(emulator) == [{"prompt": "x"}]
