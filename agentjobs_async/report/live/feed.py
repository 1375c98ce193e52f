"""A journal that others write, followed once for all pages."""

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from attrs import define, field

from agentjobs_async import JournalError
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.report.columns import block_line
from agentjobs_async.report.document import Document
from agentjobs_async.report.live.log import Log
from agentjobs_async.report.live.status import TimeLeft, status_of
from agentjobs_async.report.source import Source
from agentjobs_async.web.events import HEARTBEAT, frame

__all__ = ["ChangeFeed"]

_LOOK_SECONDS: Final = 0.9  # a change is shown within 1 s, the reading of its row included
_GLANCE_SECONDS: Final = 0.3  # the same for a file that did not change, of which the database was not asked
_REST_PER_LOOK: Final = 4.0  # looking takes at most a fifth of the database's time
_OVERLAP_SECONDS: Final = 5.0  # a row may be committed so long after the time that it has
_LATE_LOOK_SECONDS: Final = 60.0  # between two looks for rows that were committed later than that,
_LATE_OVERLAP_SECONDS: Final = 600.0  # but not later than this: a database may be slow, or wait for a lock
_ROWS_AT_ONCE: Final = 500  # what one query names
_RELOAD_SECONDS: Final = 60.0  # after which a page that is opened gets all rows as they are now
_REST_PER_LOAD: Final = 60.0  # reading all rows once more takes at most a sixtieth of the time
_FEWEST_CHANGED: Final = 5_000  # rows in the log before all are read once more, to make a shorter document of them
_RETRY_SECONDS: Final = 2.0  # after a fault of the database
_HEARTBEAT_SECONDS: Final = 15.0  # a page takes a stream for broken that is silent for longer than twice as long


@define(eq=False)
class _Changes:
    """Which rows of a journal have changed, by their times: each question overlaps the one before.

    Attributes:
        last: When the row that was changed last was changed, in seconds since the epoch.
        known: When each row was changed that the next question may find again, by its number.
    """

    journal: Journal
    last: float = field(default=0.0, init=False)
    known: dict[int, float] = field(factory=dict, init=False)

    async def begin(self) -> None:
        """Begin with what is there: rows that are read after this call are at least as new."""
        self.last, self.known = await self.journal._entries.last_change(), {}
        async for _ in self.numbers(_LATE_OVERLAP_SECONDS):
            pass

    async def numbers(self, overlap: float) -> AsyncIterator[list[int]]:
        """Yield the numbers of the rows that have changed, in lists: each is known once the next one is asked for."""
        since, after = self._since(overlap), 0
        while found := await self.journal._entries.changed(since, after):
            yield [number for number, changed_at in found if self.known.get(number) != changed_at]
            self.known.update(found)
            self.last = max(self.last, *(changed_at for _, changed_at in found))
            after = found[-1][0]

    def forget(self) -> None:
        """Forget the rows that no question will find again."""
        since = self._since(_LATE_OVERLAP_SECONDS)
        self.known = {number: changed_at for number, changed_at in self.known.items() if changed_at >= since}

    def _since(self, overlap: float) -> float:
        # A time in the future was recorded by a clock that was wrong: later changes have earlier times.
        return min(self.last, time.time()) - overlap


