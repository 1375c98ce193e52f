"""The rows of a journal as callers see them, read strictly: a cell that the journal can't have written is an error."""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from attrs import field, frozen

from agentjobs_async import JournalError
from agentjobs_async.batch.items import BatchItem
from agentjobs_async.batch.states import State

__all__ = ["JournalRow", "Rows", "legible", "row_of", "text_or_none"]

T = TypeVar("T")


@frozen
class JournalRow:
    """What a journal knows of one item.

    Attributes:
        project_id: `None` while no job is created, for an item of the session's own project.
        job_id: The job's id; `None` before it is known, and always in the state `unknown`.
        error: Why the state is what it is, or what ended the last wait; `None` where nothing went wrong.
        updated_at: When the row was changed last, in UTC.
        number: Its place in the journal, from 1.
    """

    key: str
    prompt: str = field(repr=False)
    project_id: str | None
    state: State = field(converter=State)
    job_id: str | None
    pr_link: str | None
    error: str | None
    updated_at: datetime
    number: int

    @property
    def item(self) -> BatchItem:
        """The item as it was planned."""
        return BatchItem(self.key, self.prompt, self.project_id)


class Rows(AsyncIterator[JournalRow]):
    """Rows in the order of their numbers: `async for` reads them page by page, `await` returns a list of them all."""

    def __init__(self, page: Callable[[int], Awaitable[list[JournalRow]]]) -> None:
        self._rows = _paged(page)

    async def __anext__(self) -> JournalRow:
        return await anext(self._rows)

    def __await__(self) -> Generator[Any, None, list[JournalRow]]:
        return self._listed().__await__()

    async def _listed(self) -> list[JournalRow]:
        return [row async for row in self._rows]


async def _paged(page: Callable[[int], Awaitable[list[JournalRow]]]) -> AsyncIterator[JournalRow]:
    after = 0
    while found := await page(after):
        for row in found:
            yield row
        after = found[-1].number


def row_of(found: Any) -> JournalRow:
    """Return a row of the database as one of the journal."""
    return legible(lambda: _row_of(found))


def _row_of(found: Any) -> JournalRow:
    texts = (found.key, found.prompt, found.project_id, found.state, found.job_id, found.pr_link, found.error)
    if not all(text is None or isinstance(text, str) for text in texts):
        raise TypeError
    return JournalRow(*texts, datetime.fromtimestamp(found.updated_at, UTC), found.number)


def text_or_none(cell: object) -> str | None:
    """Return a cell's text.

    Raises:
        TypeError: It holds something else, as SQLite allows.
    """
    if cell is None or isinstance(cell, str):
        return cell
    raise TypeError


def legible(read: Callable[[], T]) -> T:
    """Return what `read` makes of cells. Its own errors would quote them, and with them a prompt.

    Raises:
        JournalError: `read` could not make anything of them (`corrupt`).
    """
    with suppress(ValueError, TypeError, OverflowError, OSError):
        return read()
    raise JournalError("the journal is broken: it holds what it can't have written", "corrupt")
