"""What rows tell of their items: times, polls, tries and the item's own context."""

import json
from datetime import UTC, datetime

import pytest

from agentjobs_async import AgentJob
from agentjobs_async.batch import BatchItem, Journal, JournalRow, State
from agentjobs_async.batch._store.owning import settle_claims
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import items, run, set_clock, state_of
from tests.batch.store.owned import ME, WHY, claimed, lost, records_of, row_of
from tests.polled import REF

CONTEXT = {"title": "Ünïcode \0", "row": [1, 2.5, None, {"deep": True}]}


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


async def test_times(journal: Journal) -> None:
    """Each step of an item leaves its time, and later steps leave it as it is."""
    records = records_of(journal)
    set_clock(journal, 1000)
    await journal.add(items(1))
    row = await row_of(journal)
    assert (row.planned_at, row.sent_at, row.created_at, row.seen_at, row.ended_at) == (at(1000), *4 * [None])
    set_clock(journal, 1001)
    await journal.add(items(1))
    claim = await claimed(journal, "k0")
    set_clock(journal, 1002)
    await records.created("k0", claim, REF, None)
    row = await row_of(journal)
    assert (row.planned_at, row.sent_at, row.created_at, row.seen_at) == (at(1000), at(1001), at(1002), at(1002))
    assert row.ended_at is None
    set_clock(journal, 1003)
    await records.ended("k0", AgentJob(REF.job_id, "docs", "completed"), 7)
    row = await row_of(journal)
    assert (row.sent_at, row.created_at, row.seen_at, row.ended_at) == (at(1001), at(1002), at(1003), at(1003))
    assert (row.polls, row.tries) == (7, 1)


async def test_what_did_not_happen(journal: Journal) -> None:
    """A claim under which nothing was sent leaves no time of a create; a rejection and an abandoning are ends."""
    records = records_of(journal)
    await journal.add(items(4))
    claims = {key: await claimed(journal, key) for key in ("k0", "k1", "k2", "k3")}
    await records.released("k0", claims["k0"], WHY)
    await records.rejected("k1", claims["k1"], WHY)
    await records.unknown("k2", claims["k2"], WHY)
    journal.store.claims.note_unanswered(claims["k3"], "k3")
    assert await settle_claims(journal.store, ME) == []
    assert await state_of(journal, "k3") is State.PLANNED
    rows = {row.key: row for row in await journal.rows()}
    assert {key: row.sent_at is None for key, row in rows.items()} == {"k0": True, "k1": False, "k2": False, "k3": True}
    assert [key for key, row in rows.items() if row.ended_at is not None] == ["k1"]
    await journal.abandon("k2")
    assert (await row_of(journal, "k2")).ended_at is not None


async def test_resolved_rows(journal: Journal) -> None:
    """A job that was found has the time at which it was recorded, and the create keeps its own."""
    await journal.add(items(1))
    set_clock(journal, 2000)
    await lost(journal, "k0")
    set_clock(journal, 3000)
    await journal.resolve("k0", job_id="job_1")
    row = await row_of(journal)
    assert (row.sent_at, row.created_at, row.ended_at) == (at(2000), at(3000), None)


async def test_context(journal: Journal) -> None:
    """An item's context comes back with its row, and a key that is planned again keeps the first."""
    await journal.add(
        [BatchItem("a", "x", context=CONTEXT), BatchItem("b", "y"), BatchItem("c", "z", context={})], project_id="docs"
    )
    await journal.add(
        [BatchItem("a", "x", context={"other": 1}), BatchItem("b", "y", context={"late": 1})], project_id="docs"
    )
    rows = await journal.rows()
    assert [row.context for row in rows] == [CONTEXT, None, {}]
    assert rows[0].item == BatchItem("a", "x", "docs", CONTEXT)
    assert "title" not in repr(rows[0])
    assert "title" not in repr(rows[0].item)


@pytest.mark.looptime
async def test_polls_of_several_runs(journal: Journal) -> None:
    """A run that gives up on a job records its polls, and the next one counts on; the result has the item's context."""
    async with Emulator(script=JobScript(duration=60)) as emulator, emulator.session(project_id="docs") as session:
        (result,) = await run(session, [BatchItem("k0", "x", context=CONTEXT)], journal, timeout=30)
        assert (str(result.outcome), result.item.context) == ("timed_out", CONTEXT)
        first = (await row_of(journal)).polls
        (result,) = await run(session, [], journal)
        polls = sum(request.method == "GET" for request in emulator.requests)
    assert result.item.context == CONTEXT
    assert 0 < first < polls
    row = await row_of(journal)
    assert (row.state, row.polls, row.seen_at) == ("completed", polls, row.ended_at)
    times = [time for time in (row.planned_at, row.sent_at, row.created_at, row.ended_at) if time is not None]
    assert (len(times), times) == (4, sorted(times))


async def test_documents(journal: Journal) -> None:
    """A row is a document of plain JSON with all that it tells: times in ISO 8601, null for what is not."""
    await journal.add([BatchItem("ä", "two\nlines", context=CONTEXT)], project_id="docs")
    (row,) = await journal.rows()
    document = row.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert (document["key"], document["prompt"], document["state"]) == ("ä", "two\nlines", "planned")
    assert document["context"] == CONTEXT
    for name in ("planned_at", "updated_at"):
        assert datetime.fromisoformat(document[name]).tzinfo is not None
    nothing = {name: document[name] for name in ("job_id", "sent_at", "created_at", "seen_at", "ended_at")}
    assert nothing == dict.fromkeys(nothing)
    assert (document["polls"], document["tries"]) == (0, 1)
    assert set(document) == {name for name in dir(row) if name in JournalRow.__annotations__}
