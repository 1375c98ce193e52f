import asyncio
import itertools
from types import NoneType

import pytest

from agentjobs_async import AgentJob, AgentJobsError, JobRef
from agentjobs_async.batch import BatchItem, Journal, State
from agentjobs_async.batch import _tables as tables
from agentjobs_async.batch.states import MOVES
from tests.batch.stage import items

REF = JobRef("docs", "job_1")
WHY = AgentJobsError("because")
PATHS: dict[State, list[State]] = {
    State.PLANNED: [],
    State.SENDING: [State.SENDING],
    State.CREATED: [State.SENDING, State.CREATED],
    State.UNKNOWN: [State.SENDING, State.UNKNOWN],
    State.REJECTED: [State.SENDING, State.REJECTED],
    **{state: [State.SENDING, State.CREATED, state] for state in (State.COMPLETED, State.FAILED, State.ARCHIVED)},
}
"""How a planned row comes to each state."""


async def move(journal: Journal, key: str, target: State) -> bool:
    """Ask for a move in the way a runner does."""
    entries = journal.entries
    match target:
        case State.PLANNED:
            return await entries.not_sent(key, WHY)
        case State.SENDING:
            return isinstance(await entries.claim(key), str)
        case State.CREATED:
            return await entries.created(key, REF)
        case State.REJECTED:
            return await entries.refused(key, WHY)
        case State.UNKNOWN:
            return await entries.lost(key, WHY)
        case _:
            return await entries.ended(key, AgentJob("job_1", "docs", str(target)))


async def test_every_pair_of_states(journal: Journal) -> None:
    """Of all moves, exactly those of the table are made; a refused one changes nothing."""
    pairs = list(itertools.product(State, State))
    await journal.add([BatchItem(f"{origin}-{target}", "x") for origin, target in pairs])
    for origin, target in pairs:
        key = f"{origin}-{target}"
        for step in PATHS[origin]:
            assert await move(journal, key, step)
        before = (await journal.entries.named([key]))[key]
        # What was unknown is planned again only by somebody who says so.
        allowed = target in MOVES[origin] and (origin, target) != (State.UNKNOWN, State.PLANNED)
        assert await move(journal, key, target) == allowed, key
        after = (await journal.entries.named([key]))[key]
        assert after.state is (target if allowed else origin)
        assert allowed or after == before


async def test_a_claim_is_given_once(journal: Journal) -> None:
    """Of many claims of one row at once, one is given."""
    await journal.add(items(1))
    claims = await asyncio.gather(*(journal.entries.claim("k0") for _ in range(3)))
    assert sorted(map(type, claims), key=str) == [NoneType, NoneType, str]


def test_moves_outside_of_the_table() -> None:
    """No statement can be made for a move that the table does not know."""
    with pytest.raises(ValueError, match="no row goes from completed to planned"):
        tables.moved("a", State.PLANNED, origin=State.COMPLETED)


async def test_unknown_rows_have_no_id(journal: Journal) -> None:
    """A late answer gives an unknown row its id; before it there is none, and the database itself sees to that."""
    await journal.add(items(1))
    await move(journal, "k0", State.SENDING)
    await move(journal, "k0", State.UNKNOWN)
    assert (await journal.unknown())[0].job_id is None
    assert await move(journal, "k0", State.CREATED)
    row = (await journal.entries.named(["k0"]))["k0"]
    assert (row.state, row.job_id, row.project_id, row.error) == ("created", "job_1", "docs", None)


async def test_notes_stay_with_created_rows(journal: Journal) -> None:
    """What ended a wait is noted at the row of its job, and nowhere else."""
    await journal.add(items(2))
    await move(journal, "k0", State.SENDING)
    await move(journal, "k0", State.CREATED)
    for key in ("k0", "k1"):
        await journal.entries.note(key, ValueError("\ud800" * 5000))
    errors = {row.key: row.error async for row in journal.rows()}
    assert errors["k1"] is None
    assert str(errors["k0"]).startswith("ValueError: \\ud800")


async def test_ages(journal: Journal) -> None:
    """The ages of creates are told newest first, none that is too old, and none in the future."""
    await journal.add(items(3))
    now = 5_000_000.0
    journal.entries._clock = lambda: now
    for key, at in {"k0": now - 100, "k1": now - 10, "k2": now + 50}.items():
        journal.entries._clock = lambda at=at: at  # type: ignore[misc]  # the default binds the loop's variable
        await move(journal, key, State.SENDING)
    journal.entries._clock = lambda: now
    assert await journal.entries.sent_ages(60, 10) == [0, 10]
    assert await journal.entries.sent_ages(1000, 2) == [0, 10]
