"""The tables of a journal, the same on SQLite and PostgreSQL, and the numbers that identify their layout."""

from collections.abc import Collection, Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Double,
    Float,
    Index,
    Integer,
    MetaData,
    Row,
    SmallInteger,
    String,
    Table,
    Text,
    literal,
    literal_column,
)

from agentjobs_async.batch.limits import FleetLimits, Rate
from agentjobs_async.batch.states import State

APPLICATION: Final = 0x41674A62
"""SQLite's `application_id` of a journal, and the key of PostgreSQL's lock while one is made: "AgJb"."""
BEFORE_RELEASE: Final = 0x414A6F62
"""The `application_id` of the journals that were written before the first release."""
LAYOUT: Final = 1
"""The layout of the tables: SQLite's `user_version`, and a column on PostgreSQL."""

SKEW_SECONDS: Final = 60.0
"""Clocks are set back by as much in daily life; a time further ahead is ignored."""

Moment = float | ColumnElement[float]
"""Seconds since the epoch: a number, or an expression of the database's own clock."""


def seconds_of(moment: Moment) -> ColumnElement[float]:
    """Return a moment as statements take it."""
    return moment if isinstance(moment, ColumnElement) else literal(moment, Float(53))


METADATA: Final = MetaData()
_WITH_ID: Final = [State.ACTIVE, State.COMPLETED, State.FAILED, State.ARCHIVED]
_WITHOUT_ID: Final = [State.PLANNED, State.SENDING, State.REJECTED, State.UNKNOWN]


def _listed(states: Collection[State]) -> str:
    return ", ".join(f"'{state}'" for state in states)


