"""The limits that a journal keeps: their one row, and what it means."""

from typing import Any, Final

from sqlalchemy import Insert, Row, Select, Update, insert, select, update

from agentjobs_async.batch._store.schema import LIMITS
from agentjobs_async.batch.limits import FleetLimits, Rate

__all__ = [
    "columns_of",
    "first_limits",
    "insert_limits",
    "limits",
    "limits_of",
    "set_limits",
    "update_version",
    "version",
]

_ONLY: Final = 1  # the key of the one row


def first_limits(version: int) -> dict[str, Any]:
    """Return the columns of a new journal's row that have no default; all of them are in the earlier layout, too."""
    return {"only": _ONLY, "version": version, "unknown_for": FleetLimits().unknown_for}


def insert_limits(version: int) -> Insert:
    """Insert the row of a new journal."""
    return insert(LIMITS).values(first_limits(version))


def version() -> Select[Any]:
    """Select the version alone: the earlier layout does not have all columns."""
    return select(LIMITS.c.version)


def limits() -> Select[Any]:
    """Select the row."""
    return select(LIMITS)


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
    return update(LIMITS).values(columns_of(limits))


def update_version(version: int) -> Update:
    """Change the version."""
    return update(LIMITS).values(version=version)


def columns_of(limits: FleetLimits) -> dict[str, Any]:
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
