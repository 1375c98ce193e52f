"""Which limits a run keeps to, and which ones make no sense."""

import asyncio
from typing import Any

import pytest
from attrs import evolve, fields

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, Limits, Rate, run_batch
from agentjobs_async.batch.limits import given, in_force
from tests.batch.stage import FakeSession, items, run, unknown

KEPT = Limits(max_active=7, create_rate=Rate(3, per=60), unknown_for=90.0, timeout=30.0, max_sending=2)


def test_what_the_journal_keeps() -> None:
    """A run has the limits that its journal keeps, but for those that it is given, all together or one by one."""
    assert in_force(KEPT, "kept", {}) == KEPT
    one, other = {"max_active": 1, "timeout": None}, Limits(max_active=3, timeout=5.0)
    assert in_force(KEPT, "kept", one) == evolve(KEPT, max_active=1, timeout=None)
    assert in_force(KEPT, other, {}) == other
    assert in_force(KEPT, other, one) == evolve(other, max_active=1, timeout=None)


@pytest.mark.looptime
async def test_no_limit(file_journal: Journal) -> None:
    """`None` is no limit, for each of them, in the journal as in a run."""
    free: dict[str, None] = dict.fromkeys(column.name for column in fields(Limits))
    await file_journal.set_limits(Limits(**free))
    assert await file_journal.limits() == Limits(**free)
    session = FakeSession(duration=10_000.0)
    session.answers = {"p0": [unknown()]}
    results = await run(session, items(50), file_journal)
    assert (len(results), session.most_under_way) == (50, 50)


@pytest.mark.looptime
async def test_slots_that_are_kept_for_as_long_as_an_item_is_unknown(file_journal: Journal) -> None:
    """A journal that keeps the slots of unknown items without a bound keeps them in a run: nothing more is sent."""
    await file_journal.set_limits(Limits(max_active=1, unknown_for=None))
    session = FakeSession()
    session.answers = {"p0": [unknown()]}
    async with run_batch(session.session, items(2), journal=file_journal) as results:
        assert (await anext(results)).outcome == "unknown"
        await asyncio.sleep(7200)
        assert results.stats().waiting == 1
    assert len(session.sent) == 1


def test_what_is_given() -> None:
    """A setting is given unless it is the word for what the journal keeps; no other word is one."""
    assert given(max_active="kept", timeout=None, unknown_for=0.0) == {"timeout": None, "unknown_for": 0.0}
    with pytest.raises(InvalidInputError, match="max_active"):
        given(max_active="many")


@pytest.mark.parametrize(
    ("rate", "named"),
    [
        ({"count": 0, "per": 1.0}, "count "),
        ({"count": 1_000_000_001, "per": 1.0}, "count "),
        ({"count": 1, "per": 0.0}, "per "),
        ({"count": 1, "per": 1.0, "scope": "each"}, "scope "),
    ],
)
def test_rates_that_make_no_sense(rate: dict[str, Any], named: str) -> None:
    """A rate that makes no sense is refused, by the name of what is wrong."""
    with pytest.raises(InvalidInputError) as raised:
        Rate(**rate)
    assert str(raised.value).startswith(named)


def test_no_rate() -> None:
    """What is no rate is refused."""
    with pytest.raises(InvalidInputError, match="create_rate must be a Rate"):
        Limits(create_rate="100/h")  # type: ignore[arg-type]  # what a caller may pass
