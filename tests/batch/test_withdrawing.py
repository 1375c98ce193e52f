"""Items that are withdrawn, or given up, all at once."""

import asyncio
from functools import partialmethod
from typing import Any

import pytest

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async.batch import BatchItem, Journal, Limits, State, Where, run_batch
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.store import Store
from tests.batch.stage import (
    BY_HAND,
    FakeSession,
    created_by_hand,
    items,
    outcomes,
    records_of,
    rejected_by_hand,
    run,
    sent_by_hand,
    states,
    unknown_by_hand,
)


async def filled(journal: Journal) -> None:
    """Plan items of two projects, one of each state that can be withdrawn, and others."""
    keys = ["a/planned", "a/active", "a/unknown", "a/sending", "a/rejected", "b/planned"]
    await journal.add([BatchItem(key, "p", "web" if key[0] == "b" else "docs") for key in keys])
    await created_by_hand(journal, "a/active", JobRef("docs", "job_1"))
    await unknown_by_hand(journal, "a/unknown")
    await sent_by_hand(journal, "a/sending")
    await rejected_by_hand(journal, "a/rejected")


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        (Where(), ("a/planned", "b/planned")),
        (Where(prefix="a/"), ("a/planned",)),
        (Where(project="web"), ("b/planned",)),
        (Where(key="a/active"), ()),
        (Where(states={"planned", "active", "unknown"}), ("a/planned", "a/active", "a/unknown", "b/planned")),
        (Where(states={State.UNKNOWN}, prefix="a/"), ("a/unknown",)),
        (Where(states=()), ()),
    ],
)
async def test_all_that_meet_conditions(journal: Journal, where: Where, keys: tuple[str, ...]) -> None:
    """Planned rows that meet the conditions are abandoned, other states only where they are named; each once."""
    await filled(journal)
    before = {row.key: row for row in await journal.rows()}
    assert await journal.abandon(where=where) == keys
    for row in await journal.rows():
        was = before[row.key]
        if row.key in keys:
            after = "" if was.error is None else f"; before that: {was.error}"
            assert (row.state, row.job_id, row.error) == (
                State.ABANDONED,
                was.job_id,
                f"abandoned while {was.state}{after}",
            )
            assert row.ended_at is not None
        else:
            assert row == was
    assert await journal.abandon(where=where) == ()
    assert await journal.retry(where=Where(prefix="b/")) == ()
    for key in keys:
        assert await journal.retry(key) == key


async def test_what_is_refused(journal: Journal) -> None:
    """States in which nothing is withdrawn are refused, and so is a call with both a key and conditions, or neither."""
    await filled(journal)
    for state in set(State) - {State.PLANNED, State.ACTIVE, State.UNKNOWN}:
        with pytest.raises(InvalidInputError, match=f"states has {state}: only what is planned, active or unknown"):
            await journal.abandon(where=Where(states={"planned", state}))
    wrong: list[dict[str, Any]] = [{}, {"key": "a/planned", "where": Where()}, {"where": "planned"}]
    for given in wrong:
        with pytest.raises(InvalidInputError, match=r"either a key|of type Where"):
            await journal.abandon(**given)
    assert (await journal.counts())[State.ABANDONED] == 0


async def test_withdrawn_or_sent(journal: Journal) -> None:
    """Of many rows that are claimed while they are withdrawn, each is sent or withdrawn, never both."""
    await journal.set_limits(Limits(max_active=None, max_sending=None))
    await journal.add(items(1200))

    async def claim(key: str) -> str | None:
        return key if isinstance(await journal.store.claim(key, BY_HAND), str) else None

    claiming = [asyncio.create_task(claim(f"k{number}")) for number in range(0, 1200, 10)]
    keys = await journal.abandon(where=Where())
    claimed = {key for key in await asyncio.gather(*claiming) if key is not None}
    assert not claimed & set(keys)
    assert len(claimed) + len(keys) == 1200
    assert states(await journal.rows()) == dict.fromkeys(claimed, "sending") | dict.fromkeys(keys, "abandoned")


async def test_a_withdrawal_that_is_interrupted(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a cut between two pages, those of the first stay withdrawn, and the same call continues with the others."""
    await journal.add(items(120))
    monkeypatch.setattr(Query, "__init__", partialmethod(Query.__init__, size=50))
    move_all, pages = Store.move_all, list[int]()

    async def cut_off(*given: Any, **named: Any) -> Any:
        if pages:
            raise asyncio.CancelledError
        found = await move_all(*given, **named)
        pages.append(len(found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Store, "move_all", cut_off)
        with pytest.raises(asyncio.CancelledError):
            await journal.abandon(where=Where(prefix="k"))
    assert pages == [50]
    assert await journal.abandon(where=Where(prefix="k")) == tuple(f"k{number}" for number in range(50, 120))


async def test_a_change_between_look_and_write(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was sent, or tried again, after the page was read is left as it is."""
    await journal.add(items(4))
    move_all = Store.move_all

    async def late(*given: Any, **named: Any) -> Any:
        patch.undo()
        await created_by_hand(journal, "k1", JobRef("docs", "job_1"))
        await rejected_by_hand(journal, "k2")
        await journal.retry("k2")
        return await move_all(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "move_all", late)
        assert await journal.abandon(where=Where(states={"planned", "active"})) == ("k0", "k3")
    assert states(await journal.rows()) == {"k0": "abandoned", "k1": "active", "k2": "planned", "k3": "abandoned"}


async def test_errors_of_their_own(journal: Journal) -> None:
    """Rows of one call keep what was wrong with each, cut to the length that an error of a row may have."""
    await journal.add(items(3))
    for key, error in {"k0": "short", "k1": "long " * 1000}.items():
        claim = await sent_by_hand(journal, key)
        await records_of(journal).unknown(key, claim, ValueError(error))
    assert await journal.abandon(where=Where(states={"unknown", "planned"})) == ("k0", "k1", "k2")
    errors = [row.error or "" for row in await journal.rows()]
    assert errors[0] == "abandoned while unknown; before that: ValueError: short"
    assert errors[1].startswith("abandoned while unknown; before that: ValueError: long long")
    assert len(errors[1].encode()) <= 2_000
    assert errors[2] == "abandoned while planned"


@pytest.mark.looptime
async def test_beside_a_run(journal: Journal) -> None:
    """A run tells of what is withdrawn before its turn has come, and sends none of it."""
    session = FakeSession()
    session.answers = {"p0": [100.0]}
    await journal.add(items(30))
    async with run_batch(session.session, [], journal=journal, max_active=2, max_sending=1) as results:
        await session.creates(1)
        while results.stats().waiting < 1:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.001)
        keys = await journal.abandon(where=Where())
        found = outcomes([result async for result in results])
    assert keys == tuple(f"k{number}" for number in range(1, 30))
    assert (found["k0"], found["k1"]) == ("completed", "abandoned")
    assert set(found.values()) == {"completed", "abandoned"}
    assert session.agents == {"p0": 1}
    assert await run(session, items(30), journal) == []
