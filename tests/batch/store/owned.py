"""Owners of a journal whose moves tests make by hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import frozen
from sqlalchemy import Row, select

from agentjobs_async import AgentJobsError, JobRef
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.batch._database.schema import ITEMS, TRIES
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.owners import Owner
from agentjobs_async.batch._store.store import Store
from tests.batch.stage import FakeSession
from tests.polled import REF

ME = "me"
"""The owner that a test is where it makes moves by hand."""
WHY = AgentJobsError("because")


@frozen(eq=False)
class Process:
    """A process with a run that does nothing by itself.

    Attributes:
        journal: Its journal.
        owner: The run.
        session: What polls for it.
    """

    journal: Journal
    owner: Owner
    session: FakeSession

    @property
    def store(self) -> Store:
        """The rows."""
        return self.journal.store

    @property
    def records(self) -> Records:
        """What records the moves of the run."""
        return records_of(self.journal, self.owner.name)

    async def claimed(self, key: str) -> str:
        """Claim a row, and return the claim."""
        return await claimed(self.journal, key, self.owner.name)


@asynccontextmanager
async def joined(journal: Journal) -> AsyncIterator[Process]:
    """Let a run join an open journal, and leave it."""
    session = FakeSession()
    owner = await journal._opened.join(session.session)
    try:
        yield Process(journal, owner, session)
    finally:
        await journal._opened.leave(owner, has_left=True)


def records_of(journal: Journal, owner: str = ME) -> Records:
    """Return what records the moves of an owner, without a mask."""
    return Records(journal.store, owner, str)


async def claimed(journal: Journal, key: str, owner: str = ME) -> str:
    """Claim a row, and return the claim."""
    claim = await journal.store.claim(key, owner)
    assert isinstance(claim, str)
    return claim


async def created(journal: Journal, key: str, ref: JobRef = REF, owner: str = ME) -> str:
    """Claim a row, record its job, and return the claim."""
    claim = await claimed(journal, key, owner)
    assert await records_of(journal, owner).created(key, claim, ref, None)
    return claim


async def lost(journal: Journal, key: str, owner: str = ME) -> str:
    """Claim a row, record that its create may have started an agent, and return the claim."""
    claim = await claimed(journal, key, owner)
    assert await records_of(journal, owner).unknown(key, claim, WHY)
    return claim


async def cells_of(journal: Journal, key: str) -> Row[tuple[object, ...]]:
    """Return all columns of a row."""
    (cells,) = await journal.store.read(select(ITEMS).where(ITEMS.c.key == key))
    return cells


async def tries_of(journal: Journal, key: str) -> list[Row[tuple[object, ...]]]:
    """Return all columns of the earlier tries of a row, in the order in which they were recorded."""
    number = select(ITEMS.c.number).where(ITEMS.c.key == key).scalar_subquery()
    return list(await journal.store.read(select(TRIES).where(TRIES.c.item == number).order_by(TRIES.c.number)))


async def row_of(journal: Journal, key: str = "k0") -> JournalRow:
    """Return the row of a key."""
    return (await journal.store.rows_of([key]))[key]
