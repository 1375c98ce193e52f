"""What the store's calls do together: claims, ages of creates, pauses, and statements that are executed twice."""

import asyncio
from contextlib import AsyncExitStack
from types import NoneType
from typing import Any

import pytest
from sqlalchemy import and_, literal, select, text
from sqlalchemy.dialects.sqlite import dialect

from agentjobs_async import AgentJob, InvalidInputError, NotFoundError, RejectedError
from agentjobs_async.batch import BatchItem, Journal, JournalRow, Limits, State
from agentjobs_async.batch._database.schema import FOLLOWED, ITEMS
from agentjobs_async.batch._run.planned_rows import PlannedRows
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store import claims as claiming
from agentjobs_async.batch._store.measures import last_number, planned_projects, sent_ages, unknown_ages
from agentjobs_async.batch._store.owning import doubt_dead, free_jobs, free_own, settle_claims, take
from agentjobs_async.batch._store.pauses import pause, paused_for
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.settling import abandon
from tests.batch.stage import FakeSession, claim_of, items, run, set_clock, state_of
from tests.batch.store.owned import ME, WHY, claimed, created, lost, records_of, row_of
from tests.batch.store.test_moves import NOW, twice
from tests.polled import REF


async def test_abandoned_or_sent(journal: Journal) -> None:
    """A planned row that is claimed and abandoned at the same time becomes one of the two, and the other is refused."""
    store = journal.store
    await journal.add(items(40))
    await journal.set_limits(Limits(max_active=None))

    async def end(row: JournalRow) -> State | None:
        claiming, abandoning = store.claim(row.key, ME), abandon(store, row)
        if row.number % 2:
            claim, is_abandoned = await asyncio.gather(claiming, abandoning)
        else:
            is_abandoned, claim = await asyncio.gather(abandoning, claiming)
        state = await state_of(journal, row.key)
        is_right = (claim is not None, is_abandoned) == (state is State.SENDING, state is State.ABANDONED)
        return state if is_right else None

    found = await asyncio.gather(*map(end, await journal.rows()))
    assert set(found) - {State.SENDING} == {State.ABANDONED}


async def test_no_key_in_a_row(journal: Journal) -> None:
    """A row holds no API key, whatever quotes it: a callable's own error, a server's, or a link."""
    records = Records(journal.store, ME, lambda text: text.replace("s3cret", "***"))
    quoting = OSError("s3cret in a URL"), RejectedError(422, "s3cret"), NotFoundError(410, "s3cret")
    await journal.add(items(5))
    claims = {key: await claimed(journal, key) for key in ("k0", "k1", "k2", "k3", "k4")}
    for key in ("k2", "k3", "k4"):
        await records.created(key, claims[key], REF, None)
    await records.unknown("k0", claims["k0"], quoting[0])
    await records.rejected("k1", claims["k1"], quoting[1])
    await records.noted("k2", REF.job_id, quoting[0], 1)
    await records.gone("k3", REF.job_id, quoting[2], 1)
    await records.ended("k4", AgentJob(REF.job_id, "docs", "completed", pr_link="https://x.example/s3cret"), 1)
    rows = [row.to_dict() async for row in journal.rows()]
    assert "s3cret" not in f"{rows} {await journal.store.read(select(ITEMS))}"
    assert ["***" in str(row) for row in rows] == [True] * 5


async def test_notes_stay_with_created_rows(journal: Journal) -> None:
    """What ended a wait is noted at the row of its job, and nowhere else."""
    await journal.add(items(2))
    await created(journal, "k0")
    for key in ("k0", "k1"):
        await records_of(journal).noted(key, REF.job_id, ValueError("\ud800" * 5000), 1)
    errors = {row.key: row.error async for row in journal.rows()}
    assert errors["k1"] is None
    assert str(errors["k0"]).startswith("ValueError: \\ud800")


async def test_ages(journal: Journal) -> None:
    """The ages of creates come newest first, none that is too old, and none in the future: the clock was ahead then."""
    await journal.add(items(4))
    for key, at in {"k0": NOW - 100, "k1": NOW - 10, "k2": NOW + 50, "k3": NOW + 70}.items():
        set_clock(journal, at)
        await claimed(journal, key)
    set_clock(journal, NOW)
    assert await sent_ages(journal.store, 60, 10) == [("docs", 0), ("docs", 10)]
    assert await sent_ages(journal.store, 1000, 2) == [("docs", 0), ("docs", 10)]


