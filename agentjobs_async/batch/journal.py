"""The journal of a batch: what was sent and what became of it, whatever ends the process."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self, overload

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async._validation import checked_bare_id, checked_count, checked_id, checked_span
from agentjobs_async.batch._database.address import checked_location
from agentjobs_async.batch._planning import Planner, check, retry_row, retry_rows
from agentjobs_async.batch._store.measures import counts
from agentjobs_async.batch._store.opened import Opened
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import JournalRow, Rows
from agentjobs_async.batch._store.settling import abandon, abandon_rows, set_context, settle
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch._store.tries import rows_with_job, with_earlier_tries
from agentjobs_async.batch.items import BatchItem, InvalidItems, check_context, checked_key, context_text
from agentjobs_async.batch.limits import Limits
from agentjobs_async.batch.states import State
from agentjobs_async.batch.where import Where, checked_state

__all__ = ["Journal"]

_CLOSING_SECONDS: Final = 5.0  # for which a close waits for a server that does not answer: it may be restarting
_CANCELLED_SECONDS: Final = 1.0  # the same where a cancellation leaves the block: enough for a write under way
_MOST_NAMED: Final = 5  # items of one job: an error has room for a few


class Journal:
    """A batch's journal in a file or on PostgreSQL.

    `Journal.open` returns one, and `async with` opens and closes it.

    One process at a time may own a file; another gets a `JournalError`. On PostgreSQL any number of processes may own
    the journal at once: each row that is being sent names its owner, and becomes unknown when the heartbeats of that
    owner stop. A read-only journal can be open while others own it.

    A journal holds the prompts, and never the API key. Only its user can read a file.

    Every call raises a `JournalError` when the journal can't be read or written, and a `SessionClosedError` outside of
    the event loop in which it was opened, or in a forked child.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    @classmethod
    def open(
        cls,
        location: str | os.PathLike[str],
        *,
        read_only: bool = False,
        clock: Callable[[], float] | None = None,
        owner_timeout: float = 30.0,
    ) -> Self:
        """Return the journal of a file or a database, for `async with`, which makes it when it is missing.

        Entering it raises a `JournalError` when the journal can't be used, and leaves it as it is. Its `reason` is
        `locked` (another process owns the file), `moved` (by `move_journal`; it can only be read), `corrupt` (broken,
        or no journal), `version` (another version made it), `read_only`, `full` (no room for a new one) or `io`.

        Args:
            location: The path of a file, or a URL such as `postgresql+psycopg://user@host/database` (needs psycopg).
                What the URL leaves out comes from libpq's environment, such as PGPASSWORD.
            read_only: Change nothing, and keep no owner from writing. The journal has to exist. The directory of a file
                has to be writable, since SQLite makes files in it.
            clock: The wall clock, in seconds since the epoch; `None` takes the process's clock for a file, and the
                server's on PostgreSQL.
            owner_timeout: On PostgreSQL, seconds without a heartbeat after which an owner counts as dead, and the rows
                that it was sending become unknown. Use the same value in all processes.

        Raises:
            InvalidInputError: `location` can be no path, the URL is not one of PostgreSQL, or `owner_timeout` is not a
                finite number above 0.
        """
        checked_span("owner_timeout", owner_timeout)
        return cls(Opened(checked_location(location), read_only=read_only, clock=clock, owner_timeout=owner_timeout))

    @property
    def name(self) -> str:
        """The file's path, or the host and the name of the database: no credentials."""
        return self._opened.name

    @property
    def address(self) -> str:
        """What opens the same journal again: the path, or the URL without its secrets, left to libpq's environment."""
        return self._opened.address

    @property
    def moved_to(self) -> str | None:
        """Where `move_journal` has moved it to, without secrets; `None` if it has not."""
        return self._opened.moved_to

    @property
    def is_shared(self) -> bool:
        """Whether any number of processes may own it at once, as on PostgreSQL."""
        return self._opened.is_shared

    async def __aenter__(self) -> Self:
        if self._opened.database is not None:
            raise InvalidInputError("the journal is open already")
        try:
            await self._opened.open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._opened.close(_CANCELLED_SECONDS if cancelled else _CLOSING_SECONDS)

    async def aclose(self) -> None:
        """Wait for pending writes, then release the journal. Idempotent.

        A server that does not answer is waited for up to 5 s, or 1 s where a cancellation leaves the block. Writes that
        are pending after that fail with a `JournalError` in their calls. Cancelling this call ends the wait for a
        server; a file is closed even then.

        Raises:
            SessionClosedError: The journal belongs to another event loop, or to the process that forked this one.
        """
        await self._opened.close(_CLOSING_SECONDS)

    @property
    def read_only(self) -> bool:
        """Whether nothing can be changed through it."""
        return self._opened.read_only

    @property
    def store(self) -> Store:
        """The rows, as the other rooms of the package use them; it is no part of the public face.

        Raises:
            InvalidInputError: The journal is not open.
        """
        if self._opened.store is None:
            raise InvalidInputError("the journal is not open: use it inside of async with Journal.open(...)")
        return self._opened.store

    async def add(self, items: Iterable[BatchItem], *, project_id: str | None = None) -> InvalidItems:
        """Plan items, so that a later run sends them, and return those that are invalid, each with the reason.

        An item that is in the journal already stays as it is. An item is invalid if it can't be sent, has no project,
        has a key that the journal has with another prompt, project or extra, or a key that `items` had before.

        Args:
            items: The items.
            project_id: The project of items that name none; `None` refuses these.

        Raises:
            InvalidInputError: `project_id` can be no project.
        """
        return await Planner(self.store, _checked_project(project_id)).plan_all(items)

    async def check(self, items: Iterable[BatchItem], *, project_id: str | None = None) -> InvalidItems:
        """Return the items that `add` would find invalid, each with the reason, without planning any.

        Raises:
            InvalidInputError: `project_id` can be no project.
        """
        return await check(self.store, items, _checked_project(project_id))

    async def set_limits(self, limits: Limits) -> None:
        """Keep limits in the journal for all later runs, except for the limits that a run is given itself.

        On PostgreSQL they hold at once for all processes that work on the journal. Creates under way continue.
        """
        await self.store.set_limits(limits)

    async def limits(self) -> Limits:
        """Return the limits that the journal keeps: those set last, or `Limits()`."""
        return (await self.store.meta()).limits

    @overload
    async def retry(self, key: str) -> str: ...

    @overload
    async def retry(self, *, where: Where, max_tries: int | None = None) -> tuple[str, ...]: ...

    async def retry(
        self, key: str | None = None, *, where: Where | None = None, max_tries: int | None = None
    ) -> str | tuple[str, ...]:
        """Plan an item once more that failed, was archived, rejected or abandoned; return its key, which it keeps.

        What became of it before is kept as an earlier try; `rows(all_tries=True)` shows it.

        With `where`, plan all failed, archived and rejected items that meet its conditions, and return their keys. With
        `max_tries` (at least 1) as well, leave out those that have had so many tries. If the call is interrupted, it
        has planned some of them; the same call continues with the others.

        Raises:
            InvalidInputError: There is no such row, or it has not ended in one of these ways; `where` names another
                state; `key` and `where` are both given, or neither; or `max_tries` is not a whole number above 0, or is
                given with a key.
        """
        if (key is None) == (where is None) or (key is not None and max_tries is not None):
            raise InvalidInputError("give either a key, or where=Where(...), and max_tries with where only")
        if where is not None:
            if max_tries is not None:
                checked_count("max_tries", max_tries)
            return await retry_rows(self.store, where, max_tries)
        assert key is not None  # noqa: S101 - one of the two is given
        await retry_row(self.store, await self._row(key))
        return key

    async def resolve(self, key: str, *, job_id: str | JobRef | None = None, send_again: bool = False) -> None:
        """Settle an unknown item: by the job that you found, or by a new create, at the risk of a second agent.

        Call it again to correct a wrong `job_id`. That is possible until the job was seen to end.

        Args:
            key: The item's key.
            job_id: The job that you found; the next run waits for it. An id stands for a job of the item's own project.
                For a job of another one, pass its `JobRef`, such as `JobRef.from_token("project~.job")`.
            send_again: Whether the next run sends the create again. A rate counts both creates.

        Raises:
            InvalidInputError: Both or neither of `job_id` and `send_again` are given; `job_id` can't be an id, or may
                be a token or a prompt; there is no such row; or its item is neither unknown nor active by an earlier
                `job_id`.
        """
        if (job_id is None) != send_again:
            raise InvalidInputError("give either job_id, or send_again=True")
        if job_id is not None and not isinstance(job_id, JobRef):
            checked_bare_id(job_id)
        await self._resolve(await self._row(key), job_id)

    async def _resolve(self, row: JournalRow, job_id: str | JobRef | None) -> None:
        """Settle an item as `resolve` does, unless it has changed since it was read."""
        if not await settle(self.store, row, job_id):
            row = await self._row(row.key)
            raise InvalidInputError(f"{row.key} is {row.state}: there is nothing to resolve", reason="wrong_state")

    @overload
    async def abandon(self, key: str) -> None: ...

    @overload
    async def abandon(self, *, where: Where) -> tuple[str, ...]: ...

    async def abandon(self, key: str | None = None, *, where: Where | None = None) -> tuple[str, ...] | None:
        """Withdraw a planned item, or give up an active or unknown one that can't be settled in any other way.

        A planned item is never sent then. A run that has it gives a result of outcome `abandoned` once its turn comes.

        Give up an active item if its job can't be read any more, or has a status that this version does not know. An
        agent that is at work continues. The row keeps the job's id, if it has one, and its `error` says that it was
        abandoned, and what was wrong before.

        Only `retry` with its key plans the item again.

        With `where`, withdraw all planned items that meet its conditions, and return their keys. If it names `states`,
        which may be planned, active and unknown, withdraw or give up those in these states. Each item is withdrawn or
        sent, never both. If the call is interrupted, it has abandoned some of them; the same call continues with the
        others.

        Raises:
            InvalidInputError: There is no such row, or it is being sent or has ended; `where` names another state; or
                `key` and `where` are both given, or neither.
        """
        if (key is None) == (where is None):
            raise InvalidInputError("give either a key, or where=Where(...)")
        if where is not None:
            return await abandon_rows(self.store, where)
        assert key is not None  # noqa: S101 - one of the two is given
        await self._abandon(await self._row(key))
        return None

    async def _abandon(self, row: JournalRow) -> None:
        """End an item as `abandon` does, unless its state or its job has changed since it was read."""
        if not await abandon(self.store, row):
            row = await self._row(row.key)
            words = "only what is planned, active or unknown is abandoned"
            raise InvalidInputError(f"{row.key} is {row.state}: {words}", reason="wrong_state")

    async def set_context(self, key: str, context: dict[str, Any] | None) -> None:
        """Replace the context of an item, whatever its state; `None` removes it.

        Rows and results that are read from now on have the new one, also those of earlier tries. The row's `updated_at`
        does not change.

        Raises:
            InvalidInputError: There is no such row, or `context` can't be that of a `BatchItem`.
        """
        checked_key(key)
        if context is not None:
            check_context(context)
        if not await set_context(self.store, key, context_text(context)):
            raise _no_item(key)

    def rows(self, state: State | str | None = None, *, where: Where | None = None, all_tries: bool = False) -> Rows:
        """Return the row of each item, or of each in one state: `async for row in journal.rows()`, or `await` a list.

        With `where`, return only rows that meet its conditions as well, as in `journal.rows(where=Where(text="timed
        out"))`. With `all_tries`, the earlier tries of each item come before it.

        Raises:
            InvalidInputError: There is no such state, or the journal is not open.
        """
        states = None if state is None else {checked_state(state)}
        store, query = self.store, Query(where=where, states=states)

        async def pages() -> AsyncIterator[list[JournalRow]]:
            async for page in store.pages(query):
                yield await with_earlier_tries(store, page) if all_tries else page

        return Rows(pages)

    def unknown(self) -> Rows:
        """Return the rows whose creates may have started an agent: `await journal.unknown()`."""
        return self.rows(State.UNKNOWN)

    async def counts(self) -> dict[State, int]:
        """Return how many items are in each state."""
        return await counts(self.store)

    async def get(self, key: str) -> JournalRow | None:
        """Return the row of an item as it is now; `None` where the journal has no such key.

        Raises:
            InvalidInputError: It can be no key.
        """
        return (await self.store.rows_of([checked_key(key)])).get(key)

    async def find(self, job_id: str | JobRef) -> JournalRow | None:
        """Return the row of a job, such as one that a webhook names; `None` where the journal has no such job.

        An index finds it. If an earlier try of an item had the job, return the row of the item as it is now.

        Args:
            job_id: The job's id, or its `JobRef`, such as `JobRef.from_token("project~.job")`.

        Raises:
            InvalidInputError: `job_id` can't be an id, or may be a token or a prompt; or it is that of several items.
                If their projects differ, a `JobRef` says which is meant.
        """
        job = job_id if isinstance(job_id, JobRef) else checked_bare_id(job_id)
        found = await rows_with_job(self.store, job, _MOST_NAMED)
        if len(found) > 1:
            keys = ", ".join(f"{row.key!r:.200}" for row in found)
            if isinstance(job, JobRef):
                raise InvalidInputError(f"{job.to_token()} is the job of several items ({keys}): read them by get(key)")
            raise InvalidInputError(
                f"job_id {job!r:.200} is that of several items ({keys}): pass JobRef(project_id, job_id) if their"
                " projects differ, or read them by get(key)"
            )
        return found[0] if found else None

    async def _row(self, key: str) -> JournalRow:
        """Return the row of a key.

        Raises:
            InvalidInputError: It can be no key, or there is no such row.
        """
        row = await self.get(key)
        if row is None:
            raise _no_item(key)
        return row

    def _writable(self) -> Self:
        """Return the journal at the same location, not open yet, to be changed: for the actions of a page."""
        found = self._opened
        return type(self)(Opened(found.location, read_only=False, clock=None, owner_timeout=found.owner_timeout))


def _no_item(key: str) -> InvalidInputError:
    return InvalidInputError(f"there is no item of the key {key!r:.200}", reason="no_such_key")


def _checked_project(project_id: str | None) -> str | None:
    return None if project_id is None else checked_id("project_id", project_id)
