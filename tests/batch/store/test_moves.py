"""Every move of a row, from every state: what it changes, what it must match, and what executing it again does."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from attrs import frozen
from sqlalchemy import CheckConstraint, text

from agentjobs_async import AgentJob, InvalidInputError, JournalError, RejectedError
from agentjobs_async.batch import BatchItem, Journal, Limits, State
from agentjobs_async.batch._database.schema import COLUMNS_OF_STATES, ITEMS, JOURNAL, TRIES
from agentjobs_async.batch._store import statements
from agentjobs_async.batch._store.claims import Repetition
from agentjobs_async.batch._store.measures import sent_ages
from agentjobs_async.batch._store.owning import take_to_repeat
from agentjobs_async.batch.states import (
    ABANDON,
    CLAIM,
    CORRECT,
    CREATED,
    CREATED_BY_KEY,
    DOUBT,
    END,
    GONE,
    MOVES,
    NOTE,
    REJECT,
    RELEASE,
    REPEAT,
    RETRY,
    SEND_AGAIN,
    SETTLE,
    UNSENT,
    Move,
)
from tests.batch.stage import items, set_clock, state_of
from tests.batch.store.owned import ME, WHY, cells_of, claimed, created, lost, records_of, row_of, tries_of
from tests.batch.wire import wired
from tests.polled import REF
from tests.until import until

NOW = 5_000_000.0
PATHS: dict[State, list[Move]] = {
    State.PLANNED: [],
    State.SENDING: [CLAIM],
    State.ACTIVE: [CLAIM, CREATED],
    State.UNKNOWN: [CLAIM, DOUBT],
    State.REJECTED: [CLAIM, REJECT],
    State.COMPLETED: [CLAIM, CREATED, END],
    State.FAILED: [CLAIM, CREATED, GONE],
    State.ARCHIVED: [CLAIM, CREATED, END],
    State.ABANDONED: [CLAIM, DOUBT, ABANDON],
}
"""How a planned row comes to each state."""
DIGEST = "of what is sent"
NO_COLUMNS = {"settled", "sent_once", "repeated"}
JOB = {"job_id": REF.job_id, "project_id": REF.project_id}
NEW: dict[str, dict[str, Any]] = {
    RELEASE.name: {"error": "released"},
    CREATED.name: JOB | {"owner": ME, "traceparent": "00-aa-bb-01"},
    CREATED_BY_KEY.name: JOB | {"owner": ME, "traceparent": "00-aa-bb-01"},
    REJECT.name: {"error": "rejected", "refusal": None},
    DOUBT.name: {"error": "unknown"},
    SETTLE.name: JOB,
    CORRECT.name: JOB,
    NOTE.name: {"error": "noted", "polls": 3},
    END.name: {"pr_link": "https://code.example/1", "polls": 4},
    GONE.name: {"error": "gone", "polls": 5},
    ABANDON.name: {"error": "abandoned"},
}
"""What the caller of each move gives besides."""
SET_BY_CLAIMS = {"claim", "change", "idempotency_key"}
"""What a claim sets to values that nobody gives."""


@pytest.fixture
async def journal(journal: Journal) -> Journal:
    """An empty journal without limits, whose clock stands still."""
    await journal.set_limits(Limits(max_active=None))
    set_clock(journal, NOW - 100)
    return journal


@frozen
class Step:
    """One move of one row, asked for in the way its callers do."""

    journal: Journal
    move: Move
    key: str
    target: State

    async def made(self, **wrong: Any) -> bool:
        """Ask for it, with the row's own values where it has to match, but for `wrong`; return whether it was made."""
        if self.move is CLAIM:
            return isinstance(await self.journal.store.claim(self.key, ME, DIGEST), str)
        cells = await cells_of(self.journal, self.key)
        if self.move is REPEAT:
            given = {"owner": ME, "digest": DIGEST, "idempotency_key": str(cells.idempotency_key)} | wrong
            repetition = Repetition(given["idempotency_key"], 1000)
            return isinstance(
                await self.journal.store.claim(self.key, given["owner"], given["digest"], repetition), str
            )
        matching = {name: getattr(cells, name) for name in self.move.matches - {"state", *NO_COLUMNS}}
        if "state" in self.move.matches and State(cells.state) in self.move.origins:
            matching["state"] = State(cells.state)
        new = NEW.get(self.move.name, {})
        store = self.journal.store
        moved = await store.move(self.move, self.key, ME, target=self.target, matching=matching | wrong, new=new)
        return moved is not None


