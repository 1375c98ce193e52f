"""What a journal knows of durations, for waits that learn."""

from math import inf
from typing import Any, Final

from agentjobs_async import AgentJobsSession, History
from agentjobs_async.batch._store.measures import durations
from agentjobs_async.batch._store.store import Store
from agentjobs_async.learning.gaps import default_gap
from agentjobs_async.learning.history import LEAST_DURATIONS

_MOST_READ: Final = 2_000  # rows: 200 for each of ten projects
_LONGEST_GAP_SECONDS: Final = 20.0  # between two polls, on average: else no process polled the job at times
_TOLERATED_SECONDS: Final = 60.0  # beyond these gaps: a Retry-After, or the recording of an end, may take as long


async def begin_learning(session: AgentJobsSession, store: Store) -> None:
    """Start learning, if the journal holds 20 durations of a project: the session's waits follow them from here on.

    Args:
        session: The session; one that cannot learn, or whose policy has a wait of its own, is left as it is.
        store: The journal's rows.
    """
    learn_from: Any = getattr(session, "learn_from", None)
    if learn_from is None:
        return
    known = await histories_of(store)
    if any(len(history) >= LEAST_DURATIONS for history in known.values()):
        learn_from({(project_id, None): history for project_id, history in known.items()})


async def histories_of(store: Store) -> dict[str, History]:
    """Return the durations of each project's last jobs.

    A job whose wait timed out, and that has not ended since, takes longer than that.
    """
    histories: dict[str, History] = {}
    for project, seconds, polls, ended in reversed(await durations(store, _MOST_READ)):
        if _was_polled(seconds, polls):
            history = histories.setdefault(project, History())
            last_active = max(seconds - default_gap(seconds), 0.0)
            history.add(last_active, seconds if ended else inf)
    return histories


async def known_histories(store: Store) -> dict[str, History]:
    """Return the durations of each project that has at least 20: with fewer, nothing is estimated."""
    found = await histories_of(store)
    return {project: history for project, history in found.items() if len(history) >= LEAST_DURATIONS}


def _was_polled(seconds: float, polls: int) -> bool:
    """Return whether a job was polled until its end: while no process ran, its end was recorded too late."""
    return seconds <= _TOLERATED_SECONDS + _LONGEST_GAP_SECONDS * polls
