"""What is noted of the events of a session or tracker, and of the durations that its policy learns."""

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from attrs import define, field
from tenacity import wait_chain, wait_fixed

from agentjobs_async import AgentJobsError, History, NotFoundError, NotSentError, SessionClosedError, wait_learned
from agentjobs_async.policy import WaitStrategy
from agentjobs_async.telemetry import (
    CreateFailed,
    Event,
    Hook,
    JobCreated,
    JobPolled,
    PollFailed,
    WaitEnded,
    WaitStarted,
)
from tests.simulation.ledger import Learned, Ledger

if TYPE_CHECKING:  # which makes these
    from tests.simulation.programs.run import Run

CALL: ContextVar[int | None] = ContextVar("whose context it is", default=None)


@define(eq=False)
class Listener:
    """The hooks of one session or tracker, which the ledger knows as `source`."""

    run: "Run"
    source: str
    _last: Event | None = field(default=None, init=False)

    def hooks(self) -> list[Hook]:
        """Return one hook; or one before a hook that always raises, and one after it."""
        return [self._first, _raises, self._second] if self.run.program.sessions.has_other_hooks else [self._first]

    def _first(self, event: Event) -> None:
        self._last = event
        ledger = self.run.ledger
        ledger.events.setdefault(self.source, []).append((self.run.world.now, event))
        if isinstance(event, JobPolled | PollFailed) and CALL.get() is not None:
            self.run.world.violate(f"P19: {type(event).__name__} runs in a caller's context")
        if isinstance(event, JobCreated | WaitEnded):
            ledger.told_to_hooks.add(event.ref.job_id if isinstance(event, WaitEnded) else event.job.id)
        if isinstance(event, WaitStarted):
            self.run.events["started"] += 1
        elif isinstance(event, WaitEnded):
            self.run.events["ended"] += 1
        elif isinstance(event, PollFailed):
            ledger.poll_failures += not self._has_cause(event.error)
            ledger.not_sent += isinstance(event.error, NotSentError)
        elif isinstance(event, CreateFailed) and event.label is not None:
            _note_outcome(ledger, event)
        if isinstance(error := getattr(event, "error", None), AgentJobsError):
            self.run.check_error(error, is_told=False)
        self.run.raise_if_due()

    def _has_cause(self, error: BaseException) -> bool:
        """Return whether a poll fails without a fault: cut by the end of its wait, too early, or closed.

        A tracker that outlives the session of its `get_job` polls a session that is closed.
        """
        if isinstance(error, SessionClosedError):
            return self.source.partition(" ")[0] in self.run.ledger.left
        is_cut = isinstance(error, asyncio.CancelledError) or "until the wait ended" in str(error)
        return is_cut or isinstance(error, NotFoundError)

    def _second(self, event: Event) -> None:
        if event is not self._last:
            self.run.world.violate(f"Events: one hook is told {self._last}, and the next one {event}")


def _note_outcome(ledger: Ledger, event: CreateFailed) -> None:
    for create in ledger.creates:
        if create.prompt == event.label:
            create.hook_outcome = event.outcome


def _raises(_event: Event) -> None:
    raise asyncio.CancelledError("a hook of the user's raises each time")


class _NotedWait(wait_learned):
    """Notes each duration that it is given."""

    def __init__(self, run: "Run", sender: str, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._run = run
        self._sender = sender

    def learn(self, project_id: str, model: str | None, earliest: float, latest: float) -> None:
        """Note the duration, and learn it."""
        self._run.ledger.learned.append(Learned(self._run.world.now, self._sender, project_id, earliest, latest))
        super().learn(project_id, model, earliest, latest)


def learning_wait(run: "Run", sender: str, history: History) -> WaitStrategy:
    """Return a strategy that learns in the way that the program says; `history` is that of the process."""
    match run.program.sessions.learning:
        case "shared":
            return _NotedWait(run, sender, history)
        case "few":
            return _NotedWait(run, sender, polls_per_job=3)
        case "sum":
            return _NotedWait(run, sender, history) + wait_fixed(0.5)
        case "chain":
            return wait_chain(wait_fixed(1.0), wait_fixed(2.0), _NotedWait(run, sender))
        case _:
            return _NotedWait(run, sender)