def target_of(move: Move, state: State | None = None) -> State:
    """Return where a move leads: of the three ends of a job, to this one or to the completed one."""
    return move.target if len(move.targets) == 1 else state or State.COMPLETED


async def reach(journal: Journal, key: str, state: State) -> None:
    """Bring a planned row to a state."""
    for move in PATHS[state]:
        assert await Step(journal, move, key, target_of(move, state)).made()


async def prepare(journal: Journal, move: Move, key: str, state: State) -> None:
    """Bring a planned row to a state, from which the move may begin if that is one of its origins."""
    if move is CORRECT and state is State.ACTIVE:
        await reach(journal, key, State.UNKNOWN)
        assert await Step(journal, SETTLE, key, State.ACTIVE).made()
        return
    if move is UNSENT and state is State.SENDING:
        await prepare(journal, REPEAT, key, State.UNKNOWN)
        assert await Step(journal, REPEAT, key, State.SENDING).made()
        return
    await reach(journal, key, state)
    if move is REPEAT and state is State.UNKNOWN:
        assert await take_to_repeat(journal.store, key, ME, DIGEST, 1000)


def expected(move: Move, before: Any, target: State) -> dict[str, Any]:
    """Return what a row has after a move, but for its claim and the id of its change."""
    found = dict(before._mapping) | dict.fromkeys(move.clears) | dict.fromkeys(move.times, NOW)
    found |= {"state": str(target), "updated_at": NOW, "changed_at": NOW, "revision": before.revision + 1}
    found |= {"is_noticed": False} | NEW.get(move.name, {})
    found |= {"tries": before.tries + 1, "polls": 0} if move.begins_try else {}
    found |= {"owner": ME, "digest": DIGEST, "first_sent_at": NOW} if move is CLAIM else {}
    return {name: value for name, value in found.items() if name not in SET_BY_CLAIMS}


async def test_every_move_from_every_state(journal: Journal) -> None:
    """Of all moves, exactly those of the table are made, and change what it says; a refused one changes nothing."""
    pairs = [(move, state) for move in MOVES for state in State]
    await journal.add([BatchItem(f"{move.name}-{state}", "x", "docs") for move, state in pairs])
    for move, state in pairs:
        await prepare(journal, move, f"{move.name}-{state}", state)
    set_clock(journal, NOW)

    async def is_as_stated(move: Move, state: State) -> bool:
        key = f"{move.name}-{state}"
        before = await cells_of(journal, key)
        target = target_of(move)
        is_made = await Step(journal, move, key, target).made()
        after = await cells_of(journal, key)
        if state not in move.origins:
            return not is_made and after == before
        known = {name: value for name, value in after._mapping.items() if name not in SET_BY_CLAIMS}
        keeps_claim = move is REPEAT or after.claim == (None if "claim" in move.clears else before.claim)
        keeps_key = after.idempotency_key == (None if "claim" in move.clears else before.idempotency_key)
        if move is CLAIM:  # the key of a create is the claim of its first POST
            keeps_claim, keeps_key = True, after.idempotency_key == after.claim
        return is_made and known == expected(move, before, target) and keeps_claim and keeps_key

    found = await asyncio.gather(*(is_as_stated(move, state) for move, state in pairs))
    assert [(move.name, state) for (move, state), is_right in zip(pairs, found, strict=True) if not is_right] == []


async def test_each_end_of_a_job(journal: Journal) -> None:
    """A job ends in each of the ways that it can, and in no other."""
    await journal.add(items(3))
    for number, target in enumerate(sorted(END.targets)):
        await reach(journal, f"k{number}", State.ACTIVE)
        assert await Step(journal, END, f"k{number}", target).made()
    assert {await state_of(journal, f"k{number}") for number in range(3)} == END.targets
    with pytest.raises(ValueError, match="the move end does not lead from None to rejected"):
        await Step(journal, END, "k0", State.REJECTED).made()


