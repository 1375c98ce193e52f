"""Durable jobs followed by key: each reader gets the newest entry of its key, as the journal has it."""

import asyncio
from collections.abc import AsyncIterator
from contextvars import Context
from copy import copy
from typing import Any, Final, Self

from agentjobs_async import AgentJobsSession, InvalidInputError, JournalError, SessionClosedError, WaitTimeoutError
from agentjobs_async._loop.cancel_scope import CancelScope
from agentjobs_async._loop.tasks import until_done
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.durable.entry import DurableEntry, entry_of, for_reader
from agentjobs_async.errors import describe

_LOOK_SECONDS: Final = 0.5  # from one look whether the journal has changed to the next


class EntryTimeoutError(WaitTimeoutError):
    """The timeout of `DurableJobs.updates` passed; its `ref` is `None` where the job has no id at present.

    Attributes:
        key: The key.
        state: Where the job was as the journal showed it last.
    """

    def __init__(self, entry: DurableEntry, last_error: Exception | None, elapsed: float) -> None:
        super().__init__(entry.ref, entry.job, last_error, 0, elapsed)  # type: ignore[arg-type]  # as the docstring says
        self.key = entry.key
        self.state = entry.state
        self.advice = "it continues: ask for its updates again by its key"
        self._message_of_state = entry.to_dict()["message"]

    @property
    def public_message(self) -> str:
        """What to tell an end user; see `AgentJobsError`."""
        return f"{self._message_of_state} Ask again later."

    @property
    def message(self) -> str:
        """What happened, without the job's token and the advice, which `str` adds."""
        trouble = f", last error: {describe(self.last_error)}" if self.last_error is not None else ""
        elapsed = f"{self.elapsed:.1f}".removesuffix(".0")
        return f"{self.key!r:.200} did not end within {elapsed} s (last seen {self.state}{trouble})"


class EntryUpdates:
    """Looks whether the journal has changed, and hands each reader the newest row of its key.

    One task looks for all readers, and only while there are some. It asks the journal alone: so every process sees the
    same, whoever sends a create and follows its job.

    Args:
        session: Its draining ends the readers.
        journal: Whose rows are read.
    """

    def __init__(self, session: AgentJobsSession, journal: Journal) -> None:
        self.session = session
        self.last_error: Exception | None = None
        """Why the last look failed; `None` where it did not."""
        self._journal = journal
        self._readers: dict[str, set[EntryReader]] = {}
        self._stamp: object = None  # of the last look, if every later commit changes it
        # Rows are read and handed on one after the other: no reader gets an older one after a newer one.
        self._reading = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._watched: set[asyncio.Task[None]] = set()  # the task that looks, and those that are ending
        self._closed = False

    async def join(self, reader: "EntryReader") -> None:
        """Hand a reader the row of its key, and from now on each newer one.

        Raises:
            InvalidInputError: There is no such row.
            SessionClosedError: The durable jobs are closed.
            JournalError: The journal can't be read.
        """
        self._check_open()
        async with self._reading:
            row = (await self._journal.store.rows_of([reader.key])).get(reader.key)
            self._check_open()
            if row is None:
                words = "is the key of no job in the journal: submit it first"
                raise InvalidInputError(f"{reader.key!r:.200} {words}", reason="no_such_key")
            # What is committed from the reading on changes the stamp, since that of the last look is older.
            reader.show(row)
            self._readers.setdefault(reader.key, set()).add(reader)
        if self._watching is None:
            # It serves all readers: in the context of none of them.
            self._watching = asyncio.get_running_loop().create_task(self._watch(), context=Context())
            self._watched.add(self._watching)
            self._watching.add_done_callback(self._watched.discard)

    def leave(self, reader: "EntryReader") -> None:
        """Hand nothing more to a reader. The last one that leaves ends the looks."""
        readers = self._readers.get(reader.key, set())
        readers.discard(reader)
        if not readers:
            self._readers.pop(reader.key, None)
        if not self._readers and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def stop(self) -> None:
        """End all readers, and refuse new ones. Idempotent."""
        self._closed = True
        self._end_all(closed_error())

    async def close(self) -> None:
        """Do what `stop` does, and wait until nothing looks any more."""
        self.stop()
        await until_done(set(self._watched))

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()

    def _end_all(self, error: Exception) -> None:
        for reader in [reader for readers in self._readers.values() for reader in readers]:
            reader.end(copy(error))
            self.leave(reader)

    async def _watch(self) -> None:
        """Look, until cancelled; a journal that can't be read for a while is looked at again."""
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                try:
                    await self._look()
                except (JournalError, OSError) as error:  # the latter where the file can't be looked at
                    self.last_error = error
                else:
                    self.last_error = None
        except Exception as error:  # noqa: BLE001 - whatever ends it, no reader may wait for ever
            self._end_all(error)

    async def _look(self) -> None:
        """Read the rows of all readers' keys, if anything was written since the last look."""
        store = self._journal.store
        async with self._reading:
            stamp = await store.stamp()
            if stamp.value == self._stamp:
                return
            for page in pages_of(list(self._readers)):
                for key, row in (await store.rows_of(page)).items():
                    for reader in self._readers.get(key, ()):
                        reader.show(row)
            # After the rows were read: if that failed, the next look has to read them.
            self._stamp = stamp.value if stamp.is_settled else None


