"""Which rows of a journal are meant, and what is done with all of them."""

import sys
from functools import partial, partialmethod
from typing import Any

import pytest

from agentjobs_async import AgentJob, AgentJobsError, InvalidInputError, JobRef
from agentjobs_async.batch import BatchItem, Journal, State, Where
from agentjobs_async.batch._store import store
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch.states import OPEN
from tests.batch.plans import BY_KEY, BY_NUMBER, analyse, plans_of, without
from tests.batch.stage import NO_KEYS, FakeSession, connected, items, records_of, rejected, run, sent_by_hand, set_clock

NOW = 1_000_000.0


async def filled(journal: Journal) -> Journal:
    """Plan and end some items: one each hour, the last one now."""
    records = records_of(journal)
    ends = {"done": "completed", "broken": "failed", "old": "archived"}
    planned = [
        BatchItem("done", "Document the API", "docs"),
        BatchItem("broken", "Fix 100% of it", "web"),
        BatchItem("old", "fix_it", "docs"),
        BatchItem("refused", "Fix\nit", "web"),
        BatchItem("planned", "Say 'fix' /%_", "api"),
    ]
    for hours, item in enumerate(reversed(planned)):
        set_clock(journal, NOW - 3600 * (4 - hours))
        await journal.add([item])
        if item.key == "planned":
            continue
        claim = await sent_by_hand(journal, item.key)
        if item.key == "refused":
            await records.rejected(item.key, claim, AgentJobsError("the Server was busy"))
            continue
        await records.created(item.key, claim, JobRef(item.project_id or "", item.key), None)
        await records.ended(item.key, AgentJob(item.key, "docs", ends[item.key]), 1)
    set_clock(journal, NOW)
    return journal


CONDITIONS: list[tuple[Where, set[str]]] = [
    (Where(), {"done", "broken", "old", "refused", "planned"}),
    (Where(states=["failed", State.PLANNED]), {"broken", "planned"}),
    (Where(states=set()), set()),
    (Where(project="docs"), {"done", "old"}),
    (Where(text="Fix"), {"broken", "refused"}),
    (Where(text="fix"), {"old", "planned"}),
    (Where(text="busy"), {"refused"}),
    (Where(text="one"), {"done"}),
    (Where(text="x\ni"), {"refused"}),
    (Where(text="_"), {"old", "planned"}),
    (Where(text="100%"), {"broken"}),
    (Where(text="'fix' /%"), {"planned"}),
    (Where(older_than=2.5 * 3600), {"refused", "planned"}),
    (Where(older_than=1e9), set()),
    (Where(states={"failed", "rejected"}, project="web", text="Fix", older_than=7200), {"refused"}),
]


async def test_rows(journal: Journal) -> None:
    """Rows are those that meet every condition; a text is found as it is, in key, prompt or error."""
    await filled(journal)
    for where, keys in CONDITIONS:
        assert {row.key async for row in journal.rows(where=where)} == keys, where
        assert {row.key for row in await journal.rows("planned", where=where)} == keys & {"planned"}, where


async def test_retry(journal: Journal) -> None:
    """All that meet a condition are planned once more, each once, and what can't be tried again is left."""
    await filled(journal)
    assert await journal.retry(where=Where(project="docs")) == ("old",)
    assert await journal.retry(where=Where(project="docs")) == ()
    assert set(await journal.retry(where=Where())) == {"broken", "refused"}
    assert await journal.retry(where=Where()) == ()
    assert (await journal.counts())[State.PLANNED] == 4
    assert {row.key: row.tries for row in await journal.rows("planned")} == {
        "planned": 1,
        "old": 2,
        "broken": 2,
        "refused": 2,
    }


