import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import NoneType
from typing import Any

import pytest
from sqlalchemy import select

from agentjobs_async import AgentJob, AgentJobsError, InvalidInputError, NotFoundError, RejectedError
from agentjobs_async.batch import BatchItem, BatchResult, Journal, JournalRow, State
from agentjobs_async.batch._run.feed import PlannedRows, earlier
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.schema import ITEMS
from agentjobs_async.batch.states import MOVES
from tests.batch.stage import FakeSession, claim_of, items, run, set_clock, state_of
from tests.polled import REF

WHY = AgentJobsError("because")
PATHS: dict[State, list[State]] = {
    State.PLANNED: [],
    State.SENDING: [State.SENDING],
    State.ACTIVE: [State.SENDING, State.ACTIVE],
    State.UNKNOWN: [State.SENDING, State.UNKNOWN],
    State.REJECTED: [State.SENDING, State.REJECTED],
    **{state: [State.SENDING, State.ACTIVE, state] for state in (State.COMPLETED, State.FAILED, State.ARCHIVED)},
    State.ABANDONED: [State.SENDING, State.UNKNOWN, State.ABANDONED],
}
"""How a planned row comes to each state."""


async def move(journal: Journal, key: str, target: State) -> bool:
    """Ask for a move in the way a runner does."""
    store = journal._store
    if target is State.SENDING:
        return isinstance(await store.claim(key), str)
    if target in {State.COMPLETED, State.FAILED, State.ARCHIVED}:
        return await store.record_ended(key, AgentJob("job_1", "docs", str(target)), 1) is not None
    row, claim = (await store.get_many([key]))[key], await claim_of(store, key)
    moves: dict[State, Callable[[], Awaitable[object]]] = {
        State.PLANNED: lambda: store.release_claim(key, WHY, claim=claim),
        State.ACTIVE: lambda: store.record_created(key, REF),
        State.REJECTED: lambda: store.record_rejected(key, WHY, claim=claim),
        State.UNKNOWN: lambda: store.record_unknown(key, WHY, claim=claim),
        State.ABANDONED: lambda: store.abandon(row),
    }
    return bool(await moves[target]())


async def test_every_pair_of_states(journal: Journal) -> None:
    """Of all moves, exactly those of the table are made; a refused one changes nothing."""
    pairs = list(itertools.product(State, State))
    await journal.add([BatchItem(f"{origin}-{target}", "x") for origin, target in pairs], project_id="docs")

    async def is_as_stated(origin: State, target: State) -> bool:
        key = f"{origin}-{target}"
        made = [await move(journal, key, step) for step in PATHS[origin]]
        before = (await journal._store.get_many([key]))[key]
        allowed = target in MOVES[origin]
        made.append(await move(journal, key, target) is allowed)
        after = (await journal._store.get_many([key]))[key]
        return all(made) and after.state is (target if allowed else origin) and (allowed or after == before)

    found = await asyncio.gather(*(is_as_stated(origin, target) for origin, target in pairs))
    assert [pair for pair, is_right in zip(pairs, found, strict=True) if not is_right] == []


async def test_abandoned_or_sent(journal: Journal) -> None:
    """A planned row that is claimed and abandoned at the same time becomes one of the two, and the other is refused."""
    store = journal._store
    await journal.add(items(40))

    async def end(row: JournalRow) -> State | None:
        claiming, abandoning = (store.claim(row.key), store.abandon(row))
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
    store = journal._store.of_run(lambda text: text.replace("s3cret", "***"))
    quoting = OSError("s3cret in a URL"), RejectedError(422, "s3cret"), NotFoundError(410, "s3cret")
    await journal.add(items(5))
    for key in ("k0", "k1", "k2", "k3", "k4"):
        await store.claim(key)
        if key not in {"k0", "k1"}:
            await store.record_created(key, REF)
    await store.record_unknown("k0", quoting[0], claim=await claim_of(store, "k0"))
    await store.record_rejected("k1", quoting[1], claim=await claim_of(store, "k1"))
    await store.record_error("k2", quoting[0], 1, of_job=None)
    await store.record_gone("k3", quoting[2], 1, of_job=REF.job_id)
    await store.record_ended("k4", AgentJob("job_1", "docs", "completed", pr_link="https://x.example/s3cret"), 1)
    rows = [row.to_dict() async for row in journal.rows()]
    assert "s3cret" not in f"{rows} {await store._database.read(select(ITEMS))}"
    assert ["***" in str(row) for row in rows] == [True] * 5


def test_moves_outside_of_the_table() -> None:
    """No statement can be made for a move that the table does not know."""
    with pytest.raises(ValueError, match="no row moves from completed to planned"):
        statements.move("a", State.PLANNED, origin=State.COMPLETED)


