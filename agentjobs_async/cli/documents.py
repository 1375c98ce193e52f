"""What machines are told: each line's document, the same on standard output and in the file that `--out` names."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentjobs_async import JobRef
from agentjobs_async.batch import BatchResult, JournalRow, State
from agentjobs_async.cli.outcomes import Outcome, described
from agentjobs_async.cli.tasks import Refusal

__all__ = ["event", "identity", "refusal_event", "result_event", "row_event", "summary_event"]

Document = dict[str, Any]

_WITH_A_STATUS: Final = frozenset({State.COMPLETED, State.FAILED, State.ARCHIVED})
_OUTCOMES: Final = {
    State.PLANNED: Outcome.NOT_SENT,
    State.SENDING: Outcome.UNKNOWN,
    State.CREATED: Outcome.UNFINISHED,
}


def event(name: str, ref: JobRef | None, **fields: Any) -> Document:
    """Return the document of an event that a job is concerned by, or none that is known."""
    return {"event": name, "job": None if ref is None else ref.to_token(), **fields}


def result_event(result: BatchResult, number: int | None) -> Document:
    """Return the event of an item's end in this run; `number` is its place in the journal."""
    job, error = result.job, result.error
    return event(
        "ended",
        result.ref,
        number=number,
        key=result.item.key,
        prompt=result.item.prompt,
        outcome=result.outcome,
        status=None if job is None else job.status,
        pr_link=None if job is None else job.pr_link,
        error=None if error is None else described(error),
    )


def row_event(row: JournalRow) -> Document:
    """Return the event of an item that has ended, as the journal knows it."""
    return event(
        "ended",
        _ref(row),
        number=row.number,
        key=row.key,
        prompt=row.prompt,
        outcome=row.state,
        status=row.state if row.job_id is not None and row.state in _WITH_A_STATUS else None,
        pr_link=row.pr_link,
        error=row.error,
    )


def refusal_event(refusal: Refusal) -> Document:
    """Return the event of a task that was refused before anything was sent; it has no place in the journal."""
    named: Document = {"number": None, "key": refusal.key, "prompt": None, "outcome": Outcome.REJECTED}
    return event("ended", None, **named, status=None, pr_link=None, error=refusal.words)


def summary_event(counts: Mapping[State, int], refusals: Sequence[Refusal], exit_code: int) -> Document:
    """Return the last event of a batch: how all items of its journal stand, by item, those refused now among them."""
    outcomes: Counter[str] = Counter({Outcome.REJECTED: len(refusals)})
    for state, number in counts.items():
        outcomes[_OUTCOMES.get(state) or Outcome(state)] += number
    shown = {name: number for name, number in outcomes.items() if number}
    return {"event": "summary", "outcomes": shown, "exit_code": exit_code}


def identity(document: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what tells one end of an item from another; of a refusal, which has no place in the journal, its words."""
    words = document.get("error") if document.get("number", 0) is None else None
    return document.get("key"), document.get("outcome"), document.get("job"), words


def _ref(row: JournalRow) -> JobRef | None:
    return None if row.job_id is None or row.project_id is None else JobRef(row.project_id, row.job_id)
