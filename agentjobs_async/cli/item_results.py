"""The results of a batch: from its run, from the rows of its journal, and of refused tasks."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from agentjobs_async import JobRef
from agentjobs_async.batch import BatchResult, JournalRow, State
from agentjobs_async.cli._input.tasks import Refusal
from agentjobs_async.cli.outcomes import Outcome, Result, described
from agentjobs_async.cli.reasons import in_words

__all__ = ["outcomes_of", "refusal_result", "row_result", "run_result"]

_OUTCOMES: Final = {
    State.PLANNED: Outcome.NOT_SENT,
    State.SENDING: Outcome.UNKNOWN,
    State.ACTIVE: Outcome.UNFINISHED,
}
_JOB_ENDED: Final = frozenset({State.COMPLETED, State.FAILED, State.ARCHIVED})


def run_result(result: BatchResult) -> Result:
    """Return how an item ended in this run."""
    job, error, row = result.job, result.error, result.row
    return Result(
        None if row is None else row.number,
        Outcome(result.outcome),
        result.item.key if row is None else row.item_key,
        result.item.prompt,
        result.ref,
        None if job is None else job.status,
        None if job is None else job.pr_link,
        None if error is None else described(error),
        result.item.context,
        None if row is None else row.tries,
    )


def row_result(row: JournalRow) -> Result:
    """Return how an item stands in the journal."""
    ref = None if row.job_id is None or row.project_id is None else JobRef(row.project_id, row.job_id)
    status = row.state if row.job_id is not None and row.state in _JOB_ENDED else None
    outcome = _outcome(row.state)
    error = None if row.error is None else in_words(row.error)
    told = row.item_key, row.prompt, ref, status, row.pr_link, error, row.context, row.tries
    return Result(row.number, outcome, *told)


def refusal_result(refusal: Refusal) -> Result:
    """Return the result of a task that was refused before it was planned."""
    return Result(None, Outcome.REJECTED, refusal.key, error=refusal.words)


def outcomes_of(counts: Mapping[State, int], timed_out: Collection[Result] = ()) -> Counter[Outcome]:
    """Return how many items of a journal ended in which way.

    Args:
        counts: How many rows are in each state.
        timed_out: The results of this run whose time was up; the journal has their rows as planned or active, unless
            they were abandoned, or ended by another process, since.
    """
    outcomes = Counter[Outcome]()
    for state, number in counts.items():
        outcomes[_outcome(state)] += number
    for result in timed_out:
        left = Outcome.NOT_SENT if result.ref is None else Outcome.UNFINISHED
        if outcomes[left]:
            outcomes[left] -= 1
            outcomes[Outcome.TIMED_OUT] += 1
    return +outcomes


def _outcome(state: State) -> Outcome:
    return _OUTCOMES.get(state) or Outcome(state)