async def test_notes_stay_with_created_rows(journal: Journal) -> None:
    """What ended a wait is noted at the row of its job, and nowhere else."""
    await journal.add(items(2))
    await move(journal, "k0", State.SENDING)
    await move(journal, "k0", State.ACTIVE)
    for key in ("k0", "k1"):
        await journal._store.record_error(key, ValueError("\ud800" * 5000), 1, of_job=None)
    errors = {row.key: row.error async for row in journal.rows()}
    assert errors["k1"] is None
    assert str(errors["k0"]).startswith("ValueError: \\ud800")


async def test_ages(journal: Journal) -> None:
    """The ages of creates come newest first, none that is too old, and none in the future: the clock was ahead then."""
    await journal.add(items(4))
    now = 5_000_000.0
    for key, at in {"k0": now - 100, "k1": now - 10, "k2": now + 50, "k3": now + 70}.items():
        set_clock(journal, at)
        await move(journal, key, State.SENDING)
    set_clock(journal, now)
    assert await journal._store.sent_ages(60, 10) == [("docs", 0), ("docs", 10)]
    assert await journal._store.sent_ages(1000, 2) == [("docs", 0), ("docs", 10)]


async def test_ages_by_project(journal: Journal) -> None:
    """The last creates of each project are told, so many of each."""
    await journal.add([BatchItem(f"k{number}", "x", f"p{number % 2}") for number in range(6)])
    now = 5_000_000.0
    for number in range(6):
        set_clock(journal, now - 10 * number)
        await journal._store.claim(f"k{number}")
    set_clock(journal, now)
    assert await journal._store.sent_ages(1000, 2) == [("p0", 0), ("p1", 10), ("p0", 20), ("p1", 30)]


async def test_planned_counts(journal: Journal) -> None:
    """Planned rows are counted for each project; rows in any other state are not."""
    await journal.add([BatchItem(f"a{number}", "x", "docs") for number in range(3)])
    await journal.add([BatchItem("b", "x", "api"), *items(2)])
    await journal._store.claim("a0")
    assert await journal._store.planned_counts() == {"docs": 4, "api": 1}


async def test_planned_rows_that_are_released(journal: Journal) -> None:
    """A row that is claimed and planned again while a run reads the planned rows is read once."""
    store, found = journal._store, []
    await journal.add(items(2))
    planned = PlannedRows(store, set())
    await planned.open(await store.last_number())
    while planned:
        if (row := await planned.next(lambda _: True)) is not None:
            found.append(row.key)
            assert await store.claim(row.key)
            assert await store.release_claim(row.key, WHY, claim=await claim_of(store, row.key))
    assert found == ["k0", "k1"]


async def test_resolved_before_it_is_told(journal: Journal) -> None:
    """What is resolved before a run has given it as unknown is waited for by this run."""
    await journal.add(items(2))
    for key in ("k0", "k1"):
        await move(journal, key, State.SENDING)
        await move(journal, key, State.UNKNOWN)
    yielded: set[int] = set()
    journal._store.became_unknown = ["k0", "k1"]
    found = earlier(journal._store, 2, yielded)
    first = await anext(found)
    await journal.resolve("k1", job_id="job_1")
    rest = [one async for one in found]
    assert isinstance(first, BatchResult)
    assert (first.item.key, yielded) == ("k0", {1})
    assert [(one.key, one.state) for one in rest if isinstance(one, JournalRow)] == [("k1", State.ACTIVE)]
    assert len(rest) == 1


async def test_what_was_sent_again(journal: Journal) -> None:
    """A create that was sent again counts twice: when it was sent first, and again; after a year it is forgotten."""
    await journal.add(items(2))
    now = 5_000_000.0
    for key, at in (("k0", now - 367 * 86_400), ("k1", now - 10)):
        set_clock(journal, at)
        await move(journal, key, State.SENDING)
        await move(journal, key, State.UNKNOWN)
        set_clock(journal, now)
        await journal.resolve(key, send_again=True)
    assert await journal._store.sent_ages(1e9, 10) == [("docs", 10)]
    await move(journal, "k1", State.SENDING)
    assert await journal._store.sent_ages(1e9, 10) == [("docs", 0), ("docs", 10)]