async def test_ages_by_project(journal: Journal) -> None:
    """The last creates of each project are told, so many of each."""
    await journal.add([BatchItem(f"k{number}", "x", f"p{number % 2}") for number in range(6)])
    for number in range(6):
        set_clock(journal, NOW - 10 * number)
        await claimed(journal, f"k{number}")
    set_clock(journal, NOW)
    assert await sent_ages(journal.store, 1000, 2) == [("p0", 0), ("p1", 10), ("p0", 20), ("p1", 30)]


async def test_planned_projects(journal: Journal) -> None:
    """Planned rows are counted for each project, which come by their first rows; rows in any other state are not."""
    await journal.add([BatchItem(f"a{number}", "x", "docs") for number in range(3)])
    await journal.add([BatchItem("b", "x", "api"), *items(2)])
    await claimed(journal, "a0")
    assert await planned_projects(journal.store, Query()) == [("docs", 2, 4), ("api", 4, 1)]


async def test_planned_rows_that_are_released(journal: Journal) -> None:
    """A row that is claimed and planned again while a run reads the planned rows is read once."""
    found = []
    await journal.add(items(2))
    planned = PlannedRows(journal.store, set())
    await planned.open(Query(until=await last_number(journal.store)), {})
    while planned:
        if (row := await planned.next(lambda _: True)) is not None:
            found.append(row.key)
            claim = await claimed(journal, row.key)
            assert await records_of(journal).released(row.key, claim, WHY)
    assert found == ["k0", "k1"]


async def test_what_was_sent_again(journal: Journal) -> None:
    """A create that was sent again counts twice: when it was sent first, and again; after a year it is forgotten."""
    await journal.add(items(2))
    for key, at in (("k0", NOW - 367 * 86_400), ("k1", NOW - 10)):
        set_clock(journal, at)
        await lost(journal, key)
        set_clock(journal, NOW)
        await journal.resolve(key, send_again=True)
    assert await sent_ages(journal.store, 1e9, 10) == [("docs", 10)]
    await claimed(journal, "k1")
    assert await sent_ages(journal.store, 1e9, 10) == [("docs", 0), ("docs", 10)]


async def test_what_was_refused_counts(journal: Journal) -> None:
    """A create that was sent and refused counts from its answer on, once, and so does the next one of its item."""
    await journal.add(items(2))
    for key, was_sent in (("k0", True), ("k1", False)):
        set_clock(journal, NOW - 50)
        claim = await claimed(journal, key)
        set_clock(journal, NOW - 10)
        await records_of(journal).released(key, claim, WHY, was_sent=was_sent)
    set_clock(journal, NOW)
    assert await sent_ages(journal.store, 1e9, 10) == [("docs", 10)]
    await claimed(journal, "k0")
    assert await sent_ages(journal.store, 1e9, 10) == [("docs", 0), ("docs", 10)]


async def test_what_was_being_sent_at_the_end_counts(file_journal: Journal) -> None:
    """A create without an answer, whose owner has ended, counts from when that was found out."""
    await file_journal.add(items(1))
    set_clock(file_journal, NOW)
    await claimed(file_journal, "k0")
    set_clock(file_journal, NOW + 50)
    assert [row.key for row in await doubt_dead(file_journal.store, ME, followed=False)] == ["k0"]
    assert await sent_ages(file_journal.store, 1e9, 10) == [("docs", 0)]


async def test_resolving_whose_answer_is_lost(journal: Journal) -> None:
    """Settling that is carried out again, since its answer was lost, succeeds, and counts the first create once."""
    await journal.add(items(3))
    set_clock(journal, NOW)
    for key in ("k0", "k1", "k2"):
        await lost(journal, key)
    with twice(journal):
        await journal.resolve("k0", send_again=True)
        await journal.resolve("k1", job_id="job_1")
        await journal.abandon("k2")
    assert [await state_of(journal, f"k{n}") for n in range(3)] == [State.PLANNED, State.ACTIVE, State.ABANDONED]
    assert await sent_ages(journal.store, 60, 10) == 3 * [("docs", 0)]
    await records_of(journal).ended("k1", AgentJob("job_1", "docs", "completed"), 1)
    with pytest.raises(InvalidInputError, match="k1 is completed"):
        await journal.resolve("k1", job_id="job_1")


