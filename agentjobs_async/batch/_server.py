"""A journal on PostgreSQL: its address, whether it is one, and how a new one is made."""

from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from sqlalchemy import URL, ColumnElement, Double, event, func, inspect, make_url, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

import agentjobs_async.batch._fleet as fleet
import agentjobs_async.batch._tables as tables
from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async._text import one_line
from agentjobs_async.batch._backend import Backend

__all__ = ["address_of", "connect_arguments", "lay_out", "name_of", "server_backend", "server_clock", "server_url"]

_DRIVER: Final = "postgresql+psycopg"
_PATIENCE: Final = 300.0
_CONNECTING: Final = 10
_SILENCE_MS: Final = 30_000
_NEVER_SENT: Final = "08"
_GONE: Final = frozenset({"57P01", "57P02", "57P03", "53300", "40001", "40P01"})
"""Shut down, crashed, starting; too many connections; and what is to be tried again for another's sake."""
_REASONS: Final = {"53100": "full", "25006": "read_only", "42501": "read_only", "55P03": "locked"}
_WORDS: Final = {
    "full": "the server's disk is full; nothing more is sent until there is room",
    "read_only": "it can't be written",
    "locked": "somebody else uses it",
    "io": "it can't be reached, read or written",
}


def server_url(address: str) -> URL | None:
    """Give the URL when `address` is one, `None` when it is the path of a file.

    Raises:
        InvalidInputError: It is no URL of PostgreSQL. The message does not quote it: it may hold a password.
    """
    if "://" not in address:
        return None
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        url = None
    if url is None or url.drivername not in {_DRIVER, "postgresql"} or not url.database:
        raise InvalidInputError(
            "the journal is neither the path of a file nor like postgresql+psycopg://user@host/database"
        )
    password = url.query.get("password")
    if isinstance(password, str):  # where it is shown by nobody
        url = url.difference_update_query(["password"]).set(password=password)
    return url.set(drivername=_DRIVER)


def name_of(url: URL) -> str:
    """Give what may be shown of a URL: host and database."""
    return one_line(f"{url.host or 'PostgreSQL'}/{url.database}", 200)


def address_of(url: URL) -> str:
    """Give the URL without its password."""
    kept = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    return kept.render_as_string()


def connect_arguments(url: URL) -> dict[str, Any]:
    """Give what `psycopg.connect` takes for a URL, the password included."""
    _, settings = postgresql.psycopg.dialect().create_connect_args(url)  # type: ignore[no-untyped-call]  # SQLAlchemy's own
    return {"connect_timeout": _CONNECTING, "tcp_user_timeout": _SILENCE_MS, **settings}


def server_clock() -> ColumnElement[float]:
    """Give the server's clock: seconds since the epoch, as an expression."""
    return func.date_part("epoch", func.clock_timestamp(), type_=Double)


def server_backend(url: URL, *, read_only: bool, owner_timeout: float) -> Backend:
    """Give PostgreSQL at a URL; an owner that stalls within a transaction loses it after `owner_timeout` seconds."""
    name = name_of(url)
    return Backend(
        engine=_engine(url, read_only=read_only, owner_timeout=owner_timeout),
        insert=postgresql.insert(tables.ENTRIES),
        claim=fleet.claimed,
        before_claims=fleet.locked(),
        fault=lambda error: _fault(name, error),
        is_gone=_is_gone,
        patience=_PATIENCE,
    )


async def lay_out(backend: Backend, name: str, *, writing: bool) -> None:
    """See that the database holds a journal of this version; with `writing`, make one where there is none.

    Raises:
        JournalError: `version` when another version made it, `io` when there is none or it can't be reached.
    """
    try:
        async with backend.engine.begin() as connection:
            if writing:
                await _make(connection)
            there = await connection.run_sync(lambda found: inspect(found).has_table(tables.ENTRIES.name))
            version = (await connection.execute(fleet.limits())).one().version if there else None
    except DBAPIError as error:
        fault = backend.fault(error.orig or error)
    else:
        if version == tables.VERSION:
            return
        fault = JournalError(f"journal {name}: there is none in this database", "io")
        if version is not None:
            fault = JournalError(
                f"journal {name}: it has version {version}, and this program knows {tables.VERSION};"
                " use the version of agentjobs-async that made it",
                "version",
            )
    raise fault


async def _make(connection: AsyncConnection) -> None:
    # Two that begin at once would both find no table.
    await connection.execute(text("SELECT pg_advisory_xact_lock(:application)"), {"application": tables.APPLICATION})
    await connection.run_sync(tables.METADATA.create_all)
    await connection.run_sync(fleet.METADATA.create_all)
    await connection.execute(fleet.first(tables.VERSION))


def _engine(url: URL, *, read_only: bool, owner_timeout: float) -> AsyncEngine:
    settings: Mapping[str, Any] = {"connect_timeout": _CONNECTING, "tcp_user_timeout": _SILENCE_MS}
    given = {name: value for name, value in settings.items() if name not in url.query}
    try:
        engine = create_async_engine(url, hide_parameters=True, connect_args=given)
    except ModuleNotFoundError:
        raise InvalidInputError("a journal on PostgreSQL needs psycopg: pip install 'psycopg[binary]'") from None

    wanted = {
        # An id that the server acknowledges has to survive its crash, whatever its own settings are.
        "synchronous_commit": "on",
        "default_transaction_read_only": "on" if read_only else "off",
        # One that stalls within a transaction would hold its locks for as long, and with them all claims of the others.
        "idle_in_transaction_session_timeout": f"{ceil(owner_timeout * 1000)}ms",
    }

    @event.listens_for(engine.sync_engine, "connect")
    def _set_up(connection: Any, record: object) -> None:
        del record
        cursor = connection.cursor()
        for name, value in wanted.items():
            cursor.execute("SELECT set_config(%s, %s, false)", [name, value])
        cursor.close()
        connection.commit()

    return engine


def _is_gone(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    if not isinstance(error, OperationalError | InterfaceError):
        return error.connection_invalidated
    return state is None or state.startswith(_NEVER_SENT) or state in _GONE


def _fault(name: str, error: BaseException) -> JournalError:
    reason = _REASONS.get(getattr(error, "sqlstate", None) or "", "io")
    return JournalError(f"journal {name}: {_WORDS[reason]} ({_without_detail(error)})", reason)


def _without_detail(error: BaseException) -> str:
    """Give an error's first line: what follows may quote a row, and with that a prompt."""
    return one_line(str(error).partition("\n")[0], 300)