ITEMS: Final = Table(
    "agentjobs_items",
    METADATA,
    Column("number", Integer().with_variant(BigInteger(), "postgresql"), primary_key=True),
    Column("key", String, nullable=False, unique=True),
    Column("prompt", Text, nullable=False),
    Column("project_id", String, nullable=False),
    Column("state", String, nullable=False),
    Column("job_id", String),
    Column("pr_link", Text),
    Column("error", Text),
    Column("refusal", Text),
    Column("page", String),
    Column("owner", String),
    Column("claim", String),
    Column("sent_at", Float(53)),
    Column("updated_at", Float(53), nullable=False),
    Column("changed_at", Float(53), nullable=False),
    Column("planned_at", Float(53)),
    Column("claimed_at", Float(53)),
    Column("created_at", Float(53)),
    Column("seen_at", Float(53)),
    Column("ended_at", Float(53)),
    Column("polls", Integer),
    Column("tries", Integer),
    Column("context", Text),
    Column("traceparent", String),
    Column("item_key", String),
    Column("retried_as", String),
    Column("told_state", String),
    CheckConstraint(f"state IN ({_listed(list(State))})", name="known_state"),
    CheckConstraint(f"job_id IS NOT NULL OR state NOT IN ({_listed(_WITH_ID)})", name="id_when_active"),
    CheckConstraint(f"job_id IS NULL OR state NOT IN ({_listed(_WITHOUT_ID)})", name="no_id_before"),
    Index("agentjobs_items_by_state", "state", "number"),
    Index("agentjobs_items_by_sending", "sent_at"),
)
"""The tries of the items.

`sent_at` is what a rate counts: the time of the claim, then that of the answer. `claimed_at` stays. `item_key` is the
key of the item's first try, `retried_as` that of the next one: the row without it is the item as it stands.
`page` is the id of the page of items, or of rows that were taken over, with which the row was written last.
`updated_at` is when the row moved or its error changed, `changed_at` when anything did that is shown. `refusal` is the
error of a rejected create, or of a job that is gone, as JSON: its type and fields. `told_state` is null for the
items of a batch; for a durable job it is the state that its `on_end` was told of, empty before that, or
`unfollowed`.
"""
FOLLOWED: Final = literal_column("told_state IN ('', 'unknown')", Boolean)
"""Whether `on_end` of a durable job is to be told of an end to come. Without parameters, as its index has to be."""
FOLLOWED_INDEX: Final = Index("agentjobs_items_followed", ITEMS.c.state, ITEMS.c.number, sqlite_where=FOLLOWED)
"""The durable jobs that are followed. It costs nothing for the items of a batch."""
RETRIED_INDEX: Final = Index(
    "agentjobs_items_by_retry",
    ITEMS.c.state,
    sqlite_where=ITEMS.c.retried_as.is_not(None),
)
"""The tries that are no items. It costs nothing for a row that was not tried again."""
SHOWN: Final = tuple(
    ITEMS.c[name]
    for name in (
        *("key", "prompt", "project_id", "state", "job_id", "pr_link", "error", "updated_at", "number"),
        *("planned_at", "claimed_at", "created_at", "seen_at", "ended_at", "polls", "tries", "context"),
        *("traceparent", "item_key", "retried_as"),
    )
)
"""The columns that make a `JournalRow`, in the order of its attributes; `claimed_at` is its `sent_at`."""
NO_OWNER: Final = ""
"""The owner of a row that any worker is to continue with: no owner has this name, so that it counts as dead."""
SENDS: Final = Table(
    "agentjobs_sends",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("project_id", String, nullable=False),
    Column("sent_at", Float(53)),
    Index("agentjobs_sends_by_sending", "sent_at"),
)
"""When creates were answered or given up whose rows have been planned again since: a rate still counts them."""
PAUSES: Final = Table(
    "agentjobs_pauses",
    METADATA,
    Column("project", String, primary_key=True),
    Column("set_at", Float(53), nullable=False),
    Column("until", Float(53), nullable=False),
)
"""Until when the service asked for no create of a project; `""` stands for a session without a project."""
MOVES: Final = Table(
    "agentjobs_moves",
    METADATA,
    Column("direction", String, primary_key=True),
    Column("move_id", String, nullable=False),
    Column("location", Text, nullable=False),
    Column("ended", Integer, nullable=False),
)
"""Where the journal was moved to (`to`: it is closed) and where it came from (`from`): at most one row of each.

Both journals of a move have the same `move_id`. `ended` is 0 in the row `to` until the other journal has all rows.
"""
JOURNAL: Final = Table(
    "agentjobs_journal",
    METADATA,
    Column("only", SmallInteger, primary_key=True, autoincrement=False),
    Column("layout", Integer, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("identity", String, nullable=False),
    Column("service", String),
    Column("max_active", Integer),
    Column("create_count", Integer),
    Column("create_per", Float(53)),
    Column("create_scope", String),
    Column("unknown_for", Float(53)),
    Column("timeout", Float(53)),
    Column("max_sending", Integer, nullable=False),
    Column("polls_per_second", Float(53)),
)
"""One row: the number of the layout, for PostgreSQL, and its fingerprint; what the journal is; its limits.

`identity` is that of no other journal. `service` is `AgentJobsSession.service` of the first run; null before that.
"""
SERVER_METADATA: Final = MetaData()
OWNERS: Final = Table(
    "agentjobs_owners",
    SERVER_METADATA,
    Column("owner", String, primary_key=True),
    Column("seen_at", Double, nullable=False),
    Column("polls", Double),
)
"""The processes that have the journal open, on PostgreSQL only.

`polls` is null for an owner that does not poll; else no less than the polls per second that it starts at any moment.
"""


FUNCTIONS: Final = files("agentjobs_async.batch._store").joinpath("claims.sql")
"""The statements that create PostgreSQL's functions by which rows are claimed, and their indexes."""


@cache
def fingerprint() -> str:
    """Return a digest of all definitions of this layout: a journal with another one has other tables or functions."""
    definitions = [FUNCTIONS.read_text("utf-8")]
    for table in (*METADATA.sorted_tables, *SERVER_METADATA.sorted_tables):
        definitions += _definitions(table)
    return sha256("\n".join(definitions).encode()).hexdigest()[:32]


def _definitions(table: Table) -> Iterator[str]:
    """Yield a line for each column, check and index of a table; no line depends on the version of SQLAlchemy."""
    for column in table.columns:
        kind = type(column.type).__name__
        yield f"{table.name}.{column.name} {kind} {column.nullable} {column.primary_key} {column.unique}"
    checks = (check for check in table.constraints if isinstance(check, CheckConstraint))
    yield from sorted(f"{check.name} {check.sqltext}" for check in checks)
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        columns = ", ".join(str(column) for column in index.expressions)
        yield f"{index.name} {columns} {index.dialect_options['sqlite']['where']}"


def other_layout(number: int, digest: str | None = None) -> str | None:
    """Return in words why a journal of another layout is refused; `None` for one of this layout.

    Args:
        number: The number of its layout; 0 was written before the first release.
        digest: Its fingerprint; `None` for a journal that has none.
    """
    if number > LAYOUT:
        return f"it has layout {number}, written by a newer version of agentjobs-async; this one knows {LAYOUT}"
    made_by = "finish it with the version of agentjobs-async that made it"
    if number < LAYOUT:
        return f"it was written before the first release; {made_by}"
    if digest != fingerprint():
        known = f"fingerprint {digest}" if digest else "no fingerprint"
        return f"it has layout {number} as another development version made it ({known}); {made_by}"
    return None


def first_row() -> dict[str, Any]:
    """Return the columns of a new journal's row: what identifies its layout and itself, and the usual limits."""
    identified = {"layout": LAYOUT, "fingerprint": fingerprint(), "identity": uuid4().hex}
    return {"only": 1, **identified, **limit_columns(FleetLimits())}


_PLAIN_LIMITS: Final = ("max_active", "unknown_for", "timeout", "max_sending", "polls_per_second")
"""The limits whose columns have their names."""


def limits_of(row: Row[Any]) -> FleetLimits:
    """Return the limits of the row."""
    rate = None
    if row.create_count is not None:
        rate = Rate(row.create_count, per=row.create_per, scope=row.create_scope)
    return FleetLimits(create_rate=rate, **{name: getattr(row, name) for name in _PLAIN_LIMITS})


def limit_columns(limits: FleetLimits) -> dict[str, Any]:
    """Return the columns that hold limits."""
    rate = limits.create_rate
    of_rate = {f"create_{name}": None if rate is None else getattr(rate, name) for name in ("count", "per", "scope")}
    return {name: getattr(limits, name) for name in _PLAIN_LIMITS} | of_rate
