"""The file that `--out` names: each end of an item as a line of JSON or CSV, exactly once, whatever ends a run."""

import asyncio
import csv
import errno
import json
import os
import stat
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, BinaryIO, Final, Protocol, Self

from agentjobs_async import AgentJobsError, InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.batch import Journal, State
from agentjobs_async.cli._output.results import item_document, row_result
from agentjobs_async.report.items import COLUMNS, cell_text, columns_of, csv_line, inert

_BLOCK_BYTES: Final = 65_536  # read at once: a file of results may have gigabytes
_LAST_FILL_SECONDS: Final = 10.0  # what a run that was stopped may still take; the next run writes the rest


_LONGEST_CELL: Final = 8_192  # bytes: a spreadsheet takes 32,767 characters
_LONGEST_FIRST_LINE: Final = 1_048_576  # bytes: contexts may have any number of fields

Identity = tuple[object, ...]


class Form(Protocol):
    """How results are written and recognized."""

    names: Sequence[str]
    """The columns that its first line names; empty without such a line."""

    def reads(self, first: bytes) -> bool:
        """Return whether a file that begins with this line is ours; its columns are used then."""
        ...

    def line(self, document: Mapping[str, Any]) -> str:
        """Return a result as one line, with its line end."""
        ...

    def identity(self, line: bytes) -> Identity | None:
        """Return what distinguishes a line from others; `None` for a line of another program."""
        ...

    def is_torn(self, last: bytes) -> bool:
        """Return whether a last line without a line end is a part of one of ours."""
        ...


class JsonLines:
    """A JSON object per line."""

    names: Sequence[str] = ()

    def reads(self, first: bytes) -> bool:
        """Return true: lines of others may stand between ours."""
        del first
        return True

    def line(self, document: Mapping[str, Any]) -> str:
        """Return the document as JSON."""
        return f"{json.dumps(document)}\n"

    def identity(self, line: bytes) -> Identity | None:
        """Return the identity of the document."""
        with suppress(ValueError, RecursionError, TypeError):
            document = json.loads(line)
            if isinstance(document, dict):
                name = _identity(document)
                hash(name)
                return name
        return None

    def is_torn(self, last: bytes) -> bool:
        """Return whether it begins like an object and is not one."""
        if not last.startswith(b"{"):
            return False
        with suppress(ValueError, RecursionError):
            json.loads(last)
            return False
        return True


class CsvLines:
    """A record per line: line breaks in cells are escaped, so that an incomplete last line can be recognised."""

    def __init__(self) -> None:
        self.names: Sequence[str] = tuple(COLUMNS)

    def reads(self, first: bytes) -> bool:
        """Return whether a file begins with our columns, or with a part of them that a killed run has left."""
        own = csv_line(COLUMNS).rstrip("\n").encode()
        if len(first) >= _LONGEST_FIRST_LINE:
            return False
        if first.endswith(b"\n") and first.startswith(own):
            with suppress(csv.Error):
                (self.names,) = csv.reader([first.decode(errors="replace")])
                return self.names[: len(COLUMNS)] == list(COLUMNS)
            return False
        return own.startswith(first) or (first.startswith(own + b",") and not first.endswith(b"\n"))

    def line(self, document: Mapping[str, Any]) -> str:
        """Return the cells of the document; a field of its context that the first line does not name is left out."""
        found = {_heading(name): value for name, value in document.items()}
        return csv_line(one_line(cell_text(found.get(name)), _LONGEST_CELL) for name in self.names)

    def identity(self, line: bytes) -> Identity | None:
        """Return the identity of a record."""
        with suppress(ValueError, csv.Error):
            (cells,) = csv.reader([line.decode()])
            return _identity({name: cell or None for name, cell in zip(self.names, cells, strict=True)})
        return None

    def is_torn(self, last: bytes) -> bool:
        """Return true: the header says that the file is ours."""
        return bool(last)


def _heading(name: str) -> str:
    """Return the name of a column as the first line has it: on one line, as every record."""
    return inert(one_line(name, _LONGEST_CELL))


def form_of(file: str) -> Form:
    """Return the form of a file by its suffix."""
    return CsvLines() if file.lower().endswith(".csv") else JsonLines()


def _identity(document: Mapping[str, Any]) -> Identity:
    """Return what distinguishes one end of an item from another.

    A refused task has no place in the journal; there the reason is part of it.
    """
    reason = document.get("error") if document.get("number", 0) is None else None
    return *(document.get(name) for name in ("key", "tries", "state", "project", "job_id")), reason


