"""For how long the service wants no creates of a project, also for a run after a restart."""

from typing import Final

from sqlalchemy import and_, case, select

from agentjobs_async.batch._database.schema import PAUSES, SKEW_SECONDS
from agentjobs_async.batch._store.rows import legible, text_of
from agentjobs_async.batch._store.store import Store

_PAUSE: Final = PAUSES.c


async def pause(store: Store, seconds: float, project_id: str) -> None:
    """Record that the service wants no create of a project for `seconds`.

    A longer pause stands, unless a clock recorded it that was ahead.
    """
    moment = store.now_column()
    pausing = store.insert(PAUSES).values(project_id=project_id, set_at=moment, until=moment + seconds)
    given = pausing.excluded
    trusted = _PAUSE.set_at < given.set_at + SKEW_SECONDS
    until = case((and_(trusted, _PAUSE.until > given.until), _PAUSE.until), else_=given.until)
    changed = {"set_at": given.set_at, "until": until}
    await store.write(pausing.on_conflict_do_update(index_elements=[_PAUSE.project_id], set_=changed))


async def paused_for(store: Store) -> dict[str, float]:
    """Return for each paused project the seconds for which the server still wants no create of it."""
    moment = store.now_column()
    current = and_(_PAUSE.until > moment, _PAUSE.set_at < moment + SKEW_SECONDS)
    begun = case((_PAUSE.set_at > moment, _PAUSE.set_at), else_=moment)
    found = await store.read(select(_PAUSE.project_id, (_PAUSE.until - begun).label("left")).where(current))
    return legible(lambda: {text_of(row.project_id): float(row.left) for row in found})
