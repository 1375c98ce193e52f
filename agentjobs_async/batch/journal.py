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

    `Journal.open` returns one, and `async with` opens and closes it. One process at a time may own a file; another gets
    a `JournalError`. On PostgreSQL any number of processes may own it at once: each row that is being sent names its
    owner, and becomes unknown when the heartbeats of that owner stop. A read-only journal can be open while another
    process owns it. A journal holds the prompts, and never the API key; a file is readable to its user only.
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

        Entering it raises a `JournalError` when the journal can't be used, and leaves it as it is. `.reason` is
        `locked` (another process owns the file), `moved` (by `move_journal`; it can only be read), `corrupt` (broken,
        or no journal), `version` (another version made it), `read_only`, `full` (no room for a new one) or `io`.

        Args:
            location: The path of a file, or a URL such as `postgresql+psycopg://user@host/database` (needs psycopg).
                What the URL leaves out comes from libpq's environment, such as PGPASSWORD.
            read_only: Change nothing, and keep no owner from writing. The journal has to exist; a file, in a
                directory that can be written, since SQLite makes files there.
            clock: The wall clock, in seconds since the epoch; `None` takes the process's clock for a file, and the
                server's on PostgreSQL.
            owner_timeout: On PostgreSQL, seconds without a heartbeat after which an owner counts as dead, and
                the rows that it was sending become unknown. Give all owners the same.

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

        A server that does not answer is waited for up to 5 s, or 1 s where a cancellation leaves the block; writes that
        are still pending then fail with a `JournalError` in their calls. Cancelling this call stops the waiting for a
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
        """Plan items, so that a later run needs none; one that is there already stays as it is.

        Return the items that are invalid, each with the reason: an item can't be sent or has no project, its key is
        that of another prompt, project or extra in the journal, or `items` has given its key before.

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
        """Keep limits in the journal; creates under way continue.

        On PostgreSQL they apply at once to all processes that work on it together. Each later run uses them, except for
        the limits that it is given itself.
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

        What it was is kept as an earlier try, and `rows(all_tries=True)` shows it. With `where`, plan all failed,
        archived and rejected items that meet it, and return their keys; with `max_tries` (at least 1), only those with
        fewer tries so far. Interrupted, it has planned some of them; the same call continues with the others.

        Raises:
            InvalidInputError: There is no such row, or it has not ended in one of these ways; `where` names another
                state; both or neither are given; or `max_tries` is not a whole number above 0, or is given with a key.
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
        """Settle an unknown item: by its job, where you found it, or by a new create, at the risk of a second agent.

        A wrong `job_id` is corrected by the same call, until its job was seen to end.

        Args:
            key: The item's key.
            job_id: The job that you found; the next run waits for it. Its id if it belongs to the item's own project,
                otherwise its `JobRef`, such as `JobRef.from_token("project~.job")`.
            send_again: The next run sends the create again. A rate counts both creates.

        Raises:
            InvalidInputError: Both or neither of `job_id` and `send_again` are given, `job_id` can't be an id or may be
                a token or a prompt, there is no such row, or it is neither unknown nor active by an earlier `job_id`.
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
            raise InvalidInputError(f"{row.key} is {row.state}: there is nothing to resolve")

    @overload
    async def abandon(self, key: str) -> None: ...

    @overload
    async def abandon(self, *, where: Where) -> tuple[str, ...]: ...

    async def abandon(self, key: str | None = None, *, where: Where | None = None) -> tuple[str, ...] | None:
        """Withdraw a planned item, or give up an active or unknown one that can't be settled in any other way.

        A planned item is never sent then: a run that has it gives a result of outcome `abandoned` once its turn has
        come. The job of the others can't be read any more, has a status that this version does not know, or may not
        exist; an agent that is at work continues. The row keeps the job's id, where it has one, and its `error` says
        that it was abandoned, and what was wrong before. Only `retry` with its key plans it again.

        With `where`, withdraw all planned items that meet it, and return their keys; where it names `states`, those in
        these states: planned, active, unknown. Each is withdrawn or sent, never both. Interrupted, it has abandoned
        some of them; the same call continues with the others.

        Raises:
            InvalidInputError: There is no such row, or it is being sent or has ended; `where` names another state; or
                both or neither are given.
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
            raise InvalidInputError(f"{row.key} is {row.state}: only what is planned, active or unknown is abandoned")

    async def set_context(self, key: str, context: dict[str, Any] | None) -> None:
        """Replace the context of an item, whatever its state; `None` for none.

        Rows and results that are read from now on have it, the earlier tries too. The row's `updated_at` stays.

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

        With `where`, they meet its conditions as well, as in `journal.rows(where=Where(text="timed out"))`. With
        `all_tries`, each is preceded by its earlier tries.

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

        An index finds it. Where an earlier try of an item had the job, that is the row of the item as it is now.

        Args:
            job_id: The job's id, or its `JobRef`, such as `JobRef.from_token("project~.job")`.

        Raises:
            InvalidInputError: `job_id` can't be an id, or may be a token or a prompt; or it is that of several items,
                which are told apart by a `JobRef` where their projects differ.
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
    return InvalidInputError(f"there is no item of the key {key!r:.200}")


def _checked_project(project_id: str | None) -> str | None:
    return None if project_id is None else checked_id("project_id", project_id)
