"""How a database looks for the rows of a journal, as it explains that itself."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import Executable
from sqlalchemy.sql import ClauseElement

from agentjobs_async.batch import Journal
from tests.batch.stage import connected

BY_KEY = r"(INDEX sqlite_autoindex_agentjobs_items_1|agentjobs_items_key_key)\b"
BY_NUMBER = r"(rowid=\?|number = (ANY|\d))"


async def plans_of(journal: Journal, call: Callable[[], Awaitable[object]]) -> list[str]:
    """Call something, and return the plan of each of its reads that has a condition."""
    database, reads = journal.store._database, list[ClauseElement]()
    read = database.read

    async def noted(statement: Executable) -> Any:
        assert isinstance(statement, ClauseElement)
        reads.append(statement)
        return await read(statement)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "read", noted)
        await call()
    return [await _plan_of(journal, statement) for statement in reads if "WHERE" in str(statement)]


async def _plan_of(journal: Journal, statement: ClauseElement) -> str:
    how = "EXPLAIN" if journal.is_shared else "EXPLAIN QUERY PLAN"
    async with connected(journal) as connection:
        compiled = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
        found = await connection.exec_driver_sql(f"{how} {str(compiled).replace('%', '%%')}")
        return "\n".join(str(line) for line in found.fetchall())


async def analyse(journal: Journal) -> None:
    """Bring the statistics of PostgreSQL up to date; SQLite has none."""
    if journal.is_shared:
        async with connected(journal) as connection:
            await connection.exec_driver_sql("ANALYZE")
            await connection.commit()


def without(index: str, plans: list[str]) -> list[str]:
    """Return the plans that do not use an index."""
    return [plan for plan in plans if re.search(index, plan) is None]