WRONG: dict[str, Any] = {
    "claim": "of another create",
    "owner": "another",
    "job_id": "another",
    "tries": 7,
    "state": State.PLANNED,
    "idempotency_key": "of another create",
    "digest": "of another body",
}
"""Values that no row of these tests has."""


async def test_what_a_move_must_match(journal: Journal) -> None:
    """A move whose claim, job, try or state is another one by now is not made, and changes nothing."""
    cases = [
        (move, state, name)
        for move in MOVES
        for state in sorted(move.origins)
        for name in sorted(move.matches - NO_COLUMNS)
    ]
    cases = [(move, state, name) for move, state, name in cases if (state, name) != (State.PLANNED, "state")]
    await journal.add([BatchItem(f"{move.name}-{state}-{name}", "x", "docs") for move, state, name in cases])

    async def is_refused(move: Move, state: State, name: str) -> bool:
        key = f"{move.name}-{state}-{name}"
        await prepare(journal, move, key, state)
        before = await cells_of(journal, key)
        is_made = await Step(journal, move, key, target_of(move)).made(**{name: WRONG[name]})
        return not is_made and await cells_of(journal, key) == before

    found = await asyncio.gather(*(is_refused(*case) for case in cases))
    assert [case for case, is_right in zip(cases, found, strict=True) if not is_right] == []
    await journal.add([BatchItem("unsettled", "x", "docs")])
    await reach(journal, "unsettled", State.ACTIVE)
    assert not await Step(journal, CORRECT, "unsettled", State.ACTIVE).made()


def test_moves_outside_of_the_table() -> None:
    """No statement can be made for a move that the table does not know."""
    with pytest.raises(ValueError, match="the move retry does not lead from completed to planned"):
        statements.moving(RETRY, State.PLANNED, State.COMPLETED, frozenset(), None)
    with pytest.raises(ValueError, match="the move retry does not lead from None to active"):
        statements.moving(RETRY, State.ACTIVE, None, frozenset(), None)


