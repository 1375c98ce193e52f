"""What differs between the databases that hold journals."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import frozen
from sqlalchemy import Executable, Row
from sqlalchemy.exc import DBAPIError

from agentjobs_async import JournalError
from agentjobs_async.batch._store.plan import Insert
from agentjobs_async.batch._store.threads import FileConnection, FileEngine

if TYPE_CHECKING:  # a run on a file does without it, and without the half of SQLAlchemy that it imports
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

AnyConnection: TypeAlias = "AsyncConnection | FileConnection"
"""A connection to a server, or to a file."""
Read = Callable[[Executable], Awaitable[Sequence[Row[Any]]]]
"""Returns the rows of a query."""


@frozen
class Stamp:
    """What changes with each commit.

    Attributes:
        value: Equal to that of an earlier stamp if nothing was committed in between.
        is_settled: Whether a later commit is sure to change it; otherwise one may have come in the same moment.
    """

    value: object
    is_settled: bool = True


@frozen
class Backend:
    """A database, and what is specific to it.

    Attributes:
        insert: An insert into the entries, in the database's dialect.
        claim: The statement of a claim, with the parameters and results of `statements.CLAIM`.
        claims_apart: Whether each claim is a transaction of its own, and claims have a connection of their own.
        fault: Returns an error of the database as a `JournalError`.
        is_gone: Returns whether an error means that the connection broke, and a new one may help.
        patience: Seconds for which a database that is gone is waited for.
        stamp: Returns the stamp of all that is committed by now; what it asks the database, it asks by `Read`.
        cut: Breaks all connections, so that each call that waits for an answer fails at once; `None` where threads
            wait, which can't be interrupted.
    """

    engine: "AsyncEngine | FileEngine"
    insert: Insert
    claim: Executable
    claims_apart: bool
    fault: Callable[[BaseException], JournalError]
    is_gone: Callable[[DBAPIError], bool]
    patience: float
    stamp: Callable[[Read], Awaitable[Stamp]]
    cut: Callable[[], None] | None = None