class EntryReader(AsyncIterator[DurableEntry]):
    """The entry of one key now and each change; an async context manager that is its own iterator.

    Args:
        updates: Hands it the newest rows.
        key: The key.
        timeout: Seconds from entering the block; `None` for ever.
    """

    def __init__(self, updates: EntryUpdates, key: str, timeout: float | None) -> None:
        self.key = key
        self._updates = updates
        self._timeout = timeout
        self._begun: float | None = None
        self._newest: DurableEntry | None = None
        self._state: tuple[Any, ...] | None = None  # what counts of the newest entry,
        self._told: tuple[Any, ...] | None = None  # and of the one that was read last
        self._end: Exception | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        if self._begun is not None:
            raise InvalidInputError("this updates was used already: call updates again")
        self._begun = asyncio.get_running_loop().time()
        await self._updates.join(self)
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._updates.leave(self)
        self.end(StopAsyncIteration())  # a reader in another task may be waiting

    async def __anext__(self) -> DurableEntry:
        if self._begun is None or self._newest is None:
            raise InvalidInputError("iterate within the block: async with updates(...) as changes")
        deadline = None if self._timeout is None else self._begun + self._timeout
        while True:
            if self._state != self._told:
                return self._read(self._newest)
            if self._end is not None:
                end, self._end = self._end, StopAsyncIteration()
                self._updates.leave(self)
                try:
                    raise end
                finally:
                    del end  # the error's traceback holds this frame, which must not hold the error
            self._changed.clear()
            with CancelScope(deadline, self._updates.session._shutdown.waits) as scope:
                await self._changed.wait()
            if scope.ended:
                self.end(scope.reason or self._timed_out(self._newest, self._begun))

    def show(self, row: JournalRow) -> None:
        """Store what the journal has for the reader, if it differs in what counts from what is stored."""
        state = (row.state, row.tries, row.job_id, row.pr_link, row.error)
        if state != self._state:
            self._newest, self._state = entry_of(row), state
            self._changed.set()

    def end(self, error: Exception) -> None:
        """Store the end of the iteration for the reader: it comes after the newest entry. An earlier one stays."""
        self._end = self._end or error
        self._changed.set()

    def _read(self, entry: DurableEntry) -> DurableEntry:
        """Return an entry that is read now; one that has ended is the last one."""
        self._told = self._state
        if entry.is_terminal:
            self._updates.leave(self)
            self._end = StopAsyncIteration()
        return for_reader(entry)

    def _timed_out(self, entry: DurableEntry, begun: float) -> EntryTimeoutError:
        elapsed = asyncio.get_running_loop().time() - begun
        return EntryTimeoutError(entry, self._updates.last_error, elapsed)


def closed_error() -> SessionClosedError:
    """Return what every call raises once the durable jobs were left."""
    return SessionClosedError("the durable jobs are closed; make new ones")
