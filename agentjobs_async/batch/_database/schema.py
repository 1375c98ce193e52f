"""The tables of a journal, the same on SQLite and PostgreSQL, and the numbers that identify their layout."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from hashlib import sha256
from importlib.resources import files
from types import MappingProxyType
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
    and_,
    false,
    literal,
    literal_column,
    text,
    true,
)

from agentjobs_async.batch.limits import Limits, Rate
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
_ENDED_JOB: Final = ("job_id ended_at", "owner")
COLUMNS_OF_STATES: Final[Mapping[State, tuple[str, str]]] = MappingProxyType(
    {
        State.PLANNED: ("", "claim sent_at counted_at job_id owner ended_at told_at"),
        State.SENDING: ("claim sent_at counted_at", "job_id ended_at told_at"),
        State.ACTIVE: ("job_id", "ended_at told_at"),
        State.COMPLETED: _ENDED_JOB,
        State.FAILED: _ENDED_JOB,
        State.ARCHIVED: _ENDED_JOB,
        State.REJECTED: ("ended_at", "owner job_id"),
        State.UNKNOWN: ("", "job_id ended_at"),
        State.ABANDONED: ("ended_at", "owner"),
    }
)
"""The columns that a row or try in a state has, and those that it has not; it may have any of the others."""


def _what_belongs_to_states() -> str:
    """Return the expression that is true where a row has what belongs to its state.

    As one `CASE`, since SQLite evaluates every check of a row at each of its moves.
    """
    whens = []
    for state, (given, empty) in COLUMNS_OF_STATES.items():
        cells = [*(f"{name} IS NOT NULL" for name in given.split()), *(f"{name} IS NULL" for name in empty.split())]
        whens.append(f"WHEN '{state}' THEN {' AND '.join(cells)}")
    return f"CASE state {' '.join(whens)} ELSE false END"


def _of_a_try() -> list[Column[Any]]:
    """Return the columns of one try of an item, which a row and an earlier try of it share."""
    return [
        Column("project_id", String, nullable=False),
        Column("state", String, nullable=False),
        Column("owner", String),
        Column("claim", String),
        Column("job_id", String),
        Column("pr_link", Text),
        Column("error", Text),
        Column("refusal", Text),
        Column("traceparent", String),
        Column("polls", Integer, nullable=False, server_default=literal_column("0")),
        Column("planned_at", Float(53), nullable=False),
        Column("sent_at", Float(53)),
        Column("counted_at", Float(53)),
        Column("created_at", Float(53)),
        Column("settled_at", Float(53)),
        Column("seen_at", Float(53)),
        Column("ended_at", Float(53)),
        Column("told_at", Float(53)),
        Column("follow", String, nullable=False, server_default=literal_column("'no'")),
        Column("idempotency_key", String),
        Column("first_sent_at", Float(53)),
        Column("digest", String),
        Column("updated_at", Float(53), nullable=False),
    ]


def _checks_of_a_try(table: str) -> list[CheckConstraint]:
    """Return what holds for the columns of a try. The names differ by table, as PostgreSQL wants it."""
    checks = {
        "has_what_belongs_to_its_state": _what_belongs_to_states(),
        "known_follow": f"follow IN ({', '.join(repr(str(follow)) for follow in Follow)})",
        "whole_idempotency": "(idempotency_key IS NULL) = (digest IS NULL)",
    }
    return [CheckConstraint(expression, name=f"{table}_{name}") for name, expression in checks.items()]


class Follow(StrEnum):
    """Whether somebody is told of a row's end."""

    NO = "no"
    """It is an item of a batch, whose results a run gives."""
    YES = "yes"
    """It is a durable job, whose `on_end` is called."""
    UNFOLLOWED = "unfollowed"
    """It was one, and a user has unfollowed it."""


NUMBER: Final = Integer().with_variant(BigInteger(), "postgresql")
"""The type of the numbers of rows."""
_KEY: Final = String().with_variant(String(collation="C"), "postgresql")
"""The type of keys: compared by code points in each database, so that the index of keys finds those of a prefix."""

