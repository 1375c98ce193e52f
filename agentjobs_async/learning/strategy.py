"""The wait strategy that learns from the durations of earlier jobs when to poll."""

from collections.abc import MutableMapping
from typing import Final

import tenacity
from tenacity.wait import wait_base

from agentjobs_async._validation import checked_seconds
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.learning.gaps import GapTable
from agentjobs_async.learning.history import LEAST_DURATIONS, History
from agentjobs_async.learning.learner import Learner
from agentjobs_async.models import AgentJob
from agentjobs_async.policy import DEFAULT_WAIT, CallState
from agentjobs_async.telemetry import HistoryDropped

__all__ = ["Histories", "Kind", "wait_learned"]

Kind = tuple[str, str | None]
"""The project and the model of jobs that take alike; `None` for jobs of any model."""

Histories = MutableMapping[Kind, History]
"""A history for each kind of jobs."""

_LONGEST_MODEL: Final = 200  # characters
_MOST_KINDS: Final = 256  # the server names the models: without a bound, it could fill the memory


class wait_learned(wait_base):  # noqa: N801 - named as tenacity's strategies are
    """Wait between two polls as the durations of earlier jobs suggest.

    Polls come close together at the ages at which jobs have ended, and far apart where hardly any has: each gap is the
    least whose expected lateness reaches one figure, which is such that the expected polls per job are those of the
    default wait. The durations are those that the session or tracker whose policy this is has seen, in addition to what
    `history` holds. With fewer than 20, and after a failed poll, it waits as the default does.

    Two guards bound what a wrong history may do. First, each gap, jitter included, is between d/2 and 2 d, where d is
    the default's gap at the same age without its jitter: min(3.3 s + 3 % of the age, 9 s). So for any durations, while
    polls are answered, an end is noticed at most 2 d late, d at the age of the poll before, and a job takes at most
    2.12 times the default's polls, and one more. Second, a test bets against the new durations being distributed as the
    earlier ones; once it has won 100 times its stake, the history is dropped, hooks are called with `HistoryDropped`,
    and the default waits until there are 20 new durations. If the distribution does not change, the chance that this
    ever happens is at most 1 %.

    Args:
        history: Earlier durations, and where new ones are added: a `History` for jobs of all kinds together; or a dict
            of them by (project id, model), where the model `None` stands for all jobs of the project. `None` begins
            such a dict, in memory.
        polls_per_job: How many polls a job may take on average, at least 1; `None` for as many as the default makes.
            The first guard holds all the same.

    Raises:
        InvalidInputError: An argument is invalid.

    Attributes:
        histories: The dict; it stays empty where one `History` was given.
    """

    def __init__(self, history: History | Histories | None = None, *, polls_per_job: float | None = None) -> None:
        if not (history is None or isinstance(history, History | MutableMapping)):
            raise InvalidInputError(f"history must be a History or a dict of them, not {type(history).__name__}")
        if polls_per_job is not None and checked_seconds("polls_per_job", polls_per_job, unit="polls") < 1:
            raise InvalidInputError(f"polls_per_job must be at least 1, not {polls_per_job:g}")
        self._polls_per_job = polls_per_job
        self._only = Learner(history, polls_per_job) if isinstance(history, History) else None
        self.histories: Histories = {} if history is None or isinstance(history, History) else history
        self._learners: dict[Kind, Learner] = {}
        for kind, known in self.histories.items():
            _check_kind(kind, known)
            self._learners[kind] = Learner(known, polls_per_job)

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        """Return the seconds to the next poll, in constant time."""
        answer = retry_state.held if type(retry_state) is CallState else _answer(retry_state)
        table = self._table(answer, retry_state.outcome_timestamp or 0.0)
        if table is None:
            return DEFAULT_WAIT(retry_state)
        return table.delay(retry_state.seconds_since_start or 0.0)

    def _table(self, answer: object, now: float) -> GapTable | None:
        if not isinstance(answer, AgentJob):
            return None  # a failed poll: no fault makes the client faster
        if self._only is not None:
            return self._only.table(now)
        learner = self._learners.get((answer.project_id, answer.model))
        table = None if learner is None else learner.table(now)
        if table is None and answer.model is not None:
            learner = self._learners.get((answer.project_id, None))
            table = None if learner is None else learner.table(now)
        return table

    def history_of(self, project_id: str, model: str | None) -> History | None:
        """Return the history that serves jobs of this kind; `None` while none has 20 durations."""
        kinds = ((project_id, model), (project_id, None))
        learners = [self._only] if self._only is not None else [self._learners.get(kind) for kind in kinds]
        for learner in learners:
            if learner is not None and len(learner.history) >= LEAST_DURATIONS:
                return learner.history
        return None

    def learn(self, project_id: str, model: str | None, earliest: float, latest: float) -> list[HistoryDropped]:
        """Add the duration of a job, as `History.add` does; return the events of histories that no longer hold."""
        if self._only is not None:
            dropped = self._only.learn(earliest, latest)
            return [HistoryDropped(None, None, dropped)] if dropped else []
        # The history of the project serves models of which little is known yet.
        kinds: set[Kind] = {(project_id, None), (project_id, _bounded(model))}
        counts = {kind: self._learner(kind).learn(earliest, latest) for kind in kinds}
        return [HistoryDropped(*kind, dropped) for kind, dropped in counts.items() if dropped]

    def _learner(self, kind: Kind) -> Learner:
        learner = self._learners.pop(kind, None)
        if learner is None:
            learner = Learner(History(), self._polls_per_job)
            if len(self._learners) >= _MOST_KINDS:
                oldest = next(iter(self._learners))
                del self._learners[oldest]
                self.histories.pop(oldest, None)
            self.histories[kind] = learner.history
        self._learners[kind] = learner  # at the end: the first is the one that has learned nothing for longest
        return learner


def _bounded(model: str | None) -> str | None:
    """Return `model`, or `None` for one that is longer than any name of a model: the server could fill the memory."""
    return model if model is not None and len(model) <= _LONGEST_MODEL else None


def _check_kind(kind: object, history: object) -> None:
    match kind:
        case (str(), None | str()) if isinstance(history, History):
            return
    raise InvalidInputError("history must be a History, or a dict of them by (project id, model or None)")


def _answer(retry_state: tenacity.RetryCallState) -> object:
    """Return what the last attempt returned; `None` if it failed, or if there was none."""
    outcome = retry_state.outcome
    return None if outcome is None or outcome.failed else outcome.result()
