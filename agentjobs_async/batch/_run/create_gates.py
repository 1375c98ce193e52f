"""The gates of a run's creates: one for each project, and one for all of them together."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from attrs import define, field

from agentjobs_async import CreateOutcomeUnknownError, ResponseError
from agentjobs_async.batch._run.create_gate import LONGEST_RETRY_AFTER_SECONDS, CreateGate, Reason
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.claims import NoRoomError, is_limit
from agentjobs_async.batch._store.pauses import paused_for
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.limits import Rate
from agentjobs_async.errors import log_text

_logger: Final = logging.getLogger("agentjobs_async.batch")


@define(eq=False)
class Permit:
    """The permit of one create, valid unless creates were held back since.

    Attributes:
        project: Its project.
        gates: Those that it has to pass: its project's, then that of all.
    """

    project: str
    gates: tuple[CreateGate, CreateGate]
    _recalls: list[int] = field(factory=list, init=False)
    """Those of the gates that it has passed, as they were then."""
    _is_open: bool = field(default=True, init=False)

    @property
    def is_current(self) -> bool:
        """Whether the create may still go."""
        return self._recalls == [gate.recalls for gate in self.gates]

    async def pass_next(self) -> bool:
        """Wait until the next gate lets the create pass; return false when that gate's creates are refused."""
        recalls = await self.gates[len(self._recalls)].take()
        if recalls is None:
            return False
        self._recalls.append(recalls)
        return True

    def spend(self) -> None:
        """Count a create that the server answered, or may have answered."""
        for gate in self._left():
            gate.spend()

    def refund(self) -> None:
        """Discard a create that never reached the server; do nothing if it is counted already."""
        for gate in self._left():
            gate.refund()

    def count_unknown(self, error: Exception) -> bool:
        """Count a create that may have started an agent; return whether this begins an outage of its project."""
        self.spend()
        asked = error.retry_after if isinstance(error, CreateOutcomeUnknownError) else None
        retry_after = min(asked or 0.0, LONGEST_RETRY_AFTER_SECONDS)
        return self.gates[0].count_unknown(self._recalls[0], error, retry_after)

    def _left(self) -> tuple[CreateGate, ...]:
        """Return the gates that were passed, once: a create is counted or discarded, not both."""
        passed = self.gates[: len(self._recalls)] if self._is_open else ()
        self._is_open = False
        return passed


