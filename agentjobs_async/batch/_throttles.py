"""The throttles of all projects, and one for all of them together."""

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Final

from attrs import define, field

from agentjobs_async import CreateOutcomeUnknownError
from agentjobs_async.batch._store.entries import Entries
from agentjobs_async.batch._throttle import CreateThrottle
from agentjobs_async.batch.limits import Rate

REFUSED_SECONDS: Final = 60.0  # then one create tries again: the key may have been given its permission
LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0  # a longer one holds creates back no longer than this

_logger: Final = logging.getLogger("agentjobs_async.batch")


@define(eq=False)
class Permit:
    """The permit of one create, valid unless creates were held back since."""

    project: str | None
    _own: CreateThrottle
    _common: CreateThrottle
    _own_holds: int
    _common_holds: int | None = field(default=None, init=False)
    _own_begun: float | None = field(default=None, init=False)
    _common_begun: float | None = field(default=None, init=False)
    _open: bool = field(default=True, init=False)

    @property
    def is_current(self) -> bool:
        """Whether the create may still go."""
        return (self._own_holds, self._common_holds) == (self._own.holds, self._common.holds)

    async def take_common(self) -> None:
        """Wait until a create of any project may go, too."""
        self._common_holds = await self._common.take()

    def begin(self) -> bool:
        """Begin the create; return `False` where another one has begun too recently: `refund` must follow."""
        self._own_begun = self._own.begin()
        self._common_begun = None if self._own_begun is None else self._common.begin()
        return self._common_begun is not None

    def spend(self) -> None:
        """Count a create that the server answered, or may have answered."""
        if self._open:
            self._open = False
            self._own.spend()
            if self._common_holds is not None:
                self._common.spend()

    def refund(self) -> None:
        """Discard a create that never reached the server; do nothing if it is counted already."""
        if self._open:
            self._open = False
            self._own.refund(self._own_begun)
            if self._common_holds is not None:
                self._common.refund(self._common_begun)

    def mark_unknown(self, error: Exception) -> bool:
        """Count a create that may have started an agent; return whether this begins an outage."""
        self.spend()
        asked = error.retry_after if isinstance(error, CreateOutcomeUnknownError) else None
        retry_after = min(asked or 0.0, LONGEST_RETRY_AFTER_SECONDS)
        return self._own.mark_unknown(self._own_holds, error, retry_after)


class CreateThrottles:
    """A throttle for each project, and one for all creates.

    Args:
        rate: How many creates may be sent, of each project or of all.
        refused_for: Seconds for which no create of a project is sent after one was refused with 401 or 403.

    Attributes:
        common: The throttle of all creates: a rate for all of them, and pauses while nothing can be sent.
        succeeded: Whether any create of this run succeeded.
        refusal: The first 401 or 403 to a create; `None` when there was none.
    """

    def __init__(self, rate: Rate | None, *, refused_for: float) -> None:
        self.common = CreateThrottle(rate if rate is not None and rate.scope == "all" else None)
        self.succeeded = False
        self.refusal: Exception | None = None
        self._rate = rate if rate is not None and rate.scope == "project" else None
        self._refused_for = refused_for
        self._throttles: dict[str | None, CreateThrottle] = {}

    def seed(self, rate: Rate, ages: Iterable[tuple[str | None, float]]) -> None:
        """Count the creates of earlier runs, by project and age in seconds. Call it first of all."""
        if rate.scope == "all":
            self.common = CreateThrottle(rate, [age for _, age in ages])
            return
        # A session that names no project may send to any of them.
        by_project: dict[str | None, list[float]] = {None: []}
        for project, age in ages:
            by_project.setdefault(project, []).append(age)
            by_project[None].append(age)
        self._throttles = {project: CreateThrottle(rate, found) for project, found in by_project.items()}

    def of(self, project: str | None) -> CreateThrottle:
        """Return the throttle of a project."""
        if project not in self._throttles:
            self._throttles[project] = CreateThrottle(self._rate)
        return self._throttles[project]

    async def take(self, project: str | None) -> Permit | None:
        """Wait until a create of a project may go; return `None` when the server refuses its creates.

        `Permit.spend` or `Permit.refund` must follow.
        """
        own = self.of(project)
        holds = await own.take()
        return None if holds is None else Permit(project, own, self.common, holds)

    def accept(self, permit: Permit) -> bool:
        """Count a create that gave a job; return whether this ends a refusal of its project."""
        self.succeeded = True
        permit.spend()
        was_refused = self.is_refused(permit.project)
        self.of(permit.project).accept()
        self.of(permit.project).mark_definite()
        return was_refused

    def mark_definite(self, permit: Permit, *, counts: bool = True) -> None:
        """Count a create that is known to have started no agent."""
        (permit.spend if counts else permit.refund)()
        self.of(permit.project).mark_definite()

    def mark_unknown(self, permit: Permit, error: Exception) -> None:
        """Count a create that may have started an agent; after three in a row, they are sent one at a time."""
        if permit.mark_unknown(error):
            _logger.warning(
                "%s are held back, and sent one at a time until one is answered definitely: %s",
                _named(permit.project),
                error,
            )

    def refuse(self, permit: Permit, error: Exception) -> None:
        """Hold back the creates of a project because the server refuses the key for it."""
        permit.spend()
        self.refusal = self.refusal or error
        own = self.of(permit.project)
        if own.refused_by is None:
            _logger.warning("%s are refused, and stay planned: %s", _named(permit.project), error)
        own.refuse(error, self._refused_for)

    def pause(self, project: str | None, seconds: float, reason: Exception) -> None:
        """Hold back the creates of a project because the server asks for it."""
        self.of(project).pause(seconds, reason)
        _logger.warning("%s are held back for %.0f s: %s", _named(project), seconds, reason)

    def pause_all(self, seconds: float, reason: Exception) -> None:
        """Hold back all creates because none can be sent."""
        self.common.pause(seconds, reason)
        _logger.warning("all creates are held back for %.0f s: %s", seconds, reason)

    def is_refused(self, project: str | None) -> bool:
        """Return whether the server refuses the creates of a project at present."""
        return project in self._throttles and self._throttles[project].refused_by is not None

    def may_go(self, project: str | None) -> bool:
        """Return whether a create of a project may go right now."""
        due = self.next_at(project)
        return due is not None and due <= asyncio.get_running_loop().time() and not self.is_refused(project)

    def next_at(self, project: str | None) -> float | None:
        """Return when the next create of a project may go; `None` when that depends on one that is under way."""
        own = self._throttles[project].next_at if project in self._throttles else self.common.next_at
        common = self.common.next_at
        return None if own is None or common is None else max(own, common)

    def paused_by(self, projects: Collection[str | None]) -> Exception | None:
        """Return why creates of some projects are held back; `None` when nothing but a rate does so."""
        found = (self._throttles[project].paused_by for project in projects if project in self._throttles)
        return self.common.paused_by or next((reason for reason in found if reason is not None), None)


async def throttles_of(entries: Entries, rate: Rate | None, *, refused_for: float) -> CreateThrottles:
    """Return throttles that know the creates and the pauses of earlier runs.

    Raises:
        JournalError: The journal can't be read.
    """
    throttles = CreateThrottles(rate, refused_for=refused_for)
    if rate is not None:
        throttles.seed(rate, await entries.sent_ages(rate.per, rate.count))
    for project, seconds in (await entries.paused_for()).items():
        throttles.of(project).pause(min(seconds, LONGEST_RETRY_AFTER_SECONDS))
    return throttles


def _named(project: str | None) -> str:
    return "all creates" if project is None else f"creates of project {project}"
