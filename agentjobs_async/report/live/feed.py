"""A journal that others write, followed once for all pages."""

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from agentjobs_async import JournalError
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.batch._store.moves import TO, moved_error, moves, moves_of
from agentjobs_async.batch._workers import workers_of
from agentjobs_async.report.columns import BLOCK_ROWS, block_line, head_line, row_blocks
from agentjobs_async.report.live.document import Document
from agentjobs_async.report.live.known import KnownRows
from agentjobs_async.report.live.log import Log
from agentjobs_async.report.live.time_left import TimeLeft
from agentjobs_async.report.source import Source
from agentjobs_async.web.events import HEARTBEAT, frame

__all__ = ["ChangeFeed"]

_LOOK_SECONDS: Final = 0.9  # a change is shown within 1 s, the reading of its row included
_GLANCE_SECONDS: Final = 0.3  # the same for a file that did not change, of which the database was not asked
_REST_PER_LOOK: Final = 4.0  # looking takes at most a fifth of the database's time
_OVERLAP_SECONDS: Final = 5.0  # a row may be committed so long after the time that it has
_ROWS_AT_ONCE: Final = 500  # what one query names
_RELOAD_SECONDS: Final = 60.0  # until all rows are read once more for a change that no row's time shows
_REST_PER_LOAD: Final = 60.0  # reading all rows once more takes at most a sixtieth of the time
_FEWEST_CHANGED: Final = 5_000  # rows in the log before all are read once more, to make a shorter document of them
_ESTIMATE_SECONDS: Final = 5.0  # between two estimates: jobs take minutes
_RETRY_SECONDS: Final = 2.0  # after a fault of the database
_HEARTBEAT_SECONDS: Final = 15.0  # a page takes a stream for broken that is silent for longer than twice as long