async def test_many_moves_of_one_moment(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves that are asked for at once share their commits, and each has its own answer."""
    await journal.add(items(60))
    claims = [await claimed(journal, f"k{number}") for number in range(60)]
    database = journal.store._database
    committed, commits = database._committed, []

    async def counted(*arguments: Any) -> Any:
        commits.append(1)
        return await committed(*arguments)

    monkeypatch.setattr(database, "_committed", counted)
    records = records_of(journal)
    moved = await asyncio.gather(
        *(records.created(f"k{number}", claims[number], REF, None) for number in range(0, 60, 3)),
        *(records.unknown(f"k{number}", claims[number], WHY) for number in range(1, 60, 3)),
        *(records.rejected(f"k{number}", "of another", WHY) for number in range(2, 60, 3)),
    )
    assert [row.state if row else None for row in moved] == 20 * [State.ACTIVE] + 20 * [State.UNKNOWN] + 20 * [None]
    assert len(commits) <= 2  # the first move may go alone


@contextmanager
def twice(journal: Journal) -> Iterator[None]:
    """Carry out twice what is written, as where the connection breaks between a commit and its answer."""
    database = journal.store._database
    committed = database._committed

    async def again(*arguments: Any) -> Any:
        await committed(*arguments)
        return await committed(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_committed", again)
        yield


async def test_every_move_executed_twice(journal: Journal) -> None:
    """A move that is executed again, since its answer was lost, is answered as made, and has its effect once."""
    pairs = [(move, state) for move in MOVES for state in sorted(move.origins)]
    await journal.add([BatchItem(f"{move.name}-{state}", "x", "docs") for move, state in pairs])
    failed = []
    for move, state in pairs:
        key = f"{move.name}-{state}"
        await prepare(journal, move, key, state)
        before = await cells_of(journal, key)
        with twice(journal):
            is_made = await Step(journal, move, key, target_of(move)).made()
        after, kept = await cells_of(journal, key), await tries_of(journal, key)
        is_once = (after.tries, len(kept)) == (before.tries + move.begins_try, move.begins_try)
        if not (is_made and after.state == str(target_of(move)) and is_once):
            failed.append((move.name, state))
    assert failed == []


async def test_no_end_of_a_repetition_settles_it(journal: Journal) -> None:
    """A create that was repeated is neither planned again nor rejected, by whichever of its claims."""
    await journal.add(items(1))
    await prepare(journal, UNSENT, "k0", State.SENDING)
    before = await cells_of(journal, "k0")
    for move in (RELEASE, REJECT):
        for claim in (before.claim, before.idempotency_key):
            assert not await Step(journal, move, "k0", move.target).made(claim=claim)
    assert await cells_of(journal, "k0") == before
    assert await journal.store.move_all(RELEASE, ITEMS.c.key == "k0", mover=ME) == []
    assert await Step(journal, DOUBT, "k0", State.UNKNOWN).made()
    for move in (RELEASE, REJECT):
        assert not await Step(journal, move, "k0", move.target).made()


async def test_what_may_be_repeated(journal: Journal) -> None:
    """A create is repeated while its key is remembered, by the owner that took it, and after no final refusal."""
    await journal.add(items(3))
    for number in range(3):
        await reach(journal, f"k{number}", State.UNKNOWN)
    (claim,) = {(await cells_of(journal, "k0")).idempotency_key}
    assert await take_to_repeat(journal.store, "k0", ME, "of something else", 1000) is None
    assert await take_to_repeat(journal.store, "k0", ME, DIGEST, 1000) == (Repetition(claim, 1000), 1000)
    assert await take_to_repeat(journal.store, "k0", "another", DIGEST, 1000) is None
    set_clock(journal, NOW - 100 + 999)
    assert await take_to_repeat(journal.store, "k0", ME, DIGEST, 1000) == (Repetition(claim, 1000), 1)
    set_clock(journal, NOW - 100 + 1000)
    assert await take_to_repeat(journal.store, "k0", ME, DIGEST, 1000) is None
    assert await journal.store.claim("k0", ME, DIGEST, Repetition(claim, 1000)) is None
    assert await journal.store.claim("k0", ME, DIGEST, Repetition(claim, 1001)) is not None
    set_clock(journal, NOW - 100 - 61)  # it was set back: how long ago the first POST was is not known
    assert await take_to_repeat(journal.store, "k1", ME, DIGEST, 1000) is None
    set_clock(journal, NOW - 100)
    claim = await claimed_again(journal, "k2")
    assert await records_of(journal).unknown("k2", claim, WHY, final=RejectedError(422))
    assert await take_to_repeat(journal.store, "k2", ME, DIGEST, 1000) is None


async def claimed_again(journal: Journal, key: str) -> str:
    """Take an unknown row, claim it to be repeated, and return the claim."""
    found = await take_to_repeat(journal.store, key, ME, DIGEST, 1000)
    assert found is not None
    claim = await journal.store.claim(key, ME, DIGEST, found[0])
    assert isinstance(claim, str)
    return claim


async def test_sends_of_what_is_repeated_twice(journal: Journal) -> None:
    """A rate counts the POST before a repetition once, however often the claim is executed."""
    await journal.add(items(1))
    await reach(journal, "k0", State.UNKNOWN)
    found = await take_to_repeat(journal.store, "k0", ME, DIGEST, 1000)
    assert found is not None
    with twice(journal):
        assert isinstance(await journal.store.claim("k0", ME, DIGEST, found[0]), str)
    assert await sent_ages(journal.store, 1000, 10) == 2 * [("docs", 0)]


@pytest.mark.parametrize("move", [RELEASE, SEND_AGAIN, RETRY], ids=lambda move: move.name)
async def test_sends_of_what_is_planned_again_twice(journal: Journal, move: Move) -> None:
    """A create whose row is planned again counts once more, however often the statements are executed."""
    await journal.add(items(2))
    claim = await claimed(journal, "k0")
    with twice(journal):
        if move is RELEASE:
            assert await records_of(journal).released("k0", claim, WHY, was_sent=True)
        else:
            await records_of(journal).unknown("k0", claim, WHY)
            if move is RETRY:
                await journal.abandon("k0")
                assert await journal.retry("k0") == "k0"
            else:
                await journal.resolve("k0", send_again=True)
    assert await sent_ages(journal.store, 1000, 10) == [("docs", 0)]
    assert len(await tries_of(journal, "k0")) == (move is not RELEASE)
    await claimed(journal, "k0")
    assert await sent_ages(journal.store, 1000, 10) == 2 * [("docs", 0)]


@contextmanager
def again_after(journal: Journal, between: Any) -> Iterator[None]:
    """Execute what is written once more after something else was done, as over a connection that broke for a while."""
    database = journal.store._database
    committed = database._committed

    async def again(*arguments: Any) -> Any:
        await committed(*arguments)
        patch.undo()
        await between()
        return await committed(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_committed", again)
        yield


@pytest.mark.parametrize("move", [RELEASE, SEND_AGAIN, RETRY], ids=lambda move: move.name)
async def test_what_was_claimed_before_it_is_executed_again(laid_out: str, move: Move) -> None:
    """A move to planned that is executed again, after another owner has claimed the row, leaves that claim alone."""
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        await one.add(items(1))
        claim = await claimed(one, "k0")
        if move is not RELEASE:
            await records_of(one).unknown("k0", claim, WHY)
        if move is RETRY:
            await one.abandon("k0")
        other: list[str] = []

        async def claim_it() -> None:
            other.append(await claimed(two, "k0", "another"))

        with again_after(one, claim_it):
            if move is RELEASE:
                await records_of(one).released("k0", claim, None)
            else:
                await one.store.move_all(move, ITEMS.c.key.in_(["k0"]), mover=ME)
        after = await cells_of(one, "k0")
        assert (after.state, after.owner, [after.claim]) == ("sending", "another", other)


async def test_what_has_moved_on_before_it_is_executed_again(laid_out: str) -> None:
    """A create is sent again once for each word of a person, also where the word is executed after the next try."""
    async with Journal.open(laid_out) as one, Journal.open(laid_out) as two:
        await one.add(items(2))
        await lost(one, "k0")
        await lost(one, "k1")
        await one.abandon("k1")

        async def lose(key: str) -> None:
            await lost(two, key, "another")

        row = await row_of(one, "k0")
        with again_after(one, lambda: lose("k0")):
            await one.store.move(SEND_AGAIN, "k0", ME, matching={"tries": row.tries})
        assert ((await cells_of(one, "k0")).state, len(await tries_of(one, "k0"))) == ("unknown", 1)

        async def give_up() -> None:
            await lose("k1")
            await two.abandon("k1")

        with again_after(one, give_up), pytest.raises(InvalidInputError, match="k1 has changed meanwhile"):
            await one.retry("k1")
        assert ((await cells_of(one, "k1")).state, len(await tries_of(one, "k1"))) == ("abandoned", 1)


async def test_a_connection_that_breaks_after_the_commit(laid_out: str) -> None:
    """A retry whose answer is lost with its connection is made once: over the next connection it finds what it did."""
    async with wired(laid_out) as wire, Journal.open(laid_out) as seen, Journal.open(wire.url) as cut:
        await cut.add(items(1))
        claim = await claimed(cut, "k0")
        await records_of(cut).rejected("k0", claim, WHY)
        wire.mute_at(b"UPDATE agentjobs_items", b"COMMIT")
        retrying = asyncio.ensure_future(cut.retry("k0"))
        await until(lambda: _is_planned(seen))
        assert not retrying.done()
        wire.sever()
        wire.speak()
        assert await retrying == "k0"
        row = await row_of(seen)
        assert (row.state, row.tries, len(await tries_of(seen, "k0"))) == (State.PLANNED, 2, 1)


async def _is_planned(journal: Journal) -> bool:
    return await state_of(journal, "k0") is State.PLANNED


async def test_tries_only_grow(journal: Journal) -> None:
    """Each try that ended is kept as it was, in their order, whatever becomes of the item later."""
    await journal.add(items(1))
    records, kept = records_of(journal), list[Any]()
    for number in range(1, 5):
        set_clock(journal, NOW + number)
        if number % 2:
            await created(journal, "k0")
            await records.ended("k0", AgentJob(REF.job_id, REF.project_id, "failed"), number)
            await journal.retry("k0")
        else:
            await lost(journal, "k0")
            await journal.resolve("k0", send_again=True)
        found = await tries_of(journal, "k0")
        assert found[:-1] == kept
        kept = found
    assert [(one.try_number, one.state, one.polls, one.planned_at) for one in kept] == [
        (1, "failed", 1, NOW - 100),
        (2, "unknown", 0, NOW + 1),
        (3, "failed", 3, NOW + 2),
        (4, "unknown", 0, NOW + 3),
    ]
    rows = await journal.rows(all_tries=True)
    assert [(row.tries, str(row.state), row.polls) for row in rows] == [
        *((1, "failed", 1), (2, "unknown", 0), (3, "failed", 3), (4, "unknown", 0)),
        (5, "planned", 0),
    ]


SAMPLES = {"owner": "'me'", "claim": "'c'", "job_id": "'job_1'"} | dict.fromkeys(
    ("sent_at", "counted_at", "ended_at", "told_at"), "1"
)
"""A cell for each column that belongs to some states alone."""
OF_A_TRY = {"known_follow": "follow = 'perhaps'", "whole_idempotency": "digest = 'd'"}
REFUSED: dict[str, tuple[str, str]] = {
    **{f"item_{name}": (ITEMS.name, change) for name, change in OF_A_TRY.items()},
    **{f"try_{name}": (TRIES.name, change) for name, change in OF_A_TRY.items()},
    "item_followed_by_one": (ITEMS.name, "follower = 'jobs'"),
    "item_tries": (ITEMS.name, "tries = 0"),
    "journal_one_row": (JOURNAL.name, '"only" = 2'),
    "journal_whole_rate": (JOURNAL.name, "create_count = 1"),
}
"""What can't be, of a planned row, by the check that refuses it; but for what belongs to states."""


def changed(state: State, cells: dict[str, str]) -> str:
    """Return what makes a row one in a state, with some cells, and all others empty that belong to some states."""
    empty = dict.fromkeys(SAMPLES, "NULL")
    return ", ".join(f"{name} = {cell}" for name, cell in {"state": f"'{state}'", **empty, **cells}.items())


def wrong_changes() -> Iterator[str]:
    """Yield what makes a row one in a state that misses a cell of it, or has one that belongs to others."""
    for state, (given, empty) in COLUMNS_OF_STATES.items():
        whole = {name: SAMPLES[name] for name in given.split()}
        yield from (changed(state, whole | {name: "NULL"}) for name in given.split())
        yield from (changed(state, whole | {name: SAMPLES[name]}) for name in empty.split())
    yield "state = 'nowhere'"


async def test_what_does_not_belong_together(journal: Journal) -> None:
    """No statement can write what does not belong together: each check refuses that, and the row stays as it is."""
    checks = {
        check.name
        for table in (ITEMS, TRIES, JOURNAL)
        for check in table.constraints
        if isinstance(check, CheckConstraint)
    }
    by_state = {"item_has_what_belongs_to_its_state", "try_has_what_belongs_to_its_state"}
    assert {*REFUSED, *by_state} == checks
    await journal.add(items(1))
    kept = "INSERT INTO agentjobs_tries (item, try_number, project_id, state, planned_at, updated_at)"
    await journal.store.write(text(f"{kept} VALUES (1, 1, 'docs', 'planned', 0, 0)"))
    before = await cells_of(journal, "k0"), await tries_of(journal, "k0")
    for name, (table, change) in REFUSED.items():
        with pytest.raises(JournalError, match=name):
            await journal.store.write(text(f"UPDATE {table} SET {change}"))  # noqa: S608 - the tests' own words
    assert (await cells_of(journal, "k0"), await tries_of(journal, "k0")) == before


async def test_what_belongs_to_a_state(journal: Journal) -> None:
    """In each state a row and a try have what belongs to it, and nothing that belongs to other states alone."""
    await journal.add(items(1))
    kept = "INSERT INTO agentjobs_tries (item, try_number, project_id, state, planned_at, updated_at)"
    await journal.store.write(text(f"{kept} VALUES (1, 1, 'docs', 'planned', 0, 0)"))
    for change in wrong_changes():
        for table, name in ((ITEMS.name, "item"), (TRIES.name, "try")):
            with pytest.raises(JournalError, match=f"{name}_has_what_belongs_to_its_state"):
                await journal.store.write(text(f"UPDATE {table} SET {change}"))  # noqa: S608 - the tests' own words
    for state, (given, _) in COLUMNS_OF_STATES.items():
        whole = changed(state, {name: SAMPLES[name] for name in given.split()})
        await journal.store.write(text(f"UPDATE agentjobs_items SET {whole}"))  # noqa: S608 - the tests' own words
        assert await state_of(journal, "k0") is state