class Out:
    """An open file to which results are appended; anything but a regular file is only written to."""

    def __init__(self, name: str, descriptor: int) -> None:
        self._name = one_line(name, 200)
        self._form = form_of(name)
        self._descriptor = descriptor
        self._is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._known: set[tuple[object, ...]] | None = None
        self._fault: str | None = None

    @classmethod
    @contextmanager
    def opened(cls, file: str) -> Iterator[Self]:
        """Open the file for a block. A last line that an interrupted run left incomplete is removed.

        Raises:
            InvalidInputError: It can't be opened.
            AgentJobsError: It can't be written.
        """
        try:
            descriptor = _opened(file)
        except OSError as error:
            defect = f"--out: {one_line(file, 200)} can't be opened: {error.strerror}"
        else:
            try:
                out = cls(file, descriptor)
                out._begin()
                yield out
            finally:
                os.close(descriptor)
            return
        raise InvalidInputError(defect)

    def write(self, document: Mapping[str, Any]) -> None:
        """Append one line.

        Raises:
            AgentJobsError: It can't be written; what was written of it is removed again.
        """
        self._append(self._form.line(document).encode())

    def write_once(self, document: Mapping[str, Any]) -> None:
        """Append one line, unless the file is known to have it, by `start` and since.

        Raises:
            AgentJobsError: As `write` does.
        """
        name = self._form.identity(self._form.line(document).encode())
        if self._known is None or name not in self._known:
            self.write(document)
        if self._known is not None and name is not None:
            self._known.add(name)

    async def start(self, journal: Journal) -> None:
        """Write the line of columns where a file has none, and learn which lines it has, for `write_once` and `fill`.

        Raises:
            AgentJobsError: As `write` does.
            JournalError: The journal, whose contexts have columns too, can't be read.
        """
        if self._form.names and not (self._is_regular and os.fstat(self._descriptor).st_size):
            self._form.names = list(dict.fromkeys(map(_heading, await columns_of(journal))))
            self._append(csv_line(self._form.names).encode())
        await self._read()

    async def _read(self) -> None:
        known: set[tuple[object, ...]] = set()
        self._known = known
        if not self._is_regular:
            return
        with suppress(OSError), open(os.dup(self._descriptor), "rb") as stream:  # noqa: ASYNC230, PTH123 - in pieces
            stream.seek(0)
            while lines := stream.readlines(_BLOCK_BYTES):
                known |= {name for name in map(self._form.identity, lines) if name is not None}
                await asyncio.sleep(0)

    async def fill(self, journal: Journal) -> None:
        """Append what the journal knows of ended items and the file does not have.

        Raises:
            AgentJobsError: As `write` does.
            JournalError: The journal can't be read.
        """
        if not self._is_regular:
            return
        for state in (state for state in State if not state.is_open):
            async for row in journal.rows(state):
                self.write_once(item_document(row_result(row)))

    @asynccontextmanager
    async def filled_at_a_fault(self, journal: Journal) -> AsyncIterator[None]:
        """Fill it when the block raises: results that were not taken are in the journal only."""
        try:
            yield
        except Exception:
            await self.fill_soon(journal)
            raise

    async def fill_soon(self, journal: Journal) -> None:
        """Fill it as far as that goes within 10 s; the next run writes the rest."""
        with suppress(AgentJobsError, TimeoutError):
            async with asyncio.timeout(_LAST_FILL_SECONDS):
                await self.fill(journal)

    def _append(self, line: bytes) -> None:
        if self._fault is None:
            before = os.fstat(self._descriptor).st_size
            try:
                _write_all(self._descriptor, line)
            except OSError as error:
                self._fault = f"--out: {self._name} can't be written: {os.strerror(error.errno or 0)}"
                self._cut(before, len(line))
        if self._fault is not None:
            raise AgentJobsError(f"{self._fault}; resume with the same --out writes what is missing")

    def _cut(self, size: int, at_most: int) -> None:
        """Remove a part of a line that was just written."""
        with suppress(OSError):
            if self._is_regular and size < os.fstat(self._descriptor).st_size < size + at_most:
                os.ftruncate(self._descriptor, size)

    def _begin(self) -> None:
        """Check that the file is ours, and mend its end."""
        if self._is_regular and not self._form.reads(self._first_line().replace(b"\r\n", b"\n")):
            raise InvalidInputError(f"--out: {self._name} has other columns: give a new file")
        self._mend()

    def _first_line(self) -> bytes:
        """Return the first line; nothing of a file that can't be read."""
        with suppress(OSError), open(os.dup(self._descriptor), "rb") as stream:  # noqa: PTH123 - it is open
            stream.seek(0)
            return stream.readline(_LONGEST_FIRST_LINE)
        return b""

    def _mend(self) -> None:
        """Remove a torn last line of our own; complete one that another program wrote."""
        if not self._is_regular:
            return
        with suppress(OSError), open(os.dup(self._descriptor), "rb") as stream:  # noqa: PTH123 - it is open
            last = _last_line(stream)
            if self._form.is_torn(last):
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - len(last))
                return
            if not last:
                return
        self._append(b"\n")


def _opened(file: str) -> int:
    how = os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(file, os.O_RDWR | how, 0o666)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.ENXIO, errno.EINVAL}:
            raise
    return os.open(file, os.O_WRONLY | how, 0o666)  # what may not be read, or can't be


def _write_all(descriptor: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _last_line(stream: BinaryIO) -> bytes:
    """Return what follows the last line end."""
    end = stream.seek(0, os.SEEK_END)
    tail = b""
    while end and b"\n" not in tail:
        start = max(end - _BLOCK_BYTES, 0)
        stream.seek(start)
        tail, end = stream.read(end - start) + tail, start
    return tail.rpartition(b"\n")[2]