class ChangeFeed:
    """The document of all rows, and the log of what has changed since. While no page is open, it rests.

    Args:
        journal: The journal, which has to be open from `run` on.
        prompts: Whether the rows have their prompts.

    Attributes:
        log: What has changed since the document was made.
        status: What pages show besides the rows: `workers`, `pauses`, the `trouble` in reading the rows, and how long
            active jobs have `left`.
    """

    def __init__(self, journal: Journal, *, prompts: bool = True) -> None:
        self.log: Log = Log()
        self.status: dict[str, Any] = {"workers": None, "pauses": (0, 0.0), "trouble": None, "left": None}
        self._time_left = TimeLeft(journal)
        self._estimated_at = -_ESTIMATE_SECONDS  # monotonic
        self._journal = journal
        self._prompts = prompts
        self._known = KnownRows()
        self._document: Document | None = None
        self._growing: Document | None = None  # the first one, while it is being made
        self._place: object = None  # the file at the first look
        self._identity: str | None = None  # of the journal in a database, at the last look
        self._moved: str | None = None  # the words about a journal that was moved
        self._pages = 0
        self._watched = asyncio.Event()
        self._looking = asyncio.Lock()
        self._looked_at = -_LOOK_SECONDS  # monotonic, as the next two
        self._loaded_at = 0.0
        self._load_seconds = 0.0
        self._stamp: object = None
        self._is_settled = False
        self._changed_rows = 0  # in the log since the document was made
        self._has_unseen = False  # something was written that no row's time shows

    async def document(self) -> Document:
        """Return the document, which is as new as a second ago together with the log; the first one may be growing.

        Raises:
            JournalError: The journal can't be read.
        """
        if self._document is None and self._growing is not None:
            return self._growing
        await self.look(at_most_old=_LOOK_SECONDS)
        assert self._document is not None  # noqa: S101 - the look has loaded it
        return self._document

    async def frames(self, last_event_id: str | None) -> AsyncGenerator[bytes]:
        """Return what follows an event, as server-sent ones, and follow the journal meanwhile.

        `rows` are lines of the log, and `status` what has changed in `status`, all of it first. After `stale`, a page
        has to ask for the document: what follows the event is not known any more, or it is of another log.
        """
        log, sent = self.log, dict[str, Any]()
        position = log.position(last_event_id)
        with self._watched_by_one():
            while position is not None and log.has(position) and not log.is_closed:
                news, status = log.news(), self.status
                changed = {name: value for name, value in status.items() if name not in sent or sent[name] != value}
                if position < log.end:  # one at a time: a page that reads slowly keeps none that the log forgets
                    position += 1
                    yield frame("rows", log.line(position - 1), log.mark(position))
                elif changed:
                    sent = status
                    yield frame("status", json.dumps(changed))
                elif not await _is_set(news, _HEARTBEAT_SECONDS):
                    yield HEARTBEAT
        if not log.is_closed:
            yield frame("stale", "")

    @contextmanager
    def _watched_by_one(self) -> Iterator[None]:
        """Follow the journal while the block runs."""
        self._pages += 1
        self._watched.set()
        try:
            yield
        finally:
            self._pages -= 1
            if not self._pages:
                self._watched.clear()

    async def run(self) -> None:
        """Read the rows once, then follow the journal while it is watched. Only a cancellation ends it."""
        while True:
            started = time.monotonic()
            rest = _LOOK_SECONDS
            try:
                has_asked = await self.look()
                await self._estimate()
                rest = _LOOK_SECONDS if has_asked or self._journal.is_shared else _GLANCE_SECONDS
            except JournalError as error:
                self._tell(trouble=str(error))
                rest = _RETRY_SECONDS
            took = time.monotonic() - started
            # From start to start: a quick look does not put the next one off. Reading all rows has a rest of its own.
            has_loaded = self._loaded_at >= started
            await asyncio.sleep(max(rest - took, 0.0 if has_loaded else _REST_PER_LOOK * took))
            await self._watched.wait()

    async def check_place(self) -> None:
        """Check that a file is still where it was: nothing else that lies there now is read or changed.

        Raises:
            JournalError: It is not (`moved`).
        """
        if self._journal.is_shared:
            return
        found = await asyncio.to_thread(_file_at, self._journal)
        self._place = self._place or found
        if found != self._place:
            what = "was moved or removed" if found is None else "was replaced by another journal"
            words = "the page shows what it held until then; serve the journal from where it is now"
            raise JournalError(f"{self._journal.name} {what}: {words}", "moved")

    async def look(self, at_most_old: float = 0.0) -> bool:
        """Log what has changed, unless the last look was at most `at_most_old` seconds ago.

        Return whether rows were read: not where nothing was written.

        Raises:
            JournalError: The journal can't be read.
        """
        async with self._looking:
            if self._document is not None and time.monotonic() - self._looked_at < at_most_old:
                return False
            await self.check_place()
            await self._check_identity()
            has_asked = True
            if self._document is None or self._needs_load():
                await self._load()
            else:
                has_asked = await self._log_changes()
            self._looked_at = time.monotonic()
            self._tell(trouble=self._moved)
            return has_asked

    async def _check_identity(self) -> None:
        """Begin anew, and let all pages do so, where the database has another journal by now: one was moved there."""
        identity = await self._journal._entries.identity() if self._journal.is_shared else None
        if self._identity not in (None, identity):
            self._document, self._known = None, KnownRows()
            self.log.forget(self.log.end + 1)
            self.log.wake()
        self._identity = identity

    def _needs_load(self) -> bool:
        rested = time.monotonic() - self._loaded_at >= max(_RELOAD_SECONDS, _REST_PER_LOAD * self._load_seconds)
        is_long = self._changed_rows >= max(_FEWEST_CHANGED, len(self._known.hashes))
        return is_long or (self._has_unseen and rested)

    async def _log_changes(self) -> bool:
        entries = self._journal._entries
        stamp = await entries.stamp()
        if self._is_settled and stamp.value == self._stamp:
            return False
        is_new = stamp.value != self._stamp
        # A time in the future was recorded by a clock that was wrong: later changes have earlier times.
        changed, after, since = 0, 0, min(self._known.newest, time.time()) - _OVERLAP_SECONDS
        while found := await entries.changed(since, after):
            numbers = self._known.unknown(found)
            for start in range(0, len(numbers), _ROWS_AT_ONCE):
                rows = await entries.numbered(numbers[start : start + _ROWS_AT_ONCE])
                changed += self._add(*self._known.take(rows))
            after = found[-1][0]
        # What a poll saw, and an item's retry, leave the time of its row as it is; so does a clock that was set back.
        self._has_unseen |= is_new and not changed
        # After the rows were read: if that failed, the next look has to read them.
        self._stamp, self._is_settled = stamp.value, stamp.is_settled
        await self._look_beside()
        return True

    async def _load(self) -> None:
        """Read all rows, log what has changed, and make a new document."""
        started = time.monotonic()
        stamp = await self._journal._entries.stamp()
        document = Document(self.log.end)
        self._growing = document if self._document is None else None
        try:
            await self._fill(document)
        finally:
            self._growing = None
            document.end()
        # Pages that have the last document may still ask for what came after it.
        self.log.forget(document.position if self._document is None else self._document.position)
        self._document, self._stamp, self._is_settled = document, stamp.value, stamp.is_settled
        self._changed_rows, self._has_unseen = 0, False
        self._loaded_at, self._load_seconds = time.monotonic(), time.monotonic() - started
        await self._look_beside()

    async def _fill(self, document: Document) -> None:
        numbers = set[int]()
        document.add_line(head_line(await Source.of(self._journal), identity=await self._journal._entries.identity()))
        async for rows in row_blocks(self._journal):
            changed, removed = self._known.take(rows)
            numbers.update(row.number for row in rows)
            await document.add(rows, prompts=self._prompts)
            if self._document is not None:
                self._add(changed, removed)
        self._add([], self._known.keep(numbers))
        document.add_line(json.dumps({"position": self.log.mark(document.position)}))

    def _add(self, changed: list[JournalRow], removed: list[int]) -> int:
        for start in range(0, len(changed), BLOCK_ROWS):
            self.log.add(block_line(changed[start : start + BLOCK_ROWS], prompts=self._prompts))
        if removed:
            self.log.add(json.dumps({"removed": removed}))
        self._changed_rows += len(changed)
        return len(changed) + len(removed)

    async def _estimate(self) -> None:
        now = time.monotonic()
        if now - self._estimated_at >= _ESTIMATE_SECONDS:
            self._estimated_at = now
            self._tell(left=await self._time_left.words())

    async def _look_beside(self) -> None:
        pauses = await self._journal._entries.pauses()
        self._moved = await _moved_words(self._journal)
        self._tell(workers=await _shown_workers(self._journal), pauses=pauses)

    def _tell(self, **status: Any) -> None:
        before, self.status = self.status, {**self.status, **status}
        if self.status != before:
            self.log.wake()


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for some seconds, and return whether it was set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _file_at(journal: Journal) -> tuple[int, int] | None:
    """Return the device and the number of the file where a journal was opened; `None` where there is none."""
    with suppress(OSError):
        found = os.stat(journal.address)  # noqa: PTH116 - the address is a path as text
        return found.st_dev, found.st_ino
    return None


async def _moved_words(journal: Journal) -> str | None:
    """Return the words about a journal that `move_journal` has moved; `None` if it has not."""
    database = journal._opened.database
    assert database is not None  # noqa: S101 - the journal is open
    move = moves_of(await database.read(moves())).get(TO)
    return None if move is None else str(moved_error(journal.name, move))


async def _shown_workers(journal: Journal) -> list[dict[str, Any]] | None:
    """Return the workers as pages show them, with the time of each one's last heartbeat in ms since the epoch.

    `None` for a file: the feed looks only after a change of the journal, and the end of a file's owner is none.
    """
    if not journal.is_shared:
        return None
    workers, now = await workers_of(journal) or [], time.time()
    return [
        {
            "name": worker.name,
            "active": worker.active,
            "heard": round((now - worker.silent_for) * 1000),
            "dead": worker.is_dead,
        }
        for worker in workers
    ]