async def test_planning_whose_answer_is_lost(journal: Journal) -> None:
    """Items that are planned a second time, since the answer to the first was lost, are not refused as repeated."""
    with twice(journal):
        assert await journal.add(items(3)) == []
        session = FakeSession()
        results = await run(session, items(5), journal)
    assert {result.item.key: str(result.outcome) for result in results} == {f"k{n}": "completed" for n in range(5)}
    assert session.agents == {f"p{n}": 1 for n in range(5)}


async def test_owners_that_resolve_at_once(laid_out: str) -> None:
    """Of several owners that have one create sent again at once, one does; the first create counts once."""
    async with AsyncExitStack() as opened:
        owners = [await opened.enter_async_context(Journal.open(laid_out)) for _ in range(3)]
        for number in range(10):
            key = f"k{number}"
            await owners[0].add(items(1, first=number))
            await lost(owners[0], key)
            resolving = (owner.resolve(key, send_again=True) for owner in owners)
            done = await asyncio.gather(*resolving, return_exceptions=True)
            assert sorted(map(type, done), key=str) == [NoneType, InvalidInputError, InvalidInputError]
        assert len(await sent_ages(owners[0].store, 60, 100)) == 10
        assert len(await owners[0].rows(all_tries=True)) == 20


async def test_owners_that_retry_at_once(laid_out: str) -> None:
    """Of several owners that try an item again at once, one does, and its try is kept once."""
    async with AsyncExitStack() as opened:
        owners = [await opened.enter_async_context(Journal.open(laid_out)) for _ in range(3)]
        await owners[0].add(items(10))
        for number in range(10):
            key = f"k{number}"
            await records_of(owners[0]).rejected(key, await claimed(owners[0], key), WHY)
            done = await asyncio.gather(*(owner.retry(key) for owner in owners), return_exceptions=True)
            assert sorted(map(type, done), key=str) == [InvalidInputError, InvalidInputError, str]
        assert [row.tries for row in await owners[0].rows(all_tries=True)] == 10 * [1, 2]


async def test_owners_that_take_at_once(laid_out: str) -> None:
    """Of several owners that take free rows at once, each gets rows of its own, and all rows are taken."""
    async with AsyncExitStack() as opened:
        owners = [await opened.enter_async_context(Journal.open(laid_out)) for _ in range(3)]
        await owners[0].add(items(30))
        await owners[0].set_limits(Limits(max_active=None))
        for number in range(30):
            await created(owners[0], f"k{number}")
        await free_own(owners[0].store, ME)
        found: list[str] = []
        for _ in range(10):
            free = Query(numbers=(await free_jobs(owners[0].store, Query()))[:5])
            taking = (take(owner.store, free, f"owner {number}") for number, owner in enumerate(owners))
            found += [row.key for rows in await asyncio.gather(*taking) for row in rows]
        assert sorted(found) == sorted(f"k{number}" for number in range(30))


async def test_taking_whose_answer_is_lost(journal: Journal) -> None:
    """Rows that are taken again, since the answer was lost, are given, as all own ones; those of others are not."""
    await journal.add(items(3))
    for key in ("k0", "k1"):
        await created(journal, key)
    await free_own(journal.store, ME)
    await created(journal, "k2", owner="another")
    with twice(journal):
        taken = await take(journal.store, Query(), ME)
    assert [row.key for row in taken] == ["k0", "k1"]
    assert await take(journal.store, Query(), ME) == taken
    assert await take(journal.store, Query(), "a third one") == []


async def test_ages_of_unknown_rows(journal: Journal) -> None:
    """The ages of rows that became unknown lately are told, newest first, of each project; no others."""
    await journal.add([*items(5), BatchItem("other", "p", "web")])
    for number, at in enumerate([NOW - 700, NOW - 20, NOW - 10, NOW - 5, NOW + 3600]):
        set_clock(journal, at)
        await (claimed if number == 3 else lost)(journal, f"k{number}")
    set_clock(journal, NOW - 30)
    await lost(journal, "other")
    set_clock(journal, NOW)
    assert await unknown_ages(journal.store, 600, 10) == [("docs", 10), ("docs", 20), ("web", 30)]
    assert await unknown_ages(journal.store, 600, 1) == [("docs", 10), ("web", 30)]


