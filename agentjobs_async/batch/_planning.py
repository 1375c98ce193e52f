"""Planning: items become rows of the journal page by page, and some are refused."""

from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Final
from uuid import uuid4

from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.items import BatchItem, Refusals, check_items

_PAGE_ITEMS: Final = 500  # few enough that the loop stands still for some milliseconds only


@frozen
class Plan:
    """What became of a page of items.

    Attributes:
        rows: The rows of the items that were not refused, in the order of the items, whatever their states.
        refused: The other items, each with the reason.
    """

    rows: list[JournalRow]
    refused: Refusals


class Planner:
    """Plans the items of one source, page by page, so that they may come lazily and be endless.

    An item whose key has a row already gets that row, which stays as it is. An item is refused when it can't be sent,
    when its key is that of another item in the journal, or when the same source has given its key before. The rows
    themselves have the mark of this source, so that the keys need no memory.

    Args:
        entries: The journal's rows.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._source = uuid4().hex
        self._pages = count()

    async def plan(self, items: Iterable[BatchItem]) -> Plan:
        """Plan some hundred items in one transaction.

        Raises:
            JournalError: The journal can't be written. None of the items is planned.
        """
        good, refused = check_items(items)
        rows: list[JournalRow] = []
        while good:
            page, good = _apart(good)
            found = await self._entries.plan(list(page.values()), self._source, next(self._pages))
            rows += (found[key] for key in page if key in found)
            refused += await self._refused([item for key, item in page.items() if key not in found])
        return Plan(rows, refused)

    async def plan_all(self, items: Iterable[BatchItem]) -> Refusals:
        """Plan any number of items, and return those that are refused."""
        refused: Refusals = []
        for page in _pages(items):
            refused += (await self.plan(page)).refused
        return refused

    async def _refused(self, items: Sequence[BatchItem]) -> Refusals:
        known = await self._entries.get_many([item.key for item in items]) if items else {}
        return [(item, _difference(item, known[item.key]) or _repeated(item)) for item in items]


async def check(entries: Entries, items: Iterable[BatchItem]) -> Refusals:
    """Return the items that a `Planner` would refuse, without planning any. This remembers all keys."""
    refused: Refusals = []
    met: set[str] = set()
    for page in _pages(items):
        good, bad = check_items(page)
        refused += bad
        known = await entries.get_many([item.key for item in good])
        for item in good:
            error = _difference(item, known[item.key]) if item.key in known else None
            if error is None and item.key in met:
                error = _repeated(item)
            if error is None:
                met.add(item.key)
            else:
                refused.append((item, error))
    return refused


def _pages(items: Iterable[BatchItem]) -> Iterable[list[BatchItem]]:
    remaining = iter(items)
    return iter(lambda: list(islice(remaining, _PAGE_ITEMS)), [])


def _apart(items: Iterable[BatchItem]) -> tuple[dict[str, BatchItem], list[BatchItem]]:
    """Return the first item of each key, and the others: no statement may touch one row twice."""
    first: dict[str, BatchItem] = {}
    others: list[BatchItem] = []
    for item in items:
        if item.key in first:
            others.append(item)
        else:
            first[item.key] = item
    return first, others


def _difference(item: BatchItem, row: JournalRow) -> InvalidInputError | None:
    """Return the refusal of an item whose key is that of another one. `Entries.plan` goes by the same rule."""
    what = "prompt" if item.prompt != row.prompt else "project"
    same = item.prompt == row.prompt and (item.project_id in {None, row.project_id} or row.project_id is None)
    if same:
        return None
    advice = "use another key or another journal"
    return InvalidInputError(f"the key {item.key!r:.200} is that of another {what} in the journal: {advice}")


def _repeated(item: BatchItem) -> InvalidInputError:
    return InvalidInputError(f"the key {item.key!r:.200} came before in this run")
