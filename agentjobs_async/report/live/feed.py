"""A journal that others write, read once for all pages."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from agentjobs_async import JournalError
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.report.columns import block_line
from agentjobs_async.report.document import Document, Log
from agentjobs_async.report.live.changes import Changes
from agentjobs_async.report.live.running_figures import RunningFigures
from agentjobs_async.report.live.status import CurrentStanding, OpenedFile, TimeLeft, status_of
from agentjobs_async.report.source import Source
from agentjobs_async.web.events import HEARTBEAT, frame

__all__ = ["ChangeFeed"]

_LOOK_SECONDS: Final = 0.9  # a change is shown within 1 s, the reading of its row included
_GLANCE_SECONDS: Final = 0.3  # the same for a file that did not change, of which the database was not asked
_REST_PER_LOOK: Final = 4.0  # looking takes at most a fifth of the database's time
_RELOAD_SECONDS: Final = 60.0  # after which a page that is opened gets all rows as they are now
_REST_PER_LOAD: Final = 60.0  # reading all rows once more takes at most a sixtieth of the time
_FEWEST_CHANGED: Final = 5_000  # rows in the log before all are read once more, to make a shorter document of them
_RETRY_SECONDS: Final = 2.0  # after a fault of the database
_HEARTBEAT_SECONDS: Final = 15.0  # to a page, a stream that is silent for twice as long is broken


class ChangeFeed:
    """The document of all rows, and the log of what has changed since. While no page is open, it rests.

    Args:
        journal: The journal, which has to be open from `run` on.
        prompts: Whether the rows have their prompts.

    Attributes:
        log: What has changed since the document was made.
        file: The file of the journal, as it was at the first look.
        status: What pages show besides the rows: that of `status_of`, with the `trouble` in reading the rows, how long
            active jobs have `left`, the `standing` of the journal, and the `figures` of all rows.
    """

    def __init__(self, journal: Journal, *, prompts: bool = True) -> None:
        self.log: Log = Log()
        self.status: dict[str, Any] = {"workers": None, "late": [], "trouble": None, "left": None}
        self._time_left = TimeLeft(journal)
        self._standing = CurrentStanding(journal)
        self._journal = journal
        self._prompts = prompts
        self._changes = Changes(journal)
        self.file: OpenedFile = OpenedFile(journal)
        self._document: Document | None = None
        self._position = 0  # of the log: what was logged before it is in the document
        self._growing: Document | None = None  # the first one, while it is being made
        self._identity: str | None = None  # of the journal in a database, at the last look
        self._pages = 0
        self._watched = asyncio.Event()
        self._looking = asyncio.Lock()
        self._looked_at = -_LOOK_SECONDS  # monotonic, as the next two
        self._loaded_at = 0.0
        self._load_seconds = 0.0
        self._is_current = True  # nothing was written since the document was made
        self._changed_rows = 0  # in the log since then
        self._figures = RunningFigures()  # of the rows that pages have
        self._beside: dict[str, Any] = {}  # what `status_of` has returned last

    @property
    def reasons(self) -> Sequence[tuple[str, int]]:
        """How many items have which reason, as far as this is counted."""
        return self._figures.latest.reasons

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
        """Yield what follows an event, as server-sent ones, and watch the journal meanwhile.

        `rows` are lines of the log, and `status` what has changed in `status`, all of it first. After `stale`, a page
        has to ask for the document: what follows the event is not known any more, or it is of another log.
        """
        log, sent = self.log, dict[str, Any]()
        position = log.position(last_event_id)
        with self._watched_by_one():
            while position is not None and log.has(position) and not log.is_closed:
                news, status = log.news(), self.status
                changed = {name: value for name, value in status.items() if name not in sent or sent[name] != value}
                if position < log.end:  # one at a time: a page that reads slowly has none that the log forgets
                    position += 1
                    yield frame("rows", log.line(position - 1), log.event_id(position))
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
        """Read the rows once, then what changes while it is watched. Only a cancellation ends it."""
        while True:
            started = time.monotonic()
            rest = _LOOK_SECONDS
            try:
                has_asked = await self.look()
                left, stands = await self._time_left.words(), await self._standing.document()
                self._change_status(left=left, standing=stands)
                rest = _LOOK_SECONDS if has_asked or self._journal.is_shared else _GLANCE_SECONDS
            except JournalError as error:
                self._change_status(trouble=str(error))
                rest = _RETRY_SECONDS
            seconds = time.monotonic() - started
            # From start to start: a quick look does not put the next one off. Reading all rows has a rest of its own.
            has_loaded = self._loaded_at >= started
            next_at = started + max(rest, seconds if has_loaded else seconds + _REST_PER_LOOK * seconds)
            figures = await self._figures.current()  # which asks no database, and needs no rest of it
            self._change_status(figures=figures.document())
            await asyncio.sleep(max(next_at - time.monotonic(), 0.0))
            await self._watched.wait()

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
                await self.file.check()
                await self._check_identity()
                has_asked = self._document is not None and await self._log_changes()
                self._looked_at = time.monotonic()
            if self._document is None or self._is_log_long() or (for_document and self._is_document_old()):
                await self._load()
                has_asked = True
            if has_asked:
                self._beside = await status_of(self._journal)
            self._change_status(**self._beside)
            return has_asked

    async def _check_identity(self) -> None:
        """Begin anew, and let all pages do so, where the database has another journal by now: one was moved there."""
        identity = (await self._journal.store.meta()).identity if self._journal.is_shared else None
        if self._identity not in (None, identity):
            self._document = None
            self._figures.clear()
            self.log.forget(self.log.end + 1)
            self.log.wake()
        self._identity = identity

    def _is_log_long(self) -> bool:
        return self._document is not None and self._changed_rows >= max(_FEWEST_CHANGED, self._document.rows)

    def _is_document_old(self) -> bool:
        rest = max(_RELOAD_SECONDS, _REST_PER_LOAD * self._load_seconds)
        return not self._is_current and time.monotonic() - self._loaded_at >= rest

    async def _log_changes(self) -> bool:
        """Log the rows that have changed, and return whether anything was written."""
        is_written = False
        async for rows in self._changes.rows():
            is_written, self._is_current = True, False
            self._add(rows)
        return is_written

    def _add(self, rows: list[JournalRow]) -> None:
        """Log rows that have changed."""
        for is_known in (False, True):
            if found := [row for row in rows if (row.number in self._figures) is is_known]:
                # A prompt never changes: pages have those of known rows.
                self.log.add(block_line(found, prompts=self._prompts and not is_known))
        self._figures.count(rows)
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
            await self._changes.begin()
        source = await Source.of(self._journal, prompts=self._prompts)
        async for rows in document.read(source, identity=(await self._journal.store.meta()).identity):
            if self._document is not None:
                # What no look has found, such as a row that was committed very late: open pages get it, too.
                self._add([row for row in rows if row.number not in self._figures])
            self._figures.count(rows)
        document.add_line(json.dumps({"position": self.log.event_id(position)}))

    def _change_status(self, **status: Any) -> None:
        before, self.status = self.status, {**self.status, **status}
        if self.status != before:
            self.log.wake()
