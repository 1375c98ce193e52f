"""The queries of a journal: they change no row."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

from agentjobs_async import ResponseError
from agentjobs_async.batch._store import retries, shared, statements, times
from agentjobs_async.batch._store.connections import Stamp
from agentjobs_async.batch._store.limits import identity, limits, limits_of
from agentjobs_async.batch._store.rows import JournalRow, legible, refusal_of, rows_of, text_or_none
from agentjobs_async.batch._store.schema import Moment
from agentjobs_async.batch._store.writer import Database
from agentjobs_async.batch.limits import FleetLimits
from agentjobs_async.batch.states import State
from agentjobs_async.batch.where import Where

_PAGE_ROWS: Final = 500  # few enough that the loop stands still for some milliseconds only
_PAGE_NUMBERS: Final = 5_000  # the same, of two cells each
_NEVER_IN_A_KEY: Final = re.compile("[\0\ud800-\udfff]")  # the databases refuse even the question


class Reader:
    """Reads the rows of a journal. Each call raises a `JournalError` when the journal can't be read.

    Args:
        database: The open database.
        clock: The wall clock, in seconds since the epoch: a number, or the database's own.
    """

    def __init__(self, database: Database, clock: Callable[[], Moment]) -> None:
        self._database = database
        self._clock = clock

    async def page(
        self,
        after: int,
        *,
        state: State | str | None = None,
        until: int | None = None,
        size: int = _PAGE_ROWS,
        projects: tuple[str | None, ...] | None = None,
        where: Where | None = None,
        newest: bool = False,
        max_tries: int | None = None,
    ) -> list[JournalRow]:
        """Return the next `size` rows above the number `after` and up to `until`; with `projects`, those of these.

        With `where`, they meet its conditions; with `newest`, they were not tried again; with `max_tries`, they have
        had fewer tries.
        """
        state = None if state is None else State(state)
        met = [] if where is None else statements.conditions(where, self._clock())
        met += [statements.newest_try()] if newest else []
        met += [retries.fewer_tries(max_tries)] if max_tries is not None else []
        statement = statements.page(after, size, state=state, until=until, projects=projects, where=met)
        return rows_of(await self._database.read(statement))

    async def get_many(self, keys: Sequence[str]) -> dict[str, JournalRow]:
        """Return the rows of some hundred keys, by key; keys that have none, or that none can have, are left out."""
        possible = [key for key in keys if not _NEVER_IN_A_KEY.search(str(key))]
        return {row.key: row for row in rows_of(await self._database.read(statements.get_many(possible)))}

    async def refusal(self, key: str) -> ResponseError | None:
        """Return the refusal with which the row of a key has ended; `None` where it has not ended so."""
        return refusal_of((await self._database.read(statements.refusal(key)))[0].refusal)

    async def stamp(self) -> Stamp:
        """Return what changes when anything is written."""
        return await self._database.backend.stamp(self._database.read)

    async def changed(self, since: float, after: int) -> list[tuple[int, float]]:
        """Return number and time of the next rows above the number `after` that have changed since.

        Both times are in seconds since the epoch. Earlier tries are among the rows. A row whose job was seen once more,
        or that was tried again, has the time that it had.
        """
        found = await self._database.read(statements.changed_since(since, after, _PAGE_NUMBERS))
        return legible(lambda: [(int(row.number), float(row.updated_at)) for row in found])

    async def numbered(self, numbers: Collection[int]) -> list[JournalRow]:
        """Return the rows of some hundred numbers, in their order; numbers without a row are left out."""
        met = [statements.has_number(numbers)]
        return rows_of(await self._database.read(statements.page(0, len(numbers), where=met)))

    async def unended(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Return those of the keys whose rows have not ended, in the order of the rows."""
        return tuple(key for (key,) in await self._database.read(statements.unended(keys)))

    async def counts(self) -> dict[State, int]:
        """Return how many items are in each state; one that was planned again counts by its newest row."""
        found = await self._database.read(statements.counts())
        counts = Counter(dict.fromkeys(State, 0))
        legible(lambda: [counts.update({State(state): number}) for state, number in map(tuple, found)])
        return dict(counts)

    async def planned_projects(self, until: int) -> list[tuple[str | None, int]]:
        """Return the projects of planned rows up to the number `until`, each with the number of its first such row."""
        found = await self._database.read(statements.planned_projects(until))
        return legible(lambda: [(text_or_none(row.project_id), row.first) for row in found])

    async def planned_counts(self) -> dict[str | None, int]:
        """Return the number of planned rows of each project; `None` stands for rows that name none."""
        found = await self._database.read(statements.planned_counts())
        return legible(lambda: {text_or_none(project): number for project, number in map(tuple, found)})

    async def last_number(self) -> int:
        """Return the number of the last row; 0 without any."""
        return (await self._database.read(statements.last_number()))[0][0] or 0

    async def unfollowed(self, patience: float, after: int, most: int) -> list[tuple[int, str]]:
        """Return number and key of up to `most` items beyond the number `after` that no living owner waits for.

        Their owner has had no heartbeat for `patience` seconds, and they are active, or planned again after a claim.
        """
        found = await self._database.read(shared.unfollowed(self._clock(), patience, after, most))
        return [(row.number, row.key) for row in found]

    async def identity(self) -> str:
        """Return the journal's identity, which no other journal has; a move takes it along."""
        return str((await self._database.read(identity()))[0][0])

    async def limits(self) -> FleetLimits:
        """Return the limits of all owners of the journal."""
        found = await self._database.read(limits())
        return legible(lambda: limits_of(*found))

    async def sent_ages(self, seconds: float, most: int) -> list[tuple[str | None, float]]:
        """Return the project and the age in seconds of the last `most` creates of each project, newest first.

        Left out are those older than `seconds`, and those whose time lies ahead: the clock was wrong.
        """
        found = await self._database.read(times.sent_ages(self._clock(), seconds, most))
        return legible(lambda: [(text_or_none(row.project_id), max(row.age, 0.0)) for row in found])

    async def unknown_ages(self, seconds: float, most: int) -> list[tuple[str | None, float]]:
        """Return the project and the age in seconds of the last `most` rows of each project that became unknown.

        The newest come first, and none is older than `seconds`.
        """
        found = await self._database.read(times.unknown_ages(self._clock(), seconds, most))
        return legible(lambda: [(text_or_none(row.project_id), max(row.age, 0.0)) for row in found])

    async def recent_ends(self, seconds: float) -> tuple[int, float]:
        """Return how many items ended within `seconds`, and how many seconds ago the first of these did; else 0."""
        found = (await self._database.read(times.recent_ends(self._clock(), seconds)))[0]
        return found.ended, max(found.age or 0.0, 0.0)

    async def owners(self) -> list[tuple[str, float]]:
        """Return the owners of a shared journal that have not left, and the seconds since their last heartbeats."""
        return [(row.owner, max(row.age, 0.0)) for row in await self._database.read(shared.owners(self._clock()))]

    async def active_counts(self) -> dict[str, int]:
        """Return the number of active items of each owner."""
        return dict(map(tuple, await self._database.read(shared.active_counts())))

    async def durations(self, most: int) -> list[tuple[str | None, float, int, bool]]:
        """Return project, seconds, polls and whether it has ended of the last `most` jobs, as `times.durations`."""
        found = map(tuple, await self._database.read(times.durations(most)))
        return legible(lambda: [(text_or_none(name), float(s), int(polls), bool(end)) for name, s, polls, end in found])

    async def active_ages(self, seconds: float, most: int) -> list[tuple[str | None, float]]:
        """Return project and age in seconds of up to `most` active jobs that were seen in the last `seconds`."""
        found = await self._database.read(times.active_ages(self._clock(), seconds, most))
        return legible(lambda: [(text_or_none(row.project_id), max(float(row.age), 0.0)) for row in found])

    async def active_silence(self) -> float | None:
        """Return the seconds since an active job was seen last, or its row changed; `None` where no job is active."""
        found = await self._database.read(times.active_silence(self._clock()))
        return legible(lambda: None if found[0].age is None else max(float(found[0].age), 0.0))

    async def paused_for(self) -> dict[str | None, float]:
        """Return for each paused project the seconds for which the server still wants no create of it."""
        found = await self._database.read(times.paused_for(self._clock()))
        return legible(lambda: {text_or_none(row.project) or None: float(row.left) for row in found})

    async def pauses(self) -> tuple[int, float]:
        """Return how often the server asked for no create of a project, and for how many seconds in all."""
        found = await self._database.read(times.pauses())
        return legible(lambda: (int(found[0].times), float(found[0].seconds)))
