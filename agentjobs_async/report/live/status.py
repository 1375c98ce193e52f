"""What pages show besides the rows: how the journal stands, its workers, and when active jobs will end."""

import asyncio
import os
import time
from contextlib import suppress
from math import inf
from typing import Any, Final

from agentjobs_async import Estimate, History, JournalError
from agentjobs_async.batch import Journal
from agentjobs_async.batch._learning import known_histories
from agentjobs_async.batch._monitoring import owners_of, unseen_for
from agentjobs_async.batch._store.store import moved_error
from agentjobs_async.report.late import late_lines
from agentjobs_async.report.standing import standing_of

__all__ = ["CurrentStanding", "OpenedFile", "TimeLeft", "status_of"]

_AGES: Final = [0, *(round(10 * 1.15**step) for step in range(53))]
"""Ages of jobs in seconds, up to 4 h: nothing is known of older ones, and words say no more than such steps."""
_STANDING_SECONDS: Final = 2.0  # it counts all rows
_FRESH_SECONDS: Final = 20.0  # for which words serve: a history of 200 durations changes slowly


class OpenedFile:
    """The file that was opened as a journal: no other file at its path is read or changed.

    Args:
        journal: The journal; one in a database has no file.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._first: object = None

    async def check(self) -> None:
        """Check that the file is still there.

        Raises:
            JournalError: It is not (`moved`).
        """
        if self._journal.is_shared:
            return
        found = await asyncio.to_thread(_file_at, self._journal)
        self._first = self._first or found
        if found != self._first:
            what = "was moved or removed" if found is None else "was replaced by another journal"
            words = "the page shows what it had until then; serve the journal from where it is now"
            raise JournalError(f"{self._journal.name} {what}: {words}", "moved")


def _file_at(journal: Journal) -> tuple[int, int] | None:
    """Return the device and the number of the file where a journal was opened; `None` where there is none."""
    with suppress(OSError):
        found = os.stat(journal.address)  # noqa: PTH116 - the address is a path as text
        return found.st_dev, found.st_ino
    return None


async def status_of(journal: Journal) -> dict[str, Any]:
    """Return the `workers`, the lines of what was answered `late`, and the `trouble` of a journal that was moved.

    Raises:
        JournalError: The journal can't be read.
    """
    moved_to = (await journal.store.meta()).moved_to
    return {
        "workers": await _shown_workers(journal),
        "late": await late_lines(journal),
        "trouble": None if moved_to is None else str(moved_error(journal.name, moved_to)),
    }


async def _shown_workers(journal: Journal) -> list[dict[str, Any]] | None:
    """Return the workers as pages show them, with the time of each one's last heartbeat in ms since the epoch.

    `None` for a file: it is looked at only after a change, and the end of a file's owner is none.
    """
    if not journal.is_shared:
        return None
    workers, now = await owners_of(journal) or [], time.time()
    return [
        {
            "name": worker.name,
            "active": worker.active,
            "heard": round((now - worker.silent_for) * 1000),
            "dead": worker.is_dead,
        }
        for worker in workers
    ]


class CurrentStanding:
    """How a journal stands.

    Args:
        journal: The open journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._document: dict[str, Any] = {}
        self._made_at = -inf  # monotonic

    async def document(self) -> dict[str, Any]:
        """Return it as JSON has it, made at most 2 s ago: that a process ended is seen in no row.

        Raises:
            JournalError: The journal can't be read.
        """
        if time.monotonic() - self._made_at >= _STANDING_SECONDS:
            self._document = (await standing_of(self._journal)).document()
            self._made_at = time.monotonic()
        return self._document


class TimeLeft:
    """When each active job of a journal will end.

    Args:
        journal: The open journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._words: dict[str, Any] = {}
        self._made_at = -inf  # monotonic

    async def words(self) -> dict[str, Any] | None:
        """Return the words, made at most 20 s ago; `None` while no process sees that the active jobs have not ended.

        `by_project` has a list for each project of which 20 durations are known: the words for one job from each age in
        `ages` on, in seconds.

        Raises:
            JournalError: The journal can't be read.
        """
        if await unseen_for(self._journal) is not None:
            return None
        if time.monotonic() - self._made_at >= _FRESH_SECONDS:
            self._made_at = time.monotonic()
            known = await known_histories(self._journal.store)
            by_project = {project: _texts_by_age(history) for project, history in known.items()}
            self._words = {"ages": _AGES, "by_project": by_project}
        return self._words


def _texts_by_age(history: History) -> list[str | None]:
    found = [Estimate(history.quantile(0.5, age), history.quantile(0.9, age)) for age in _AGES]
    return [str(estimate) if estimate.p90 < inf else None for estimate in found]
