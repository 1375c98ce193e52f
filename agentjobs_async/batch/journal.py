"""The journal of a batch: what was sent and what became of it, whatever ends the process."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from attrs import asdict

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async.batch._database import Database
from agentjobs_async.batch._file import Ownership, check, check_kind, make
from agentjobs_async.batch.entries import Entries, JournalRow, Rows, difference
from agentjobs_async.batch.items import BatchItem, Refusals, check_items
from agentjobs_async.batch.states import State

__all__ = ["Journal"]

_PAGE: Final = 500
_RETRIED: Final = frozenset({State.FAILED, State.ARCHIVED, State.REJECTED})


class Journal:
    """A batch's journal in a file; `Journal.open` makes one, `async with` opens it and gives it up again.

    One process at a time may own it; another gets a `JournalError`. Whoever only looks, with `read_only`, gets along
    with an owner. It holds the prompts, and never a key; the file is readable to its user only. Every call raises a
    `JournalError` when the file can't be read or written, and a `SessionClosedError` in another event loop than that in
    which it was opened, or in a forked child.

    Attributes:
        path: Where the file is.
    """

    def __init__(self, path: Path, *, read_only: bool, clock: Callable[[], float]) -> None:
        self.path = path
        self._interrupted: tuple[str, ...] = ()
        self._read_only = read_only
        self._clock = clock
        self._owned: Ownership | None = None
        self._database: Database | None = None
        self._entries: Entries | None = None

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, read_only: bool = False, clock: Callable[[], float] = time.time
    ) -> Self:
        """Give the journal of a file, to be used as `async with`; that makes the file when it is missing or empty.

        Entering it raises a `JournalError` when the file can't be used, and leaves the file as it is: `.reason` is
        `locked` (somebody else owns it), `corrupt` (broken, or no journal), `version` (another version made it),
        `read_only`, `full` (no room for a new one) or `io`.

        Args:
            path: Where the file is.
            read_only: Only looks: nobody else is kept from writing, and nothing is changed. The file has to be there.
            clock: The wall clock, in seconds since the epoch.
        """
        return cls(Path(path), read_only=read_only, clock=clock)

    async def __aenter__(self) -> Self:
        if self._database is not None:
            raise InvalidInputError("the journal is open already")
        try:
            await _finished(self._open())
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish what is being written, and give the file up. Idempotent.

        Raises:
            SessionClosedError: It belongs to another event loop, or to the process that forked this one.
        """
        if self._database is not None:
            self._database.enter()
        database, self._database, self._entries = self._database, None, None
        owned, self._owned = self._owned, None
        try:
            if database is not None:
                await _finished(database.close())
        finally:
            if owned is not None:
                owned.release()

    @property
    def read_only(self) -> bool:
        """Whether it only looks."""
        return self._read_only

    @property
    def entries(self) -> Entries:
        """What a runner does with the rows.

        Raises:
            InvalidInputError: The journal is not open.
        """
        if self._entries is None:
            raise InvalidInputError("the journal is not open: use it inside of async with Journal.open(...)")
        return self._entries

    async def add(self, items: Iterable[BatchItem]) -> Refusals:
        """Plan all items at once, so that a later run needs no items. One that is there already stays as it is.

        Gives the items that are refused, each with the reason: they can't be sent, or their key is that of another
        prompt.
        """
        refused: Refusals = []
        remaining = iter(items)
        while page := list(islice(remaining, _PAGE)):
            good, bad = check_items(page)
            if good:
                await self.entries.add(good)
            refused += bad + await self._clashes(good)
        return refused

    async def check(self, items: Iterable[BatchItem]) -> Refusals:
        """Give the items that `add` would refuse, each with the reason, without planning any."""
        refused: Refusals = []
        remaining = iter(items)
        while page := list(islice(remaining, _PAGE)):
            good, bad = check_items(page)
            refused += bad + await self._clashes(good)
        return refused

    async def retry(self, key: str) -> str:
        """Plan a failed, archived or rejected item once more, and give the key of its new row, such as `key#2`.

        Raises:
            InvalidInputError: There is no such row, it has not ended in one of these ways, or was tried again before.
        """
        row = await self._row(key)
        if row.state not in _RETRIED:
            raise InvalidInputError(f"{key} is {row.state}: only what failed, was archived or rejected is tried again")
        again = BatchItem(_next_key(key), row.prompt, row.project_id)
        if not await self.entries.add([again]):
            raise InvalidInputError(f"{key} was tried again before, as {again.key}")
        return again.key

    async def resolve(self, key: str, *, job_id: str | None = None, send_again: bool = False) -> None:
        """Settle an unknown item: somebody looked, and found its job, or takes the risk of a second agent.

        Args:
            key: The item's.
            job_id: The job that was found, its id or a token `project/job`; the next run waits for it.
            send_again: The next run creates it again.

        Raises:
            InvalidInputError: Not exactly one of both is given, `job_id` can be none, or the row is not unknown.
        """
        if (job_id is None) != send_again:
            raise InvalidInputError("give either job_id, or send_again=True")
        project_id = None
        if job_id is not None and "/" in job_id:
            ref = JobRef.from_token(job_id)
            project_id, job_id = ref.project_id, ref.job_id
        elif job_id is not None:
            JobRef("any", job_id)
        if not await self.entries.resolved(key, job_id, project_id):
            row = await self._row(key)
            raise InvalidInputError(f"{key} is {row.state}: there is nothing to resolve")

    def rows(self, state: State | str | None = None) -> Rows:
        """Give every row, or those of one state: `async for row in journal.rows()`, or `await` it for a list.

        Raises:
            InvalidInputError: There is no such state, or the journal is not open.
        """
        return Rows(self.entries, None if state is None else _state(state))

    def unknown(self) -> Rows:
        """Give the rows of which nobody knows whether an agent was started: `await journal.unknown()`."""
        return self.rows(State.UNKNOWN)

    async def counts(self) -> dict[State, int]:
        """Give how many rows there are of each state."""
        return await self.entries.counts()

    async def export(self, stream: TextIO) -> int:
        """Write every row to a text stream as one line of JSON, and give how many there were."""
        written = 0
        async for row in self.rows():
            document = asdict(row) | {"updated_at": row.updated_at.isoformat()}
            stream.write(f"{json.dumps(document)}\n")
            written += 1
        return written

    def take_interrupted(self) -> tuple[str, ...]:
        """Give the keys that an earlier owner was sending when it ended, once: their rows became unknown by opening."""
        taken, self._interrupted = self._interrupted, ()
        return taken

    async def _open(self) -> None:
        await asyncio.to_thread(self._take)
        self._database = Database(self.path, read_only=self._read_only)
        self._entries = Entries(self._database, self._clock, self._guard)
        if not self._read_only:
            self._interrupted = await self._entries.interrupted()

    def _guard(self) -> None:
        if self._owned is not None:
            self._owned.check()

    def _take(self) -> None:
        """Own the file, and see that it is a journal; in a thread, since all that waits for the disk."""
        check_kind(self.path, writing=not self._read_only)
        self.path = self.path.resolve()
        if not self._read_only:
            self._owned = Ownership(self.path)
            if not self.path.exists() or not self.path.stat().st_size:
                make(self.path)
        check(self.path, writing=not self._read_only)
        if self._owned is not None:
            self._owned.watch(self.path)

    async def _clashes(self, items: Sequence[BatchItem]) -> Refusals:
        rows = await self.entries.named([item.key for item in items])
        clashes = ((item, difference(item, rows[item.key])) for item in items if item.key in rows)
        return [(item, error) for item, error in clashes if error is not None]

    async def _row(self, key: str) -> JournalRow:
        found = await self.entries.named([key])
        if key not in found:
            raise InvalidInputError(f"there is no row of the key {key!r:.200}")
        return found[key]


async def _finished(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to its end, even when cancelled: threads go on, and what they open or write must not be left so."""
    working = asyncio.ensure_future(work)
    try:
        await asyncio.shield(working)
    except BaseException:
        await asyncio.wait([working])
        raise


def _state(name: str) -> State:
    if name not in list(State):
        raise InvalidInputError(f"state must be one of {', '.join(State)}, not {name!r:.100}")
    return State(name)


def _next_key(key: str) -> str:
    name, separator, number = key.rpartition("#")
    return f"{name}#{int(number) + 1}" if separator and number.isdecimal() else f"{key}#2"