class ChangeFeed:
    """The document of all rows, and the log of what has changed since. While no page is open, it rests.

    Args:
        journal: The journal, which has to be open from `run` on.
        prompts: Whether the rows have their prompts.

    Attributes:
        log: What has changed since the document was made.
        status: What pages show besides the rows: that of `status_of`, with the `trouble` in reading the rows, and how
            long active jobs have `left`.
    """

    def __init__(self, journal: Journal, *, prompts: bool = True) -> None:
        self.log: Log = Log()
        self.status: dict[str, Any] = {"workers": None, "pauses": (0, 0.0), "trouble": None, "left": None}
        self._time_left = TimeLeft(journal)
        self._journal = journal
        self._prompts = prompts
        self._changes = _Changes(journal)
        self._document: Document | None = None
        self._position = 0  # of the log: what was logged before it is in the document
        self._growing: Document | None = None  # the first one, while it is being made
        self._place: object = None  # the file at the first look
        self._identity: str | None = None  # of the journal in a database, at the last look
        self._pages = 0
        self._watched = asyncio.Event()
        self._looking = asyncio.Lock()
        self._looked_at = -_LOOK_SECONDS  # monotonic, as the next two
        self._late_look_at = 0.0
        self._loaded_at = 0.0
        self._load_seconds = 0.0
        self._stamp: object = None  # of the last look, if every later commit changes it
        self._may_be_late = False  # something was written since the last look for late rows
        self._is_current = True  # nothing was written since the document was made
        self._changed_rows = 0  # in the log since then
        self._beside: dict[str, Any] = {}  # what `status_of` has returned last

    async def document(self) -> Document:
        """Return the document, which is as new as a second ago together with the log; the first one may be growing.

        Raises:
            JournalError: The journal can't be read.
        """
        if self._document is None and self._growing is not None:
            return self._growing
        await self.look(at_most_old=_LOOK_SECONDS, for_document=True)
        assert self._document is not None  # noqa: S101 - the look has loaded it
        return self._document

    async def frames(self, last_event_id: str | None) -> AsyncGenerator[bytes]:
        """Yield what follows an event, as server-sent ones, and follow the journal meanwhile.

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
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), _HEARTBEAT_SECONDS)
                    if not news.is_set():
                        yield HEARTBEAT
        if not log.is_closed:
            yield frame("stale", "")

    @contextmanager
    def _watched_by_one(self) -> Iterator[None]:
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
                self._tell(left=await self._time_left.words())
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

    async def look(self, at_most_old: float = 0.0, *, for_document: bool = False) -> bool:
        """Log what has changed, unless the last look was at most `at_most_old` seconds ago.

        All rows are read again where the log has become long, and `for_document` where the document has become old.
        Return whether the database was asked: not where nothing was written to a file.

        Raises:
            JournalError: The journal can't be read.
        """
        async with self._looking:
            has_asked = False
            if self._document is None or time.monotonic() - self._looked_at >= at_most_old:
                await self.check_place()
                await self._check_identity()
                has_asked = self._document is not None and await self._log_changes()
                self._looked_at = time.monotonic()
            if self._document is None or self._is_log_long() or (for_document and self._is_document_old()):
                await self._load()
                has_asked = True
            if has_asked:
                self._beside = await status_of(self._journal)
            self._tell(**self._beside)
            return has_asked

    async def _check_identity(self) -> None:
        """Begin anew, and let all pages do so, where the database has another journal by now: one was moved there."""
        identity = await self._journal._entries.identity() if self._journal.is_shared else None
        if self._identity not in (None, identity):
            self._document = None
            self.log.forget(self.log.end + 1)
            self.log.wake()
        self._identity = identity

    def _is_log_long(self) -> bool:
        return self._document is not None and self._changed_rows >= max(_FEWEST_CHANGED, self._document.rows)

    def _is_document_old(self) -> bool:
        rest = max(_RELOAD_SECONDS, _REST_PER_LOAD * self._load_seconds)
        return not self._is_current and time.monotonic() - self._loaded_at >= rest

    async def _log_changes(self) -> bool:
        entries, now = self._journal._entries, time.monotonic()
        stamp = await entries.stamp()
        is_late_look = self._may_be_late and now - self._late_look_at >= _LATE_LOOK_SECONDS
        if stamp.value == self._stamp and not is_late_look:
            return False
        self._is_current = False
        async for numbers in self._changes.numbers(_LATE_OVERLAP_SECONDS if is_late_look else _OVERLAP_SECONDS):
            for start in range(0, len(numbers), _ROWS_AT_ONCE):
                self._add(await entries.numbered(numbers[start : start + _ROWS_AT_ONCE]))
        if is_late_look:
            self._late_look_at = now
            self._changes.forget()
        # After the rows were read: if that failed, the next look has to read them.
        self._stamp = stamp.value if stamp.is_settled else None
        self._may_be_late = not (is_late_look and stamp.is_settled)
        return True

    def _add(self, rows: list[JournalRow]) -> None:
        """Log rows that have changed; one that was tried again is no item any more."""
        newest = [row for row in rows if row.retried_as is None]
        if newest:
            self.log.add(block_line(newest, prompts=self._prompts))
        if removed := [row.number for row in rows if row.retried_as is not None]:
            self.log.add(json.dumps({"removed": removed}))
        self._changed_rows += len(rows)

    async def _load(self) -> None:
        """Read all rows, and make a new document of them; what changes meanwhile is logged by the next look."""
        started, position, document = time.monotonic(), self.log.end, Document()
        self._growing = document if self._document is None else None
        try:
            await self._fill(document, position)
        finally:
            self._growing = None
            document.end()
        # Pages that have the last document may still ask for what came after it.
        self.log.forget(position if self._document is None else self._position)
        self._document, self._position, self._changed_rows, self._is_current = document, position, 0, True
        self._loaded_at, self._load_seconds = time.monotonic(), time.monotonic() - started

    async def _fill(self, document: Document, position: int) -> None:
        if self._document is None:
            self._stamp, self._late_look_at = None, time.monotonic()
            await self._changes.begin()
        source = await Source.of(self._journal, prompts=self._prompts)
        async for _ in document.read(source, identity=await self._journal._entries.identity()):
            pass
        document.add_line(json.dumps({"position": self.log.mark(position)}))

    def _tell(self, **status: Any) -> None:
        before, self.status = self.status, {**self.status, **status}
        if self.status != before:
            self.log.wake()


def _file_at(journal: Journal) -> tuple[int, int] | None:
    """Return the device and the number of the file where a journal was opened; `None` where there is none."""
    with suppress(OSError):
        found = os.stat(journal.address)  # noqa: PTH116 - the address is a path as text
        return found.st_dev, found.st_ino
    return None