async def test_pauses(journal: Journal) -> None:
    """A pause is that of its project and outlives none longer; one that a wrong clock recorded is left out."""
    store = journal.store
    set_clock(journal, NOW + 86_400)
    await pause(store, 60, "web")
    await pause(store, 60, "ahead")
    set_clock(journal, NOW)
    assert await paused_for(store) == {}
    await pause(store, 100, "docs")
    await pause(store, 10, "docs")
    await pause(store, 20, "web")
    assert await paused_for(store) == {"docs": 100, "web": 20}
    set_clock(journal, NOW + 25)
    assert await paused_for(store) == {"docs": 75}
    set_clock(journal, NOW - 50)
    assert await paused_for(store) == {"docs": 100, "web": 20}


class LostAnswersError(Exception):
    """The connection broke between the commit and its answer."""


def lose_answers(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> list[Any]:
    """Carry out what is written, and lose the answers; return what was written."""
    write, asked = journal.store._database.write, list[Any]()

    async def lost(*statements: Any, **settings: Any) -> None:
        asked.append((statements, settings))
        await write(*statements, **settings)
        raise LostAnswersError

    monkeypatch.setattr(journal.store._database, "write", lost)
    return asked


async def planned_again(journal: Journal) -> list[str]:
    """Settle the claims whose outcomes are not known, and return the keys of the rows that are planned again."""
    before = {row.key for row in await journal.rows(State.PLANNED)}
    await settle_claims(journal.store, ME)
    return sorted({row.key for row in await journal.rows(State.PLANNED)} - before)


async def test_a_claim_whose_answer_is_lost(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim whose answer was lost is released by its owner, even when its row became unknown meanwhile."""
    await journal.add(items(3))
    for key in ("k0", "k1"):
        await doubt_dead(journal.store, ME, followed=False)
        with monkeypatch.context() as patch:
            lose_answers(patch, journal)
            with pytest.raises(LostAnswersError):
                await journal.store.claim(key, ME)
    assert [await state_of(journal, key) for key in ("k0", "k1")] == [State.UNKNOWN, State.SENDING]
    await claimed(journal, "k2")
    assert await planned_again(journal) == ["k0", "k1"]
    assert await planned_again(journal) == []
    found = [await state_of(journal, key) for key in ("k0", "k1", "k2")]
    assert found == [State.PLANNED, State.PLANNED, State.SENDING]


async def test_a_claim_that_is_repeated_later(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is executed once more after it was released is released again: nobody would send it."""
    store = journal.store
    await journal.add(items(1))
    with monkeypatch.context() as patch:
        asked = lose_answers(patch, journal)
        with pytest.raises(LostAnswersError):
            await store.claim("k0", ME)
    assert await planned_again(journal) == ["k0"]
    ((statements, settings),) = asked
    await store._database.write(*statements, **settings)  # as over a connection that broke in between
    assert await state_of(journal, "k0") is State.SENDING
    assert await planned_again(journal) == ["k0"]
    assert await state_of(journal, "k0") is State.PLANNED


async def test_very_many_claims_without_an_answer(journal: Journal) -> None:
    """Any number of claims without an answer, or left by their senders, is looked for: no statement is too long."""
    store = journal.store
    await journal.add(items(2))
    claims = [await claimed(journal, key) for key in ("k0", "k1")]
    for number in range(20_000):
        store.claims.note_unanswered(f"claim {number}", f"key {number}")
        store.claims.leave(f"claim {number}", f"key {number}")
    store.claims.note_unanswered(claims[0], "k0")
    store.claims.leave(claims[1], "k1")
    assert [row.key for row in await settle_claims(store, ME)] == ["k1"]
    assert [await state_of(journal, key) for key in ("k0", "k1")] == [State.PLANNED, State.UNKNOWN]
    assert list(store.claims.left()) == []


async def test_a_claim_that_is_cut_off(journal: Journal) -> None:
    """A claim that was cancelled in flight leaves no row behind that is sending, whether it was carried out or not."""
    await journal.add(items(20))
    claims = [asyncio.ensure_future(journal.store.claim(f"k{number}", ME)) for number in range(20)]
    await asyncio.sleep(0)
    for claim in claims:
        claim.cancel()
    await asyncio.wait(claims)
    await journal.store.flush()
    await settle_claims(journal.store, ME)
    assert (await journal.counts())[State.PLANNED] == 20


async def test_a_claim_that_its_sender_left(journal: Journal) -> None:
    """A row whose sender has gone becomes unknown, unless an outcome was recorded, or another claim holds."""
    store = journal.store
    await journal.add(items(3))
    left, recorded, old = [await claimed(journal, key) for key in ("k0", "k1", "k2")]
    assert await records_of(journal).rejected("k1", recorded, WHY)
    assert await records_of(journal).released("k2", old, WHY)
    await claimed(journal, "k2")
    for key, claim in (("k0", left), ("k1", recorded), ("k2", old)):
        store.claims.leave(claim, key)
    doubtful = await settle_claims(store, ME)
    assert [(row.key, row.error) for row in doubtful] == [("k0", "the outcome of its create was not recorded")]
    states = [await state_of(journal, key) for key in ("k0", "k1", "k2")]
    assert states == [State.UNKNOWN, State.REJECTED, State.SENDING]


async def test_doubt_ends(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim without an answer that was never carried out is looked for a while, and forgotten."""

    async def broken(*_: Any, **__: Any) -> None:
        raise LostAnswersError

    with monkeypatch.context() as patch:
        patch.setattr(journal.store._database, "write", broken)
        with pytest.raises(LostAnswersError):
            await journal.store.claim("k0", ME)
    assert await planned_again(journal) == []
    assert [list(claims.values()) for claims in journal.store.claims.unanswered()] == [["k0"]]
    monkeypatch.setattr(claiming, "_DOUBT_SECONDS", -1.0)
    assert await planned_again(journal) == []
    assert list(journal.store.claims.unanswered()) == []


async def test_rows_of_another_owner(laid_out: str) -> None:
    """Without its claim, no owner changes a row that another one is sending."""
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        await one.add(items(1))
        await claimed(one, "k0")
        records = records_of(two, "another")
        for record in (records.unknown, records.rejected, records.released):
            assert not await record("k0", "of another create", WHY)
        assert await state_of(one, "k0") is State.SENDING


async def test_leaving_what_an_owner_works_on(journal: Journal) -> None:
    """An owner that leaves its rows leaves those that it polls; what it is sending stays its own."""
    await journal.add(items(3))
    await created(journal, "k0")
    await claimed(journal, "k1")
    await created(journal, "k2", owner="another")
    with twice(journal):
        await free_own(journal.store, ME)
    owners = {row.key: row.owner for row in await journal.store.read(select(ITEMS.c.key, ITEMS.c.owner))}
    assert owners == {"k0": None, "k1": ME, "k2": "another"}


async def test_an_action_on_an_older_try(journal: Journal) -> None:
    """What a person decides about a try of an item does nothing once the next one has begun."""
    await journal.add(items(1))
    await lost(journal, "k0")
    seen = await row_of(journal)
    await journal.resolve("k0", send_again=True)
    await lost(journal, "k0")
    for job_id in (None, "job_1"):
        with pytest.raises(InvalidInputError, match="k0 is unknown"):
            await journal._resolve(seen, job_id)
    with pytest.raises(InvalidInputError, match="k0 is unknown"):
        await journal._abandon(seen)
    row = await row_of(journal)
    assert (row.state, row.tries, await claim_of(journal.store, "k0") != "") == (State.UNKNOWN, 2, True)


async def test_few_rows_among_many(file_journal: Journal) -> None:
    """What durable jobs follow, and what an owner works on, is found by indexes that hold nothing else."""
    for condition, index in (
        (and_(FOLLOWED, ITEMS.c.number > literal(0)), "agentjobs_items_followed"),
        (ITEMS.c.owner == literal(ME), "agentjobs_items_owned"),
        (ITEMS.c.user_id == literal("user"), "agentjobs_items_by_user"),
    ):
        query = (
            select(ITEMS.c.prompt).where(condition).compile(dialect=dialect(), compile_kwargs={"literal_binds": True})
        )
        (plan,) = await file_journal.store.read(text(f"EXPLAIN QUERY PLAN {query}"))
        assert f"USING INDEX {index}" in plan.detail
