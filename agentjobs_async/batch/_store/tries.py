"""The earlier tries of rows, and with which refusal a try has ended."""

from typing import Final

from sqlalchemy import select

from agentjobs_async import ResponseError
from agentjobs_async.batch._database.schema import ITEMS, TRIES
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.rows import JournalRow, refusal_of, rows_of
from agentjobs_async.batch._store.statements import EARLIER
from agentjobs_async.batch._store.store import Store

_ROW: Final = ITEMS.c
_TRY: Final = TRIES.c


async def with_earlier_tries(store: Store, query: Query) -> list[JournalRow]:
    """Return rows, in the order of their numbers, each after its earlier tries as they were then."""
    rows = await store.select(query)
    # A create that was answered after a person had settled its row has a try of its own beside the first one, too.
    earlier = rows_of(
        await store.read(EARLIER.where(_ROW.number.in_([row.number for row in rows])).order_by(_TRY.number))
    )
    return sorted([*earlier, *rows], key=lambda row: row.number)  # stable: the row itself comes last


async def refusal(store: Store, row: JournalRow) -> ResponseError | None:
    """Return the refusal with which a row, or an earlier try of it, has ended; `None` where it has not ended so."""
    own = select(_ROW.refusal).where(_ROW.number == row.number, _ROW.tries == row.tries)
    earlier = select(_TRY.refusal).where(_TRY.item == row.number, _TRY.try_number == row.tries)
    found = await store.read(own.union_all(earlier))
    return refusal_of(found[0].refusal) if found else None