ITEMS: Final = Table(
    "agentjobs_items",
    METADATA,
    Column("number", NUMBER, primary_key=True),
    Column("key", _KEY, nullable=False, unique=True),
    Column("prompt", Text, nullable=False),
    Column("context", Text),
    Column("extra", Text),
    Column("user_id", String),
    Column("page", String),
    Column("tries", Integer, nullable=False, server_default=literal_column("1")),
    *_of_a_try(),
    Column("follower", String),
    Column("is_noticed", Boolean, nullable=False, server_default=true()),
    Column("is_notified", Boolean, nullable=False, server_default=false()),
    Column("change", String),
    Column("revision", Integer, nullable=False, server_default=literal_column("0")),
    Column("changed_at", Float(53), nullable=False),
    *_checks_of_a_try("item"),
    CheckConstraint("follower IS NULL OR follow = 'yes'", name="item_followed_by_one"),
    CheckConstraint("tries > 0", name="item_tries"),
    Index("agentjobs_items_by_state", "state", "number"),
    Index("agentjobs_items_by_counting", "counted_at"),
)
"""The items, each as its newest try is.

`key` to `user_id` are the item: its prompt, what comes back with it, more fields of its create, and the user of a
durable job. `page` is the id of the page of a source that gave it last. `tries` counts the tries so far.

`owner` is who sends its create or polls its job, or is going to repeat its unknown create; a row in any other state has
none. `claim` is under which its create was sent last. `sent_at` is when it was about to be sent, and `counted_at` what
a rate counts: the same, then when it was answered or given up. `settled_at` is when a person named its job, `told_at`
when `on_end` had returned for the end in which it is, or when a run has taken it on itself to tell that it was
withdrawn unsent. `refusal` is the error of a rejected create, of a repetition after which an unknown one is not
repeated any more, or of a job that is gone, as JSON: its type and fields. `idempotency_key`, `first_sent_at` and
`digest` are those of a create that may be repeated: the key is the claim of its first POST, the digest is of what must
not have changed when it is repeated.

`follower` are the durable jobs that are to tell of its end, or have told of it; `is_noticed` is false where another
owner has moved it since they looked. `is_notified` asks them to poll its active job soon; it means nothing in any other
state. `change` is the id of its last change, by which a statement that is executed once
more finds what it did; `revision` counts the changes that streams show. `updated_at` is when the row moved or its error
changed, `changed_at` when anything did that is shown.
"""
TRIES: Final = Table(
    "agentjobs_tries",
    METADATA,
    Column("number", NUMBER, primary_key=True),
    Column("item", NUMBER, nullable=False),
    Column("try_number", Integer, nullable=False),
    *_of_a_try(),
    *_checks_of_a_try("try"),
    Index("agentjobs_tries_by_item", "item", "try_number"),
    Index("agentjobs_tries_by_claim", "claim"),
    Index("agentjobs_tries_by_state", "state"),
)
"""What items were when they were planned once more, and creates that were answered after that. It only grows.

`item` is the number of the item, `try_number` which of its tries this was, from 1.
"""
OF_A_TRY: Final = tuple(column.name for column in _of_a_try())
"""The columns that a row and an earlier try share, by name."""
FOLLOWED: Final = ITEMS.c.follow == literal_column(f"'{Follow.YES}'", String)
"""Whether a row is a durable job that is followed. It has no parameter, as its index has to be.

As a boolean in words of SQL it would become a comparison with 1 on SQLite, which uses no index for that.
"""
TO_NOTICE: Final = text(
    "follow || '' = 'yes' AND"
    " ((follower IS NULL AND told_at IS NULL) OR NOT is_noticed"
    " OR (state = 'active' AND (owner IS NULL OR is_notified)))"
)
"""Whether a durable job may need something of its follower, or has none. A text, as its index takes no parameter.

`follow || ''` keeps SQLite from using the index of all that is followed instead.
"""
HAS_FOLLOWER: Final = and_(ITEMS.c.follower.is_not(None), ITEMS.c.told_at.is_(None))
"""Whether somebody is to tell of a row's end. One of which the end was told keeps the name of who did."""
PARTIAL_INDEXES: Final = (
    Index("agentjobs_items_followed", ITEMS.c.follow, ITEMS.c.number, sqlite_where=FOLLOWED),
    Index("agentjobs_items_to_notice", ITEMS.c.number, sqlite_where=TO_NOTICE),
    Index("agentjobs_items_by_follower", ITEMS.c.follower, sqlite_where=HAS_FOLLOWER),
    Index("agentjobs_items_owned", ITEMS.c.owner, sqlite_where=ITEMS.c.owner.is_not(None)),
    Index("agentjobs_items_by_user", ITEMS.c.user_id, ITEMS.c.number, sqlite_where=ITEMS.c.user_id.is_not(None)),
    Index("agentjobs_items_by_job", ITEMS.c.job_id, sqlite_where=ITEMS.c.job_id.is_not(None)),
    Index("agentjobs_tries_by_job", TRIES.c.job_id, sqlite_where=TRIES.c.job_id.is_not(None)),
)
"""Those that leave rows out: they hold durable jobs, what their followers have to notice, what owners work on, users'
jobs, and rows and earlier tries that have a job.
"""
SHOWN: Final = tuple(
    ITEMS.c[name]
    for name in (
        *("key", "prompt", "project_id", "state", "job_id", "pr_link", "error", "updated_at", "number"),
        *("planned_at", "sent_at", "created_at", "seen_at", "ended_at", "polls", "tries", "context", "extra"),
        "traceparent",
    )
)
"""The columns that make a `JournalRow`, in the order of its attributes."""
SENDS: Final = Table(
    "agentjobs_sends",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("project_id", String, nullable=False),
    Column("counted_at", Float(53), nullable=False),
    Index("agentjobs_sends_by_counting", "counted_at"),
)
"""When creates were answered or given up whose rows have been planned again since: a rate still counts them."""
PAUSES: Final = Table(
    "agentjobs_pauses",
    METADATA,
    Column("project_id", String, primary_key=True),
    Column("set_at", Float(53), nullable=False),
    Column("until", Float(53), nullable=False),
)
"""Until when the service asked for no create of a project."""
JOURNAL: Final = Table(
    "agentjobs_journal",
    METADATA,
    Column("only", SmallInteger, primary_key=True, autoincrement=False),
    Column("layout", Integer, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("identity", String, nullable=False),
    Column("moved_to", Text),
    Column("service", String),
    Column("max_active", Integer),
    Column("max_sending", Integer),
    Column("create_count", Integer),
    Column("create_per", Float(53)),
    Column("create_scope", String),
    Column("polls_per_second", Float(53)),
    Column("unknown_for", Float(53)),
    Column("timeout", Float(53)),
    CheckConstraint('"only" = 1', name="journal_one_row"),
    CheckConstraint(
        "(create_count IS NULL) = (create_per IS NULL) AND (create_count IS NULL) = (create_scope IS NULL)",
        name="journal_whole_rate",
    ),
)
"""One row: the number of the layout, for PostgreSQL, and its fingerprint; what the journal is; its limits.

`identity` is that of no other journal; a move takes it along, and leaves in `moved_to` where to. `service` is
`AgentJobsSession.service` of the first run; null before that.
"""
SERVER_METADATA: Final = MetaData()
OWNERS: Final = Table(
    "agentjobs_owners",
    SERVER_METADATA,
    Column("owner", String, primary_key=True),
    Column("seen_at", Double, nullable=False),
    Column("counted_at", Double, nullable=False),
)
"""The runs, workers and durable jobs that work on the journal, on PostgreSQL only.

`seen_at` is when the last heartbeat came, `counted_at` the time as of which the owner has counted all of them, and
keeps to its share of the polls.
"""


FUNCTIONS: Final = files("agentjobs_async.batch._database").joinpath("claims.sql")
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
    return {"only": 1, **identified, **limit_columns(Limits())}


_PLAIN_LIMITS: Final = ("max_active", "unknown_for", "timeout", "max_sending", "polls_per_second")
"""The limits whose columns have their names."""


def limits_of(row: Row[Any]) -> Limits:
    """Return the limits of the row."""
    rate = None
    if row.create_count is not None:
        rate = Rate(row.create_count, per=row.create_per, scope=row.create_scope)
    return Limits(create_rate=rate, **{name: getattr(row, name) for name in _PLAIN_LIMITS})


def limit_columns(limits: Limits) -> dict[str, Any]:
    """Return the columns that hold limits."""
    rate = limits.create_rate
    of_rate = {f"create_{name}": None if rate is None else getattr(rate, name) for name in ("count", "per", "scope")}
    return {name: getattr(limits, name) for name in _PLAIN_LIMITS} | of_rate
