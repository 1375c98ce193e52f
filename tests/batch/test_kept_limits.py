"""Which limits a run keeps to, and which ones make no sense."""

from typing import Any

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import FleetLimits, Rate
from agentjobs_async.batch.limits import Limits, given, in_force

KEPT = FleetLimits(7, Rate(3, per=60), 90.0, timeout=30.0, max_sending=2)
YEAR = 365 * 86_400


def test_what_the_journal_keeps() -> None:
    """A run has the limits that its journal keeps, but for those that it is given."""
    kept: dict[str, Any] = {"create_rate": Rate(3, per=60), "unknown_for": 90.0, "timeout": 30.0, "max_sending": 2}
    assert in_force(KEPT, {}) == Limits(max_active=7, **kept)
    assert in_force(KEPT, {"max_active": 1, "timeout": None}) == Limits(max_active=1, **kept | {"timeout": None})


def test_defaults() -> None:
    """The limits of a new journal are those of a run that is given none."""
    assert in_force(FleetLimits(), {}) == Limits()


def test_slots_that_are_kept_for_as_long_as_an_item_is_unknown() -> None:
    """A journal that keeps the slots of unknown items without a bound keeps them in a run for longer than a year."""
    assert in_force(FleetLimits(unknown_for=None), {}).unknown_for > YEAR


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
        FleetLimits(create_rate="100/h")  # type: ignore[arg-type]  # what a caller may pass
