"""What goes into a batch and what comes out of it."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from attrs import field, frozen

from agentjobs_async import AgentJob, InvalidInputError, JobRef

__all__ = ["BatchItem", "BatchResult", "Outcome", "Refusals", "check_items", "checked_item", "checked_key"]

_LONGEST_KEY: Final = 512
_CONTROL_OR_SURROGATE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


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
    ARCHIVED = "archived"
    REJECTED = "rejected"
    """Refused, by the service or before anything was sent: no agent was started."""
    UNKNOWN = "unknown"
    """An agent may have been started, and nobody can tell; it is not sent again unless somebody says so."""
    TIMED_OUT = "timed_out"
    """Its time ran out; the next run takes it up again."""
    UNFINISHED = "unfinished"
    """Its job can't be read; the next run takes it up again."""


@frozen
class BatchResult:
    """How one item ended in this run.

    Attributes:
        item: The item.
        outcome: One of the `Outcome`s.
        job: The job that ended, or as it was seen last; `None` when none was seen.
        error: Why there is no ended job; `None` when there is one.
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
    """Give the items that can be sent, and those that can't."""
    good: list[BatchItem] = []
    refused: Refusals = []
    for item in items:
        try:
            good.append(checked_item(item))
        except InvalidInputError as error:
            refused.append((item, error))
    return good, refused


def checked_item(item: object) -> BatchItem:
    """Give `item` when it can be sent.

    Raises:
        InvalidInputError: It is no `BatchItem`, or its key, prompt or project can't be sent, and why.
    """
    if not isinstance(item, BatchItem):
        raise InvalidInputError(f"items must be BatchItems, such as BatchItem(key, prompt), not {type(item).__name__}")
    checked_key(item.key)
    if not isinstance(item.prompt, str):
        raise InvalidInputError(f"prompt must be a string, not {type(item.prompt).__name__}")
    if not item.prompt.strip():
        raise InvalidInputError("prompt is blank: it must say something")
    if re.search("[\ud800-\udfff]", item.prompt):
        raise InvalidInputError("prompt must not contain surrogates: it can't be sent as UTF-8")
    if item.project_id is not None:
        JobRef(item.project_id, "any")
    return item


def checked_key(key: object) -> str:
    """Give `key` when it can name an item.

    Raises:
        InvalidInputError: It is no string of 1 to 512 characters, or has control characters or surrogates.
    """
    if not isinstance(key, str):
        raise InvalidInputError(f"key must be a string, not {type(key).__name__}")
    if not 0 < len(key) <= _LONGEST_KEY:
        raise InvalidInputError(f"key must have 1 to {_LONGEST_KEY} characters, not {len(key)}")
    if _CONTROL_OR_SURROGATE.search(key):
        raise InvalidInputError("key must not contain control characters or surrogates")
    return key
