"""A journal on PostgreSQL: how it is reached, whether it is one, and how a new one is made."""

import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from math import ceil
from typing import Any, Final
from weakref import WeakSet

from sqlalchemy import (
    ColumnElement,
    Double,
    Executable,
    Select,
    String,
    Table,
    Text,
    bindparam,
    event,
    func,
    inspect,
    literal,
    select,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.sql.functions import FunctionElement

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async._text import one_line
from agentjobs_async.batch._database.address import ServerAddress
from agentjobs_async.batch._database.connections import AnyConnection, Backend, Read, Stamp
from agentjobs_async.batch._database.schema import (
    APPLICATION,
    FUNCTIONS,
    ITEMS,
    JOURNAL,
    METADATA,
    PARTIAL_INDEXES,
    SERVER_METADATA,
    first_row,
    other_layout,
)
from agentjobs_async.errors import JournalReason

_PATIENCE_SECONDS: Final = 300.0  # as long as a fail-over of a managed server may take
_CONNECTING: Final = {"connect_timeout": 10, "tcp_user_timeout": 30_000} | {
    # Without these, libpq would wait for an answer that a cut network keeps back for the kernel's default of two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
"""How libpq notices a server that is gone: in seconds, but for `tcp_user_timeout` (ms) and the count."""
_CONNECTION_CLASS: Final = "08"  # the SQLSTATE class of connections that could not be made, or broke
_GONE: Final = frozenset({"57P01", "57P02", "57P03", "53300", "40001", "40P01"})
"""Shut down, crashed, starting, too many connections; and what another transaction made fail, which may succeed now."""
_REASONS: Final[dict[str, JournalReason]] = {
    "53100": "full",
    "25006": "read_only",
    "42501": "read_only",
    "55P03": "locked",
}
_WORDS: Final[dict[JournalReason, str]] = {
    "full": "the server's disk is full; nothing more is sent until there is room",
    "read_only": "it can't be written",
    "locked": "another transaction has locked it",
    "io": "it can't be reached, read or written",
}


def _claim(function: FunctionElement[Any]) -> Select[Any]:
    cells = function.table_valued("wait", "of_project", "cause", "claimed").c
    return select(cells.wait, cells.of_project, cells.cause, cells.claimed)


def _parameters(*names: str) -> list[ColumnElement[Any]]:
    numbers = {"new_time", "its_seconds"}
    return [bindparam(name, type_=Double if name in numbers else String) for name in names]


_CLAIM: Final = _claim(
    func.agentjobs_claim(*_parameters("its_key", "new_claim", "new_owner", "new_time", "its_digest"))
)
_REPEAT: Final = _claim(
    func.agentjobs_repeat(
        *_parameters("its_key", "new_claim", "new_owner", "new_time", "its_digest"),
        *_parameters("its_idempotency_key", "its_seconds"),
    )
)
"""Make a planned or an unknown row `sending` as far as the limits leave room, as `Backend.claim` and `repeat` say.

The functions take the time after they have waited for the claims before this one, unless they are given one.
"""

for _index in PARTIAL_INDEXES:
    # Here, not where they are made: what names PostgreSQL there makes SQLAlchemy import its dialect for every file.
    _index.dialect_options["postgresql"]["where"] = _index.dialect_options["sqlite"]["where"]


def connect_arguments(location: ServerAddress) -> dict[str, Any]:
    """Return the arguments of `psycopg.connect` for an address, the secrets included."""
    _, settings = postgresql.psycopg.dialect().create_connect_args(location.url)  # type: ignore[no-untyped-call]  # SQLAlchemy's own
    return {**_CONNECTING, **settings, **location.secrets}


@cache
def server_clock() -> ColumnElement[float]:
    """Return the server's clock: seconds since the epoch, as an expression that is one moment within a statement.

    It is always the same object, so that a statement with it is built once.

    It is read before the statement looks at any row: otherwise a statement that had to wait for a lock would compare
    the time at which it got the lock with heartbeats from before, and living owners would count as dead.
    """
    return func.date_part("epoch", func.statement_timestamp(), type_=Double)


class ServerBackend(Backend):
    """PostgreSQL, which ends a transaction in which its owner stalls for `owner_timeout` seconds."""

    claim = _CLAIM
    repeat = (_REPEAT,)
    stores_nul = False
    notifies = True
    claims_apart = True
    can_be_cut = True

    def __init__(
        self, location: ServerAddress, *, read_only: bool, owner_timeout: float, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self._name = location.name
        self._connections: WeakSet[Any] = WeakSet()
        self.engine = _engine(location, self._connections, read_only=read_only, owner_timeout=owner_timeout)
        self.patience = patience

    @staticmethod
    def insert(table: Table) -> postgresql.Insert:
        """Return an insert into a table."""
        return postgresql.insert(table)

    def turn(self, name: str) -> Sequence[Executable]:
        """Return a statement that waits for the transaction before this one of the same name."""
        return (select(func.pg_advisory_xact_lock(func.hashtextextended(literal(name), APPLICATION))),)

    def fault(self, error: BaseException) -> JournalError:
        """Return an error of the server, or of reaching it, as a `JournalError`."""
        reason = _REASONS.get(getattr(error, "sqlstate", None) or "", "io")
        return JournalError(f"journal {self._name}: {_WORDS[reason]} ({_without_detail(error)})", reason)

    def is_gone(self, error: DBAPIError) -> bool:
        """Return whether the server is gone, or another transaction made this one fail, so that it may succeed now."""
        state = getattr(error.orig, "sqlstate", None)
        if not isinstance(error, OperationalError | InterfaceError):
            return error.connection_invalidated
        return state is None or state.startswith(_CONNECTION_CLASS) or state in _GONE

    async def stamp(self, read: Read) -> Stamp:
        """Return which transactions are visible: those of other databases of the server, too, and of heartbeats."""
        found = await read(select(func.pg_current_snapshot().cast(Text)))
        return Stamp(found[0][0])

    def cut(self) -> None:
        """Break all connections, so that each call that waits for an answer fails at once."""
        shut_down(self._connections)


def shut_down(connections: Iterable[Any]) -> None:
    """Shut the sockets of psycopg's connections down: each call that waits for an answer sees the end of the stream.

    Cancelling a query instead asks the server for that, and psycopg waits 10 s for one that does not answer.
    """
    for connection in list(connections):
        if not connection.closed:
            shut = socket.socket(fileno=connection.pgconn.socket)
            with suppress(OSError):  # it broke by itself
                shut.shutdown(socket.SHUT_RDWR)
            shut.detach()  # it stays the connection's own


async def lay_out(connection: AnyConnection, name: str, *, writing: bool) -> None:
    """Check that the database holds a journal of this layout; with `writing`, make one where there is none.

    Raises:
        JournalError: `version` when it has another layout, `io` when there is none.
    """
    if writing:
        # One at a time: of two owners that begin at once, both would find no table.
        await connection.execute(text("SELECT pg_advisory_xact_lock(:application)"), {"application": APPLICATION})
    if await _has_table(connection, ITEMS):
        if (words := other_layout(*await _layout(connection))) is not None:
            raise JournalError(f"journal {name}: {words}; the database is left as it is", "version")
    elif not writing:
        raise JournalError(f"journal {name}: there is none in this database", "io")
    else:
        await connection.run_sync(METADATA.create_all)
        await connection.run_sync(SERVER_METADATA.create_all)
        await connection.execute(postgresql.insert(JOURNAL).values(first_row()).on_conflict_do_nothing())
        await connection.exec_driver_sql(FUNCTIONS.read_text("utf-8"))


async def settled_identity(connection: AnyConnection, name: str) -> str | None:
    """Return the identity of the journal in a database, once no move to it is being committed; `None` without one.

    Raises:
        JournalError: The journal has another layout (`version`).
    """
    if not await _has_table(connection, ITEMS):
        return None
    await lay_out(connection, name, writing=False)
    # It waits for a commit that a killed process has asked for: that goes on.
    await connection.exec_driver_sql(f"LOCK TABLE {JOURNAL.name} IN SHARE MODE")
    return str((await connection.execute(select(JOURNAL.c.identity))).scalar_one())


async def _layout(connection: AnyConnection) -> tuple[int, str | None]:
    """Return number and fingerprint of a journal's layout, the number first: another one may lack a column."""
    if not await _has_table(connection, JOURNAL):
        return 0, None
    number = (await connection.execute(select(JOURNAL.c.layout))).scalar_one()
    columns = await connection.run_sync(lambda found: inspect(found).get_columns(JOURNAL.name))
    if JOURNAL.c.fingerprint.name not in {column["name"] for column in columns}:
        return number, None
    return number, (await connection.execute(select(JOURNAL.c.fingerprint))).scalar_one()


async def _has_table(connection: AnyConnection, table: Table) -> bool:
    return await connection.run_sync(lambda found: inspect(found).has_table(table.name))


def _engine(
    location: ServerAddress, connections: WeakSet[Any], *, read_only: bool, owner_timeout: float
) -> AsyncEngine:
    """Return an engine that keeps its open connections, those of psycopg, in `connections`."""
    given = {name: value for name, value in _CONNECTING.items() if name not in location.url.query}
    try:
        engine = create_async_engine(
            location.url,
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            connect_args={**given, **location.secrets},
        )
    except ModuleNotFoundError:
        raise InvalidInputError("a journal on PostgreSQL needs psycopg: pip install 'psycopg[binary]'") from None

    wanted = {
        # A job's id that the server acknowledges has to survive its crash, whatever its own settings are.
        "synchronous_commit": "on",
        # A claim has to see those that it waited for, and a claim is a transaction of one statement.
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "on" if read_only else "off",
        # An owner that stalls within a transaction would keep its locks, and with them the claims of all others.
        "idle_in_transaction_session_timeout": f"{ceil(owner_timeout * 1000)}ms",
    }

    @event.listens_for(engine.sync_engine, "do_connect")
    def _connect(dialect: Any, record: object, arguments: list[Any], settings: dict[str, Any]) -> Any:
        """Open a connection that can be cut from its first moment on; close it when it can't be set up."""
        del record
        connection = dialect.connect(*arguments, **settings)
        connections.add(dialect.get_driver_connection(connection))
        try:
            _set_up(connection, wanted)
        except BaseException:
            connection.close()
            raise
        return connection

    return engine


def _set_up(connection: Any, wanted: Mapping[str, str]) -> None:
    """Change settings of the session, in one round trip."""
    cursor = connection.cursor()
    calls = ", ".join("set_config(%s, %s, false)" for _ in wanted)
    cursor.execute(f"SELECT {calls}", [word for pair in wanted.items() for word in pair])
    cursor.close()
    connection.commit()


def _without_detail(error: BaseException) -> str:
    """Return an error's first line: what follows may quote a row, and with that a prompt."""
    return one_line(str(error).partition("\n")[0], 300)
