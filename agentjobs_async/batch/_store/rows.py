"""The rows of a journal as callers see them, read strictly: a cell that the journal can't have written is an error."""

import json
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import NoneType
from typing import Any, Final, TypeVar

from attrs import field, fields, frozen

from agentjobs_async import AgentJob, JobRef, JournalError, ResponseError
from agentjobs_async.batch.items import BatchItem, Outcome
from agentjobs_async.batch.states import WITHOUT_ERROR, State

T = TypeVar("T")

LONGEST_ERROR_BYTES: Final = 2_000
"""The length of an error in a row: enough for its reason, and 100,000 rows may have one."""
_TEXTS: Final = frozenset({str, NoneType})
_REFUSALS: Final = {kind.__name__: kind for kind in ResponseError.__subclasses__()}


@frozen
class JournalRow:
    """What a journal knows of one item as it stands, or of an earlier try of it.

    Attributes:
        job_id: The job's id; `None` before it is known, and always in the state `unknown`.
        pr_link: The link of the ended job's pull request, as the server gave it; `None` without one.
        error: Why the state is what it is, or what ended the last wait; `None` where nothing went wrong, and where the
            job itself ended, however it did: `why` has words for that, too.
        updated_at: When the row was changed last, in UTC.
        number: Its position in the journal, from 1.
        planned_at: When the item was planned, in UTC, by the journal's clock, as all times. A time is `None` where it
            has not come yet.
        sent_at: When its create was about to be sent; `None` again where it is proven that nothing was sent.
        created_at: When the job's id was recorded.
        seen_at: When the server last showed the job, by its create or a poll; to a minute while it is active.
        ended_at: When the item was recorded as completed, failed, archived, rejected or abandoned.
        polls: How often the job was polled, by all runs; to a minute while it is active.
        tries: Which try this is: 1, and one more each time that the item was planned again by `Journal.retry` or
            `Journal.resolve`.
        context: The context of the item; `None` without one.
        extra: The extra of the item: more fields of its create's JSON object; `None` without one.
        traceparent: The W3C trace context of the span that created the job; `None` without a hook that makes spans.
    """

    key: str
    prompt: str = field(repr=False)
    project_id: str
    state: State = field(converter=State)
    job_id: str | None
    pr_link: str | None
    error: str | None
    updated_at: datetime
    number: int
    planned_at: datetime | None = None
    sent_at: datetime | None = None
    created_at: datetime | None = None
    seen_at: datetime | None = None
    ended_at: datetime | None = None
    polls: int = 0
    tries: int = 1
    context: dict[str, Any] | None = field(default=None, repr=False, hash=False)
    extra: dict[str, Any] | None = field(default=None, repr=False, hash=False)
    traceparent: str | None = field(default=None, repr=False)

    @property
    def why(self) -> str | None:
        """Why the item has no result of an agent: its error, or how its job ended, such as `the agent failed`.

        `None` where it has a result, or may get one and nothing went wrong.
        """
        return self.error or WITHOUT_ERROR.get(self.state)

    @property
    def item(self) -> BatchItem:
        """The item as it was planned."""
        return BatchItem(self.key, self.prompt, self.project_id, self.context, self.extra)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON object: its attributes by their names, times in ISO 8601, as `error` its `why`."""
        names = (column.name for column in fields(JournalRow))
        return {name: _plain(getattr(self, name)) for name in names} | {"error": self.why}


@frozen
class BatchResult:
    """How one item ended in this run.

    Attributes:
        item: The item.
        outcome: How it ended.
        job: The job that ended, or as it was seen last; `None` when none was seen.
        error: Why the item has no result of an agent; `None` when its job has completed or was archived. Of a job that
            failed it is a `JobFailedError`, while the `error` of its row stays `None`: that says why there is no ended
            job. A `failed` item whose job is gone has the `NotFoundError` in both.
        ref: The job, also where it was not seen; `None` when no id is known.
        row: The item's row when its end was recorded; `None` for an invalid item, which has no row of its own.
    """

    item: BatchItem
    outcome: Outcome
    job: AgentJob | None = None
    error: Exception | None = None
    ref: JobRef | None = None
    row: JournalRow | None = field(default=None, repr=False, eq=False)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


class Rows(AsyncIterator[JournalRow]):
    """Rows in the order of their numbers: `async for` reads them page by page, `await` returns a list of them all."""

    def __init__(self, pages: Callable[[], AsyncIterator[list[JournalRow]]]) -> None:
        self._pages = pages
        self._rows = self._each()

    async def __anext__(self) -> JournalRow:
        return await anext(self._rows)

    def __await__(self) -> Generator[Any, None, list[JournalRow]]:
        return self._listed().__await__()

    async def pages(self) -> AsyncIterator[list[JournalRow]]:
        """Yield the rows in lists of some hundred, as they are read: the quickest way through very many."""
        async for page in self._pages():
            yield page

    async def _each(self) -> AsyncIterator[JournalRow]:
        async for page in self.pages():
            for row in page:
                yield row

    async def _listed(self) -> list[JournalRow]:
        return [row async for row in self._rows]


def rows_of(found: Sequence[Any]) -> list[JournalRow]:
    """Return rows of the database, with the columns `SHOWN`, as those of the journal."""
    return legible(lambda: list(map(_row_of, found)))


def row_of(found: Any) -> JournalRow:
    """Return a row of the database, with the columns `SHOWN`, as one of the journal."""
    return legible(lambda: _row_of(found))


def _row_of(found: Any) -> JournalRow:
    texts, numbers = (*found[:7], found[18]), found[14:16]
    # Compared as sets, which is much quicker than looking at each: very many rows are read at once.
    if not (_TEXTS.issuperset(map(type, texts)) and all(type(number) is int for number in numbers)):
        raise TypeError
    times = [None if cell is None else datetime.fromtimestamp(cell, UTC) for cell in (found[7], *found[9:14])]
    objects = map(_object_or_none, found[16:18])
    cells: list[Any] = [*found[:7], times[0], found[8], *times[1:], *numbers, *objects, found[18]]
    return JournalRow(*cells)


def refusal_text(error: Exception, mask: Callable[[str], str]) -> str | None:
    """Return the type and the fields of a refusal as JSON, each text masked; `None` for any other error."""
    if not isinstance(error, ResponseError):
        return None
    request_id = None if error.request_id is None else mask(error.request_id)
    return json.dumps([type(error).__name__, error.status, request_id, error.retry_after, mask(error.excerpt)])


def refusal_of(text: Any) -> ResponseError | None:
    """Return the refusal that a cell from `refusal_text` holds; `None` for an empty one."""
    if text is None:
        return None
    return legible(lambda: _refusal(*json.loads(text)))


def _refusal(kind: str, *values: Any) -> ResponseError:
    return _REFUSALS[kind](*values)


def _object_or_none(cell: Any) -> dict[str, Any] | None:
    found = None if cell is None else json.loads(cell)
    if found is None or isinstance(found, dict):
        return found
    raise TypeError


def text_of(cell: object) -> str:
    """Return a cell's text.

    Raises:
        TypeError: It holds something else, as SQLite allows.
    """
    if isinstance(cell, str):
        return cell
    raise TypeError


def text_or_none(cell: object) -> str | None:
    """Return a cell's text, as `text_of` does; `None` for an empty one."""
    return None if cell is None else text_of(cell)


def legible(read: Callable[[], T]) -> T:
    """Return what `read` makes of cells. Its own errors would quote them, and with them a prompt.

    Raises:
        JournalError: `read` could not make anything of them (`corrupt`).
    """
    with suppress(ValueError, TypeError, KeyError, OverflowError, OSError, RecursionError):
        return read()
    raise JournalError("the journal is broken: it holds what it can't have written", "corrupt")