async def test_what_was_refused_counts(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A create that was sent and refused counts from its answer on, once, and so does the next one of its item."""
    await journal.add(items(2))
    store, now = journal._store, 5_000_000.0
    for key, was_sent in (("k0", True), ("k1", False)):
        set_clock(journal, now - 50)
        claim = await store.claim(key)
        assert isinstance(claim, str)
        set_clock(journal, now - 10)
        with monkeypatch.context() as patch:
            write_twice(patch, journal)
            await store.release_claim(key, WHY, claim=claim, was_sent=was_sent)
    set_clock(journal, now)
    assert await store.sent_ages(1e9, 10) == [("docs", 10)]
    await move(journal, "k0", State.SENDING)
    assert await store.sent_ages(1e9, 10) == [("docs", 0), ("docs", 10)]


async def test_what_was_being_sent_at_the_end_counts(journal: Journal) -> None:
    """A create without an answer, whose owner has ended, counts from when that was found out."""
    await journal.add(items(1))
    set_clock(journal, 5_000_000.0)
    await move(journal, "k0", State.SENDING)
    set_clock(journal, 5_000_050.0)
    await journal._store.record_sending_as_unknown()
    assert await journal._store.sent_ages(1e9, 10) == [("docs", 0)]


def write_twice(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> None:
    """Carry out twice what is written, as where the connection breaks between a commit and its answer."""
    database = journal._store._database
    committed = database._committed

    async def twice(*arguments: Any) -> Any:
        await committed(*arguments)
        return await committed(*arguments)

    monkeypatch.setattr(database, "_committed", twice)


async def test_resolving_whose_answer_is_lost(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settling that is carried out again, since its answer was lost, succeeds, and counts the first create once."""
    await journal.add(items(3))
    now = 5_000_000.0
    set_clock(journal, now)
    for key in ("k0", "k1", "k2"):
        await move(journal, key, State.SENDING)
        await move(journal, key, State.UNKNOWN)
    with monkeypatch.context() as patch:
        write_twice(patch, journal)
        await journal.resolve("k0", send_again=True)
        await journal.resolve("k1", job_id="job_1")
        await journal.abandon("k2")
    assert [await state_of(journal, f"k{n}") for n in range(3)] == [State.PLANNED, State.ACTIVE, State.ABANDONED]
    assert await journal._store.sent_ages(60, 10) == 3 * [("docs", 0)]
    await move(journal, "k1", State.COMPLETED)
    with pytest.raises(InvalidInputError, match="k1 is completed"):
        await journal.resolve("k1", job_id="job_1")


async def test_planning_whose_answer_is_lost(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that are planned a second time, since the answer to the first was lost, are not refused as repeated."""
    write_twice(monkeypatch, journal)
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
            await move(owners[0], key, State.SENDING)
            await move(owners[0], key, State.UNKNOWN)
            resolving = (owner.resolve(key, send_again=True) for owner in owners)
            done = await asyncio.gather(*resolving, return_exceptions=True)
            assert sorted(map(type, done), key=str) == [NoneType, InvalidInputError, InvalidInputError]
        assert len(await owners[0]._store.sent_ages(60, 100)) == 10


async def test_ages_of_unknown_rows(journal: Journal) -> None:
    """The ages of rows that became unknown lately are told, newest first, of each project; no others."""
    await journal.add([*items(5), BatchItem("other", "p", "web")])
    now = 5_000_000.0
    for number, at in enumerate([now - 700, now - 20, now - 10, now - 5, now + 3600]):
        set_clock(journal, at)
        await move(journal, f"k{number}", State.SENDING)
        if number != 3:
            await move(journal, f"k{number}", State.UNKNOWN)
    set_clock(journal, now - 30)
    await move(journal, "other", State.SENDING)
    await move(journal, "other", State.UNKNOWN)
    set_clock(journal, now)
    assert await journal._store.unknown_ages(600, 10) == [("docs", 10), ("docs", 20), ("web", 30)]
    assert await journal._store.unknown_ages(600, 1) == [("docs", 10), ("web", 30)]


async def test_pauses(journal: Journal) -> None:
    """A pause is that of its project and outlives none longer; one that a wrong clock recorded is left out."""
    store, now = journal._store, 5_000_000.0
    set_clock(journal, now + 86_400)
    await store.pause(60, "web")
    await store.pause(60, "ahead")
    set_clock(journal, now)
    assert await store.paused_for() == {}
    await store.pause(100, "docs")
    await store.pause(10, "docs")
    await store.pause(20, "web")
    await store.pause(30)
    assert await store.paused_for() == {"docs": 100, "web": 20, None: 30}
    set_clock(journal, now + 25)
    assert await store.paused_for() == {"docs": 75, None: 5}
    set_clock(journal, now - 50)
    assert await store.paused_for() == {"docs": 100, "web": 20, None: 30}


class LostAnswersError(Exception):
    """The connection broke between the commit and its answer."""


def lose_answers(monkeypatch: pytest.MonkeyPatch, journal: Journal) -> None:
    """Carry out what is written, and lose the answers."""
    write = journal._store._database.write

    async def lost(*arguments: Any, **settings: Any) -> None:
        await write(*arguments, **settings)
        raise LostAnswersError

    monkeypatch.setattr(journal._store._database, "write", lost)


async def test_a_claim_whose_answer_is_lost(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim whose answer was lost is released by its owner, even when its row became unknown meanwhile."""
    await journal.add(items(3))
    for key in ("k0", "k1"):
        await journal._store.record_sending_as_unknown()
        with monkeypatch.context() as patch:
            lose_answers(patch, journal)
            with pytest.raises(LostAnswersError):
                await journal._store.claim(key)
    assert [await state_of(journal, key) for key in ("k0", "k1")] == [State.UNKNOWN, State.SENDING]
    await move(journal, "k2", State.SENDING)
    assert {*await journal._store.release_unanswered()} == {"k0", "k1"}
    assert await journal._store.release_unanswered() == ()
    found = [await state_of(journal, key) for key in ("k0", "k1", "k2")]
    assert found == [State.PLANNED, State.PLANNED, State.SENDING]


async def test_a_claim_that_is_repeated_later(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is executed once more after it was released is released again: nobody would send it."""
    store = journal._store
    await journal.add(items(1))
    asked: list[Any] = []
    write = store._database.write

    async def lost(*statements: Any, **settings: Any) -> Any:
        asked.append((statements, settings))
        await write(*statements, **settings)
        raise LostAnswersError

    with monkeypatch.context() as patch:
        patch.setattr(store._database, "write", lost)
        with pytest.raises(LostAnswersError):
            await store.claim("k0")
    assert await store.release_unanswered() == ("k0",)
    ((statements, settings),) = asked
    await write(*statements, **settings)  # as over a connection that broke in between
    assert await state_of(journal, "k0") is State.SENDING
    assert await store.release_unanswered() == ("k0",)
    assert await state_of(journal, "k0") is State.PLANNED


async def test_very_many_claims_without_an_answer(journal: Journal) -> None:
    """Any number of claims without an answer, or left by their senders, is looked for: no statement is too long."""
    store, now = journal._store, asyncio.get_running_loop().time()
    await journal.add(items(2))
    claims = [str(await store.claim(key)) for key in ("k0", "k1")]
    store._claims.unanswered.update({f"claim {number}": (f"key {number}", now) for number in range(20_000)})
    store._claims.unanswered[claims[0]] = ("k0", now)
    store._claims.left.update({f"claim {number}": f"key {number}" for number in range(20_000)})
    store.leave_claim("k1", claims[1])
    assert await store.release_unanswered() == ("k0",)
    assert await state_of(journal, "k1") is State.UNKNOWN
    assert store._claims.left == {}


async def test_a_claim_that_is_cut_off(journal: Journal) -> None:
    """A claim that was cancelled in flight leaves no row behind that is sending, whether it was carried out or not."""
    await journal.add(items(20))
    claims = [asyncio.ensure_future(journal._store.claim(f"k{number}")) for number in range(20)]
    await asyncio.sleep(0)
    for claim in claims:
        claim.cancel()
    await asyncio.wait(claims)
    await journal._store.flush()
    assert (await journal.counts())[State.PLANNED] == 20


async def test_a_claim_that_its_sender_left(journal: Journal) -> None:
    """A row whose sender has gone becomes unknown, unless an outcome was recorded, or another claim holds."""
    store = journal._store
    await journal.add(items(3))
    left, recorded, _ = [str(await store.claim(key)) for key in ("k0", "k1", "k2")]
    assert await store.record_rejected("k1", WHY, claim=await claim_of(store, "k1"))
    for key, claim in (("k0", left), ("k1", recorded), ("k2", left)):
        store.leave_claim(key, claim)
    await store.release_unanswered()
    states = [await state_of(journal, key) for key in ("k0", "k1", "k2")]
    assert states == [State.UNKNOWN, State.REJECTED, State.SENDING]


async def test_doubt_ends(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim without an answer that was never carried out is looked for a while, and forgotten."""

    async def broken(*_: Any, **__: Any) -> None:
        raise LostAnswersError

    with monkeypatch.context() as patch:
        patch.setattr(journal._store._database, "write", broken)
        with pytest.raises(LostAnswersError):
            await journal._store.claim("k0")
    assert await journal._store.release_unanswered() == ()
    assert journal._store._claims.unanswered
    monkeypatch.setattr("agentjobs_async.batch._store.row_store._DOUBT_SECONDS", -1.0)
    assert await journal._store.release_unanswered() == ()
    assert not journal._store._claims.unanswered


async def test_rows_of_another_owner(laid_out: str) -> None:
    """Without its claim, no owner changes a row that another one is sending."""
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        await one.add(items(1))
        assert await move(one, "k0", State.SENDING)
        for record in (two._store.record_unknown, two._store.record_rejected, two._store.release_claim):
            assert not await record("k0", WHY, claim="of another create")
        assert await state_of(one, "k0") is State.SENDING
