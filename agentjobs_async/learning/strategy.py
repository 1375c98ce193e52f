"""The wait strategy that learns from the durations of earlier jobs when to poll."""

from collections.abc import MutableMapping, Sequence
from functools import partial
from math import inf
from random import random
from typing import Any, Final

import tenacity
from tenacity.wait import wait_base

from agentjobs_async._validation import checked_seconds
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.learning.gaps import Cell, gap_cells
from agentjobs_async.learning.history import LEAST_DURATIONS, History
from agentjobs_async.learning.survival import Survival
from agentjobs_async.models import AgentJob
from agentjobs_async.policy import DEFAULT_WAIT, CallState, created_by

__all__ = ["Histories", "Kind", "wait_learned"]

Kind = tuple[str, str | None]
"""The project and the model of jobs that take similar times; `None` for jobs of any model."""

Histories = MutableMapping[Kind, History]
"""A history for each kind of jobs."""

_LONGEST_MODEL: Final = 200  # characters
_MOST_KINDS: Final = 256  # the server names the models: without a bound, it could fill the memory
_PRIOR, _NARROWEST = 0.1, 0.38  # a wait errs less if it trusts few durations less
_RENEWED_EVERY: Final = 20  # durations
_TABLE_SECONDS: Final = 0.25  # between two tables of any kinds: one takes some 4 ms to make, and ends may come fast


class wait_learned(wait_base):  # noqa: N801 - named as tenacity's strategies are
    """Wait between two polls as the durations of earlier jobs suggest.

    Polls come close together at the ages at which jobs have ended, and far apart where hardly any has: each gap is the
    least whose expected lateness reaches one figure, which is such that the expected polls per job are those of the
    default wait. The durations are those that the session or tracker whose policy this is has seen, in addition to what
    `history` holds. With fewer than 20, it waits as the default does; after a failed poll, never shorter than that.
    It learns within a sum or a chain of strategies, too. Ages count from `created_at`, by the local clock, or from the
    wait's start where the document has no such time.

    However wrong the history is, each gap, jitter included, is between d/2 and 2 d, where d is the default's gap at the
    same age without its jitter: min(3.3 s + 3 % of the age, 9 s). So for any durations, while polls are answered, an
    end is noticed at most 2 d late, d at the age of the poll before, and a job takes at most 2.12 times the default's
    polls, and one more. A duration weighs half as much as one that was added 50 durations later, and is dropped 200
    durations later: so much for a history that is no longer right.

    Like its histories, it belongs to one event loop: sessions of one loop may share it, threads may not. It pickles,
    with what it has learned.

    Args:
        history: Earlier durations, and where new ones are added: a `History` for jobs of all kinds together; or a dict
            of them by (project id, model), where the model `None` stands for all jobs of the project. `None` begins
            such a dict, in memory.
        polls_per_job: How many polls a job may take on average, at least 1; `None` for as many as the default makes.
            The bounds apply even then.

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
        self._only = _Learner(history) if isinstance(history, History) else None
        self.histories: Histories = {} if history is None or isinstance(history, History) else history
        self._learners: dict[Kind, _Learner] = {}
        """The one that has learned nothing for longest is the first."""
        self._next_table = -inf
        """Loop time before which no table is made."""
        for kind, known in self.histories.items():
            _check_kind(kind, known)
            self._learners[kind] = _Learner(known)

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        """Return the seconds to the next poll, in constant time."""
        state = retry_state if type(retry_state) is CallState else _as_ours(retry_state)
        learner = self._serving(state.project_id, None if state.job is None else state.job.model)
        if learner is None:
            return DEFAULT_WAIT(state)
        now = state.outcome_timestamp
        if learner.history.added >= learner.next_renewal and now >= self._next_table:
            learner.renew(self._polls_per_job)
            self._next_table = now + _TABLE_SECONDS
        if not learner.cells:
            return DEFAULT_WAIT(state)
        delay = learner.delay(now - state.created)
        return delay if isinstance(state.value, AgentJob) else max(delay, DEFAULT_WAIT(state))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what it was made of: its tables are made anew, at times of the loop in which it is used then."""
        history = self.histories if self._only is None else self._only.history
        return partial(type(self), polls_per_job=self._polls_per_job), (history,)

    def history_of(self, project_id: str, model: str | None) -> History | None:
        """Return the history that serves the jobs of this project and model; `None` while none has 20 durations."""
        learner = self._serving(project_id, model)
        return None if learner is None else learner.history

    def learn(self, project_id: str, model: str | None, earliest: float, latest: float) -> None:
        """Add the duration of a job of this project and model, as `History.add` does."""
        if self._only is not None:
            self._only.history.add(earliest, latest)
            return
        # The history of the project serves models of which little is known yet.
        for kind in dict.fromkeys(((project_id, None), (project_id, _bounded(model)))):
            self._learner_of(kind).history.add(earliest, latest)

    def _serving(self, project_id: str | None, model: str | None) -> "_Learner | None":
        """Return the learner by which jobs of this kind are polled and estimated; `None` while none has 20 durations.

        It is the model's, or the project's while that of the model has too few.
        """
        if self._only is not None:
            return self._only if self._only.history.added >= LEAST_DURATIONS else None
        if project_id is not None:
            for kind in ((project_id, model), (project_id, None)):
                learner = self._learners.get(kind)
                if learner is not None and learner.history.added >= LEAST_DURATIONS:
                    return learner
        return None

    def _learner_of(self, kind: Kind) -> "_Learner":
        """Return the learner of exactly this kind; of all, it will be dropped last. A new one may replace the first."""
        learner = self._learners.pop(kind, None)
        if learner is None:
            learner = _Learner(History())
            if len(self._learners) >= _MOST_KINDS:
                oldest = next(iter(self._learners))
                del self._learners[oldest]
                self.histories.pop(oldest, None)
            self.histories[kind] = learner.history
        self._learners[kind] = learner
        return learner


