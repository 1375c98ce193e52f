"""Retries: ended items that are planned once more, each as a row of its own."""

from attrs import evolve

from agentjobs_async import InvalidInputError
from agentjobs_async.batch._planning import Planner
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._store.rows import JournalRow
from agentjobs_async.batch.states import RETRIED
from agentjobs_async.batch.where import Where

__all__ = ["retry_row", "retry_rows"]


async def retry_row(entries: Entries, row: JournalRow) -> str:
    """Plan the item of a row once more, and return the key of its new row.

    Raises:
        InvalidInputError: It has not ended in a way that may be tried again, or was tried again before.
    """
    if row.state not in RETRIED:
        raise InvalidInputError(f"{row.key} is {row.state}: only what failed, was archived or rejected is tried again")
    key = _next_key(row.key)
    if key in await entries.get_many([key]):
        raise InvalidInputError(f"{row.key} was tried again before, as {key}")
    await _plan_again(entries, [row])
    return key


async def retry_rows(entries: Entries, where: Where) -> tuple[str, ...]:
    """Plan the items of all rows once more that meet `where` and were not tried again before; return their new keys.

    Raises:
        InvalidInputError: `where` names a state of which nothing is tried again.
    """
    states = RETRIED if where.states is None else frozenset(where.states)
    if foreign := sorted(states - RETRIED):
        raise InvalidInputError(f"states has {foreign[0]}: only what failed, was archived or rejected is tried again")
    where = evolve(where, states=states)
    keys: list[str] = []
    after, until = 0, await entries.last_number()
    while found := await entries.page(after, until=until, where=where, newest=True):
        keys += await _plan_again(entries, found)
        after = found[-1].number
    return tuple(keys)


async def _plan_again(entries: Entries, rows: list[JournalRow]) -> list[str]:
    """Plan rows again; return the keys of those whose key is free, or was taken by the same item meanwhile."""
    tries = {_next_key(row.key): row.tries + 1 for row in rows}
    plan = await Planner(entries, tries).plan([evolve(row.item, key=_next_key(row.key)) for row in rows])
    return [row.key for row in plan.rows]


def _next_key(key: str) -> str:
    """Return the key of the next try: `key#2`, or the number at its end raised by one. SQL does the same."""
    name, separator, number = key.rpartition("#")
    return f"{name}#{int(number) + 1}" if separator and number.isdecimal() else f"{key}#2"