async def test_many_retries(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number is planned again page by page, with their contexts, and each sends one more create."""
    monkeypatch.setattr(Query, "__init__", partialmethod(Query.__init__, size=50))
    session = FakeSession()
    todo = [BatchItem(item.key, item.prompt, context={"of": item.key}) for item in items(120)]
    session.answers = {item.prompt: [rejected()] for item in todo}
    await run(session, todo, journal, max_active=100)
    keys = await journal.retry(where=Where(states={State.REJECTED}))
    assert set(keys) == {item.key for item in todo}
    assert len(keys) == len(todo)
    await run(session, [], journal, max_active=100)
    assert set(session.agents.values()) == {1}
    assert len(session.agents) == 120
    rows = await journal.rows("completed")
    assert {(row.key, str(row.context)) for row in rows} == {(item.key, str(item.context)) for item in todo}
    assert await journal.retry(where=Where()) == ()


async def test_wrong_retries(journal: Journal) -> None:
    """A filter that names what is not tried again is refused, and so is a call with both a key and a filter."""
    await filled(journal)
    with pytest.raises(InvalidInputError, match="states has completed"):
        await journal.retry(where=Where(states={"failed", "completed"}))
    for given in ({}, {"key": "broken", "where": Where()}):
        with pytest.raises(InvalidInputError, match="either"):
            await journal.retry(**given)  # type: ignore[call-overload]  # that is the point
    assert len(await journal.rows("planned")) == 1


def test_wrong_conditions() -> None:
    """A condition that makes no sense is refused when it is made."""
    wrong: dict[str, list[Any]] = {
        "states": ["failed", ["nonsense"], [5], 5],
        "project": ["", 5],
        "text": ["", " ", 5],
        "older_than": [0, float("nan"), "1"],
        "key": NO_KEYS,
        "prefix": ["", "a\n", "\ud800", "x" * 513, 5],
    }
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(InvalidInputError, match=name[:5]):
            Where(**{name: value})


LAST = chr(sys.maxunicode)
KEYS = ["chat", "chat-7", "chat-7/1", "chat-7/2", "chat-70/1", "chat_7/1", "Chat-7/3", "100%", "100%/a", "1000", "é/1"]
KEYS += ["ea", f"a{LAST}", f"a{LAST}/1", "aa", "b", LAST, f"{LAST}{LAST}", "\ud7ff/1", "\ue000", " x", "a\U0001f680b"]
PREFIXES = ["chat-7/", "chat-7", "chat_", "C", "100%", "é", "e", "a", f"a{LAST}", LAST, f"{LAST}{LAST}", "\ud7ff", " "]
PREFIXES += ["a\U0001f680", "nothing", "x" * 512]


async def test_keys(journal: Journal) -> None:
    """A key names its row, and a prefix those whose keys begin with it, with whichever characters, in their order."""
    await journal.add([BatchItem(key, "p", "docs") for key in KEYS])
    for prefix in PREFIXES:
        found = [row.key async for row in journal.rows(where=Where(prefix=prefix))]
        assert found == [key for key in KEYS if key.startswith(prefix)], prefix
    for key in KEYS:
        assert [row.key for row in await journal.rows(where=Where(key=key))] == [key]
    assert await journal.rows(where=Where(key="chat-7/")) == []
    assert await journal.rows(where=Where(key="chat-7", prefix="chat-7/")) == []
    assert [row.key for row in await journal.rows("planned", where=Where(prefix="chat-7/", text="/2"))] == ["chat-7/2"]
    assert await journal.rows("failed", where=Where(prefix="chat-7/")) == []


async def test_many_keys_of_a_prefix(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows of a prefix come once, in their order, however many they are, and a list may be read once more."""
    monkeypatch.setattr(Query, "__init__", partialmethod(Query.__init__, size=7))
    monkeypatch.setattr(store, "_PAGE_NUMBERS", 50)
    keys = [f"{'ab'[number % 3 == 0]}/{number}" for number in range(300)]
    await journal.add([BatchItem(key, "p", "docs") for key in keys])
    rows = journal.rows(where=Where(prefix="a/", states={"planned"}))
    for _ in range(2):
        pages = [[row.key for row in page] async for page in rows.pages()]
        assert [key for page in pages for key in page] == [key for key in keys if key.startswith("a/")]
        assert max(map(len, pages)) == 7


async def test_an_index_finds_keys(journal: Journal) -> None:
    """The index of keys answers each query by a key or a prefix, with old statistics of the database and with new."""
    for start in (0, 5_000):
        await journal.add([BatchItem(f"k/{number}", "p", "docs") for number in range(start, start + 5_000)])
        for where in (Where(key="k/77"), Where(prefix="k/77"), Where(prefix="k/77", project="docs", text="p")):
            for call in (
                partial(journal.rows, where=where),
                partial(journal.rows, "planned", where=where),
                partial(journal.store.count, Query(where=where, states=OPEN)),
                partial(journal.store.select, Query(where=where, states=OPEN, after=9, is_followed=True)),
                partial(journal.retry, where=where),
            ):
                first, *others = await plans_of(journal, call)
                assert without(BY_KEY, [first]) == []
                assert without(f"{BY_NUMBER}|{BY_KEY}", others) == []
        await analyse(journal)


@pytest.mark.slow
async def test_the_order_of_keys(laid_out: str) -> None:
    """PostgreSQL compares keys by their code points, whatever the collation of the database."""
    async with Journal.open(laid_out) as journal:
        await journal.add([BatchItem("a", "p", "docs")])
        async with connected(journal) as connection:
            found = await connection.exec_driver_sql("SELECT pg_collation_for(key) FROM agentjobs_items")
            assert found.scalar() == '"C"'
