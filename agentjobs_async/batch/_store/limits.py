"""The one row of a journal: its layout, its identity and its limits, and what they mean."""

from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Row, Select, Update, select, update

from agentjobs_async.batch._store.schema import JOURNAL, LAYOUT
from agentjobs_async.batch.limits import FleetLimits, Rate

_ONLY: Final = 1  # the key of the one row


def first_row() -> dict[str, Any]:
    """Return the columns of a new journal's row: an identity that no other journal has, and the usual limits."""
    return {"only": _ONLY, "layout": LAYOUT, "identity": uuid4().hex, **_columns_of(FleetLimits())}


def layout() -> Select[Any]:
    """Select the number of the layout alone: another layout may not have all columns."""
    return select(JOURNAL.c.layout)


def identity() -> Select[Any]:
    """Select the journal's identity: no other journal has it, not even one put in its place."""
    return select(JOURNAL.c.identity)


def limits() -> Select[Any]:
    """Select the row."""
    return select(JOURNAL)


def limits_of(row: Row[Any]) -> FleetLimits:
    """Return the limits of the row."""
    rate = None
    if row.create_count is not None:
        rate = Rate(row.create_count, per=row.create_per, scope=row.create_scope, spread=bool(row.create_spread))
    return FleetLimits(
        row.max_active,
        rate,
        row.unknown_for,
        timeout=row.timeout,
        max_sending=row.max_sending,
        polls_per_second=row.polls_per_second,
    )


def set_limits(limits: FleetLimits) -> Update:
    """Change the limits."""
    return update(JOURNAL).values(_columns_of(limits))


def _columns_of(limits: FleetLimits) -> dict[str, Any]:
    """Return the columns that hold limits."""
    rate = limits.create_rate
    return {
        "max_active": limits.max_active,
        "create_count": None if rate is None else rate.count,
        "create_per": None if rate is None else rate.per,
        "create_scope": None if rate is None else rate.scope,
        "create_spread": rate is not None and rate.spread,
        "unknown_for": limits.unknown_for,
        "timeout": limits.timeout,
        "max_sending": limits.max_sending,
        "polls_per_second": limits.polls_per_second,
    }