class _Learner:
    """A history of one kind of jobs, and the gaps that follow from it.

    Attributes:
        history: Read only.
        cells: As by `gap_cells`; empty before they are made first.
        next_renewal: How many durations must have been added to the history for new cells.
    """

    __slots__ = ("cells", "history", "next_renewal")

    def __init__(self, history: History) -> None:
        self.history = history
        self.cells: Sequence[Cell] = ()
        self.next_renewal = 0

    def delay(self, age: float) -> float:
        """Return the seconds to the next poll of a job that is `age` seconds old; there must be cells."""
        low, width = self.cells[min(int(age), len(self.cells) - 1)]
        return low + width * random()  # noqa: S311 - no secret

    def renew(self, polls_per_job: float | None) -> None:
        """Make the gaps anew; the history must not be empty."""
        survival = Survival(tuple(self.history), prior=_PRIOR, narrowest=_NARROWEST)
        self.cells = gap_cells(survival, polls_per_job)
        self.next_renewal = self.history.added + _RENEWED_EVERY


def _bounded(model: str | None) -> str | None:
    """Return `model`, or `None` for one that is longer than any name of a model: the server could fill the memory."""
    return model if model is not None and len(model) <= _LONGEST_MODEL else None


def _check_kind(kind: object, history: object) -> None:
    match kind:
        case (str(), None | str()) if isinstance(history, History):
            return
    raise InvalidInputError(f"history must be a History or a dict by (project id, model or None): see {kind!r:.80}")


def _as_ours(retry_state: tenacity.RetryCallState) -> CallState:
    """Return the state of a user of tenacity as the waits of this package pass it; a failure has the value `None`."""
    outcome = retry_state.outcome
    state = CallState.__new__(CallState)
    state.start_time = retry_state.start_time
    state.attempt_number = retry_state.attempt_number
    state.outcome_timestamp = retry_state.outcome_timestamp or retry_state.start_time
    state.value = None if outcome is None or outcome.failed else outcome.result()
    state.job = state.value if isinstance(state.value, AgentJob) else None
    state.project_id = None if state.job is None else state.job.project_id
    state.created = state.start_time
    if state.job is not None:
        state.created = min(state.created, created_by(state.job, state.outcome_timestamp))
    return state