class CreateGates:
    """A gate for each project, and one for all creates.

    Args:
        rate: How many creates may be sent, of each project or of all.
        sent: The creates of earlier runs, by project and age in seconds.
        refused_for: Seconds for which no create of a project is sent after one was refused with 401 or 403.

    Attributes:
        common: The gate of all creates: a rate for all of them, and pauses while nothing can be sent.
        succeeded: Whether any create of this run succeeded.
        refusal: The first 401 or 403 to a create; `None` when there was none.
    """

    def __init__(self, rate: Rate | None, sent: Sequence[tuple[str, float]], *, refused_for: float) -> None:
        is_common = rate is not None and rate.scope == "all"
        self.common = CreateGate(rate, [age for _, age in sent]) if is_common else CreateGate(None)
        self.succeeded = False
        self.refusal: Exception | None = None
        self._rate = None if is_common else rate
        self._refused_for = refused_for
        by_project: dict[str, list[float]] = {}
        for project, age in () if self._rate is None else sent:
            by_project.setdefault(project, []).append(age)
        self._gates = {project: CreateGate(self._rate, ages) for project, ages in by_project.items()}

    def of(self, project: str) -> CreateGate:
        """Return the gate of a project."""
        if project not in self._gates:
            self._gates[project] = CreateGate(self._rate)
        return self._gates[project]

    def permit(self, project: str) -> Permit:
        """Return the permit of a create of a project, which has passed no gate yet."""
        return Permit(project, (self.of(project), self.common))

    def accept(self, permit: Permit) -> bool:
        """Count a create that gave a job; return whether this ends a refusal of its project."""
        self.succeeded = True
        permit.spend()
        was_refused = self.is_refused(permit.project)
        self.of(permit.project).accept()
        self.of(permit.project).count_definite()
        return was_refused

    def count_definite(self, permit: Permit) -> None:
        """Count a create that is known to have started no agent."""
        permit.spend()
        self.of(permit.project).count_definite()

    def count_unknown(self, permit: Permit, error: Exception) -> None:
        """Count a create that may have started an agent; after three in a row, they are sent one at a time."""
        if permit.count_unknown(error):
            _logger.warning(
                "%s are held back, and sent one at a time until one is answered definitely: %s",
                _named(permit.project),
                log_text(error),
            )

    def refuse(self, permit: Permit, error: Exception) -> None:
        """Hold back the creates of a project because the server refuses the key for it."""
        permit.spend()
        self.refusal = self.refusal or error
        own = self.of(permit.project)
        if own.refused_by is None:
            _logger.warning("%s are refused, and stay planned: %s", _named(permit.project), log_text(error))
        own.hold(Reason.REFUSED, self._refused_for, error)

    def limit(self, permit: Permit, error: Exception, began: float) -> None:
        """Hold back the creates of a project because the server refused one for now that began at `began`."""
        permit.spend()
        own = self.of(permit.project)
        is_news = own.limit(began, error.retry_after if isinstance(error, ResponseError) else None, error)
        own.count_definite()
        if is_news:
            _logger.warning("%s are held back for %.0f s: %s", _named(permit.project), own.limited_for, log_text(error))

    def hold_all(self, seconds: float, reason: Exception) -> None:
        """Hold back all creates because none can be sent."""
        is_news = self.common.hold(Reason.UNSENT, seconds, reason)
        if is_news:  # many that are under way fail at once
            _logger.warning("all creates are held back for %.0f s: %s", seconds, log_text(reason))

    def is_refused(self, project: str) -> bool:
        """Return whether the server refuses the creates of a project at present."""
        return project in self._gates and self._gates[project].refused_by is not None

    def refused(self) -> list[str]:
        """Return the projects whose creates the server refuses at present."""
        return [project for project, gate in tuple(self._gates.items()) if gate.refused_by is not None]

    def may_go(self, project: str) -> bool:
        """Return whether a create of a project may go right now."""
        due = self.next_at(project)
        return due is not None and due <= asyncio.get_running_loop().time() and not self.is_refused(project)

    def next_at(self, project: str | None) -> float | None:
        """Return the loop time at which the next create of a project may go, as far as known.

        `None` when that depends on one that is under way, or while the key is refused for as long as the run lasts.
        `None` for the project takes what holds for all.
        """
        times = [self.common.next_at, *([self._gates[project].next_at] if project in self._gates else [])]
        known = [time for time in times if time is not None]
        return max(known) if len(known) == len(times) else None

    def paused_by(self, projects: Collection[str]) -> Exception | None:
        """Return why creates of some projects are held back; `None` when nothing but a rate of this run does so.

        What has failed comes before a limit that is used up: a `NoRoomError`.
        """
        gates = [self.common, *(self._gates[project] for project in sorted(projects) if project in self._gates)]
        found = [reason for gate in gates if (reason := gate.paused_by) is not None]
        failed = (reason for reason in found if not is_limit(reason))
        return next(failed, found[0] if found else None)


async def gates_of(store: Store, rate: Rate | None, *, refused_for: float) -> CreateGates:
    """Return gates that know the creates and the pauses of earlier runs.

    Raises:
        JournalError: The journal can't be read.
    """
    sent = [] if rate is None else await measures.sent_ages(store, rate.per, rate.count)
    gates = CreateGates(rate, sent, refused_for=refused_for)
    for project, seconds in (await paused_for(store)).items():
        gates.of(project).hold(Reason.LIMITED, min(seconds, LONGEST_RETRY_AFTER_SECONDS), NoRoomError("pause"))
    return gates


def _named(project: str) -> str:
    return f"creates of project {project}"
