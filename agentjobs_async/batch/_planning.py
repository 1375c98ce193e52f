"""Planning: items become rows of the journal page by page, but for invalid ones; ended ones are planned once more."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final
from uuid import uuid4

from attrs import evolve, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._extra import extra_text
from agentjobs_async._validation import checked_instance
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.batch._store.measures import last_number
from agentjobs_async.batch._store.queries import Query, as_found
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch._store.store import NOBODY, Store
from agentjobs_async.batch.items import BatchItem, InvalidItems, check_items
from agentjobs_async.batch.states import RETRIED, RETRIED_BY_KEY, RETRY, State
from agentjobs_async.batch.where import Where

_PAGE_ITEMS: Final = 500  # few enough that the loop stands still for some milliseconds only


@frozen
class Plan:
    """What became of a page of items.

    Attributes:
        planned: The valid items, each with its row, whatever its state.
        invalid: The other items, each with the reason.
    """

    planned: list[tuple[BatchItem, JournalRow]]
    invalid: InvalidItems


class Planner:
    """Plans the items of one source, page by page, so that they may come lazily and be endless.

    An item whose key has a row already gets that row, which stays as it is. An item is invalid when it can't be sent or
    has no project, when its key is that of another item in the journal, or when the same source has given its key
    before. The rows themselves name their page and source, so that the keys need no memory.

    Args:
        store: The journal's rows.
        project_id: The project of items that name none; `None` refuses these.
    """

    def __init__(self, store: Store, project_id: str | None) -> None:
        self._store = store
        self._project_id = project_id
        self._source = uuid4().hex
        self._pages = count()

    async def plan(self, items: Iterable[BatchItem]) -> Plan:
        """Plan some hundred items in one transaction.

        Raises:
            JournalError: The journal can't be written. None of the items is planned.
        """
        good, invalid = _sendable(self._store, items, self._project_id)
        planned: list[tuple[BatchItem, JournalRow]] = []
        while good:
            page, good = _apart(good)
            page_id = f"{self._source}.{next(self._pages)}"
            found = await self._store.plan(list(page.values()), page_id, self._project_id)
            planned += ((item, found[key]) for key, item in page.items() if key in found)
            invalid += await self._invalid([item for key, item in page.items() if key not in found])
        return Plan(planned, invalid)

    async def plan_all(self, items: Iterable[BatchItem]) -> InvalidItems:
        """Plan any number of items, and return those that are invalid."""
        invalid: InvalidItems = []
        for page in pages_of(items, _PAGE_ITEMS):
            invalid += (await self.plan(page)).invalid
        return invalid

    async def _invalid(self, items: Sequence[BatchItem]) -> InvalidItems:
        known = await self._store.rows_of([item.key for item in items]) if items else {}
        return [(item, _difference(item, known[item.key], self._project_id) or _repeated(item)) for item in items]


async def check(store: Store, items: Iterable[BatchItem], project_id: str | None) -> InvalidItems:
    """Return the items that a `Planner` would find invalid, without planning any. This remembers all keys."""
    invalid: InvalidItems = []
    met: dict[str, int] = {}  # what each key stands for, as a hash: prompts may be long
    for page in pages_of(items, _PAGE_ITEMS):
        good, bad = _sendable(store, page, project_id)
        invalid += bad
        known = await store.rows_of([item.key for item in good])
        for item in good:
            error = _difference(item, known[item.key], project_id) if item.key in known else None
            if error is None and item.key in met:
                error = _repeated(item, is_same=met[item.key] == _hash_of(item, project_id))
            if error is None:
                met[item.key] = _hash_of(item, project_id)
            else:
                invalid.append((item, error))
    return invalid


def _sendable(store: Store, items: Iterable[BatchItem], project_id: str | None) -> tuple[list[BatchItem], InvalidItems]:
    """Return the items that can be planned, and those that can't be sent, have no project, or can't be stored."""
    checked, invalid = check_items(items)
    good: list[BatchItem] = []
    for item in checked:
        try:
            _check_project(item, project_id)
            store.check_text("prompt", item.prompt)
        except InvalidInputError as error:
            invalid.append((item, error))
        else:
            good.append(item)
    return good, invalid


def _check_project(item: BatchItem, project_id: str | None) -> None:
    if item.project_id is None and project_id is None:
        raise InvalidInputError("project_id is missing: give the item one, or a default")


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


def _difference(item: BatchItem, row: JournalRow, project_id: str | None) -> InvalidInputError | None:
    """Return the error of an item whose key is that of another one. `Store.plan` goes by the same rule."""
    same = {
        "prompt": item.prompt == row.prompt,
        "project": (item.project_id or project_id) == row.project_id,
        "extra": extra_text(item.extra) == extra_text(row.extra),
    }
    what = next((name for name, is_same in same.items() if not is_same), None)
    if what is None:
        return None
    advice = "use another key or another journal"
    words = f"the key {item.key!r:.200} is that of another {what} in the journal: {advice}"
    return InvalidInputError(words, reason="key_taken")


def _hash_of(item: BatchItem, project_id: str | None) -> int:
    """Return a hash of what `_difference` compares."""
    return hash((item.prompt, item.project_id or project_id, extra_text(item.extra)))


def _repeated(item: BatchItem, *, is_same: bool = True) -> InvalidInputError:
    """Return the error of an item whose key came before; `is_same` says whether it stood for the same."""
    if is_same:
        return InvalidInputError(f"the key {item.key!r:.200} came before in this run")
    words = f"the key {item.key!r:.200} came before with another prompt, project or extra: use another key"
    return InvalidInputError(words, reason="key_taken")


async def retry_row(store: Store, row: JournalRow) -> None:
    """Plan an item once more.

    Raises:
        InvalidInputError: It has not ended in a way that may be tried again, or was tried again meanwhile.
    """
    if row.state not in RETRIED_BY_KEY:
        raise InvalidInputError(
            f"{row.key} is {row.state}: only what failed, was archived, rejected or abandoned is tried again",
            reason="wrong_state",
        )
    if not await retry_found(store, [row]):
        raise InvalidInputError(f"{row.key} has changed meanwhile", reason="wrong_state")


def _retried(where: Where) -> Where:
    """Return `where`; if it names no states, with those that are tried again without a key.

    Raises:
        InvalidInputError: It is no `Where`, or names another state.
    """
    checked_instance("where", where, Where)
    states = RETRIED if where.states is None else frozenset(where.states)
    if foreign := sorted(states - RETRIED):
        by_key = "; what was abandoned is tried again by its key" if State.ABANDONED in foreign else ""
        raise InvalidInputError(
            f"states has {foreign[0]}: only what failed, was archived or rejected is tried again{by_key}"
        )
    return evolve(where, states=states)


async def retry_rows(store: Store, where: Where, max_tries: int | None) -> tuple[str, ...]:
    """Plan all items once more that meet `where`, and have had fewer than `max_tries` tries; return their keys.

    Raises:
        InvalidInputError: `where` names a state that is not tried again.
    """
    query = Query(where=_retried(where), until=await last_number(store), fewer_tries=max_tries)
    keys: list[str] = []
    async for found in store.pages(query):
        keys += await retry_found(store, found)
    return tuple(keys)


async def retry_found(store: Store, rows: Sequence[JournalRow]) -> list[str]:
    """Plan some hundred rows once more, and return their keys; those that have changed since are left out."""
    if not rows:
        return []
    return [moved.key for moved in await store.move_all(RETRY, *as_found(rows), mover=NOBODY)]
