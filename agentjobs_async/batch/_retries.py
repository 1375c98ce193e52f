"""Retries: ended items that are planned once more, each as a row of its own."""

from collections.abc import Sequence

from attrs import evolve

from agentjobs_async import InvalidInputError
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.states import RETRIED, RETRIED_BY_KEY, State
from agentjobs_async.batch.where import Where


async def retry_row(entries: Entries, key: str, row: JournalRow) -> str:
    """Plan an item once more, and return the key of its new row.

    Args:
        entries: The journal's rows.
        key: The key of one of its tries.
        row: Its newest try.

    Raises:
        InvalidInputError: It has not ended in a way that may be tried again, or was tried again before.
    """
    if row.state not in RETRIED_BY_KEY:
        if row.key != key:
            raise InvalidInputError(f"{key} was tried again before, as {row.key}, which is {row.state}")
        raise InvalidInputError(
            f"{row.key} is {row.state}: only what failed, was archived, rejected or abandoned is tried again"
        )
    if planned := await entries.retry(await _free_keys(entries, [row])):
        return planned[0]
    raise InvalidInputError(f"{row.key} was tried again meanwhile")


def retried(where: Where) -> Where:
    """Return `where`; if it names no states, with those that are tried again without a key.

    Raises:
        InvalidInputError: It names another state.
    """
    states = RETRIED if where.states is None else frozenset(where.states)
    if foreign := sorted(states - RETRIED):
        by_key = "; what was abandoned is tried again by its key" if State.ABANDONED in foreign else ""
        raise InvalidInputError(
            f"states has {foreign[0]}: only what failed, was archived or rejected is tried again{by_key}"
        )
    return evolve(where, states=states)


async def retry_rows(entries: Entries, where: Where, max_tries: int | None) -> tuple[str, ...]:
    """Plan all items once more that meet `where`, and have had fewer than `max_tries` tries; return their new keys.

    Raises:
        InvalidInputError: `where` names a state that is not tried again.
    """
    where = retried(where)
    keys: list[str] = []
    after, until = 0, await entries.last_number()
    while found := await entries.page(after, until=until, where=where, newest=True, max_tries=max_tries):
        keys += await retry_found(entries, found)
        after = found[-1].number
    return tuple(keys)


async def retry_found(entries: Entries, rows: Sequence[JournalRow]) -> list[str]:
    """Plan some hundred rows once more, and return the keys of their new rows; those that may not be are left out."""
    return await entries.retry(await _free_keys(entries, rows)) if rows else []


async def _free_keys(entries: Entries, rows: Sequence[JournalRow]) -> dict[str, str]:
    """Return a new key for each row that no row has: of items `page#1` and `page#2`, the first may be tried again."""
    keys: dict[str, str] = {}
    open_keys = {row.key: next_key(row.key) for row in rows}
    while open_keys:
        taken = {*await entries.get_many(list(open_keys.values())), *keys.values()}
        for key, new in list(open_keys.items()):
            if new in taken:
                open_keys[key] = next_key(new)
            else:
                keys[key] = open_keys.pop(key)
                taken.add(new)
    return keys


def next_key(key: str) -> str:
    """Return the key of the next try: `key#2`, or the number at its end raised by one."""
    name, separator, number = key.rpartition("#")
    return f"{name}#{int(number) + 1}" if separator and number.isdecimal() else f"{key}#2"
