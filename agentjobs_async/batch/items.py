"""The items of a batch, and their results."""

from collections.abc import Iterable
from enum import StrEnum

from attrs import field, frozen

from agentjobs_async import AgentJob, InvalidInputError, JobRef
from agentjobs_async._validation import checked_id, checked_name, checked_prompt

__all__ = ["BatchItem", "BatchResult", "Outcome", "Refusals", "check_items", "checked_item"]


@frozen
class BatchItem:
    """One prompt of a batch. Nothing is checked here: a batch gives a refused item a result of its own.

    Attributes:
        key: Your own name for it, by which it is known again: 1 to 512 characters, no control characters.
        prompt: What the agent is to do: text with more than white space.
        project_id: `None` takes the session's.
    """

    key: str
    prompt: str = field(repr=False)
    project_id: str | None = None


class Outcome(StrEnum):
    """How an item ended in one run."""

    COMPLETED = "completed"
    FAILED = "failed"
    """The agent failed; or its job is gone (410, or 404 beyond its grace), as `error` then says."""
    ARCHIVED = "archived"
    REJECTED = "rejected"
    """Refused by the server, or before anything was sent: no agent was started."""
    UNKNOWN = "unknown"
    """An agent may have been started. The item is not sent again unless `Journal.resolve` says so."""
    TIMED_OUT = "timed_out"
    """Its time ran out; the next run takes it up again."""
    UNFINISHED = "unfinished"
    """Its job can't be read; the next run takes it up again."""


@frozen
class BatchResult:
    """How one item ended in this run.

    Attributes:
        item: The item.
        outcome: How it ended.
        job: The job that ended, or as it was seen last; `None` when none was seen.
        error: Why there is no ended job; `None` when there is one. A `failed` item whose job is gone has one, too.
        ref: The job, also where it was not seen; `None` when no id is known.
    """

    item: BatchItem
    outcome: Outcome
    job: AgentJob | None = None
    error: Exception | None = None
    ref: JobRef | None = None


Refusals = list[tuple[BatchItem, InvalidInputError]]
"""Items that are refused, each with the reason."""


def check_items(items: Iterable[BatchItem]) -> tuple[list[BatchItem], Refusals]:
    """Return the items that can be sent, and those that can't."""
    good: list[BatchItem] = []
    refused: Refusals = []
    for item in items:
        try:
            good.append(checked_item(item))
        except InvalidInputError as error:
            refused.append((item, error))
    return good, refused


def checked_item(item: object) -> BatchItem:
    """Return `item` when it can be sent.

    Raises:
        InvalidInputError: It is no `BatchItem`, or its key, prompt or project can't be sent, and why.
    """
    if not isinstance(item, BatchItem):
        raise InvalidInputError(f"items must be BatchItems, such as BatchItem(key, prompt), not {type(item).__name__}")
    checked_name("key", item.key)
    checked_prompt("prompt", item.prompt)
    if item.project_id is not None:
        checked_id("project_id", item.project_id)
    return item
