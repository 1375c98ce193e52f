"""What differs between the databases that hold journals."""

from collections.abc import Callable

from attrs import frozen
from sqlalchemy import Executable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from agentjobs_async import JournalError
from agentjobs_async.batch._store.plan import Insert
from agentjobs_async.batch._store.schema import Moment

__all__ = ["Backend"]


@frozen
class Backend:
    """A database, and what is specific to it.

    Attributes:
        insert: An insert into the entries, in the database's dialect.
        claim: Returns the statement of a claim from key, claim, time, owner and project. It returns what
            `statements.claim` does.
        claims_apart: Whether each claim is a transaction of its own, and claims have a connection of their own.
        fault: Returns an error of the database as a `JournalError`.
        is_gone: Returns whether an error means that the connection broke, and a new one may help.
        patience: Seconds for which a database that is gone is waited for.
        cut: Breaks all connections, so that each call that waits for an answer fails at once; `None` where threads
            wait, which can't be interrupted.
    """

    engine: AsyncEngine
    insert: Insert
    claim: Callable[[str, str, Moment, str, str | None], Executable]
    claims_apart: bool
    fault: Callable[[BaseException], JournalError]
    is_gone: Callable[[DBAPIError], bool]
    patience: float
    cut: Callable[[], None] | None = None
