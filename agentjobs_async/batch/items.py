"""The items of a batch, and how they may end."""

import json
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._extra import checked_extra
from agentjobs_async._validation import checked_id, checked_name, checked_prompt

__all__ = [
    "BatchItem",
    "InvalidItems",
    "Outcome",
    "check_context",
    "check_items",
    "checked_item",
    "checked_key",
    "checked_keys",
    "context_text",
]

_LONGEST_CONTEXT_BYTES: Final = 16_384  # a row of a table; 100,000 items may have one
_TRY: Final = re.compile(r"(?<=.)#\d+\Z")  # what the key of a retry may have beyond the longest key of an item


@frozen
class BatchItem:
    """One prompt of a batch. Nothing is checked here: a run gives a `rejected` result for an invalid item.

    Attributes:
        key: Your own name for it, by which later runs recognize it: 1 to 512 characters, no control characters.
        prompt: What the agent is to do: text with more than white space.
        project_id: The project of its job; `None` for that of `Journal.add` or of the session, when it is planned.
        context: A JSON object of your own, of up to 16 KiB, which comes back with the item's row and result; `None` for
            none. If the journal has a row of this key, the context of that row stays.
        extra: More fields of the create's JSON object, such as `{"branch": "main"}`: a JSON object of up to 16 KiB;
            `None` or an empty one for none. The journal keeps it. With another extra, it is another item.
    """

    key: str
    prompt: str = field(repr=False)
    project_id: str | None = None
    context: dict[str, Any] | None = field(default=None, repr=False, hash=False)
    extra: dict[str, Any] | None = field(default=None, repr=False, hash=False)


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
    """Its time ran out; the next run continues with it."""
    ACTIVE = "active"
    """Its job can't be read, and continues as far as known; the next run waits for it."""
    ABANDONED = "abandoned"
    """A person withdrew it or gave it up, by `Journal.abandon`."""


InvalidItems = list[tuple[BatchItem, InvalidInputError]]
"""Items that are invalid, each with the reason."""


def check_items(items: Iterable[BatchItem]) -> tuple[list[BatchItem], InvalidItems]:
    """Return the items that can be sent, and those that can't."""
    good: list[BatchItem] = []
    invalid: InvalidItems = []
    for item in items:
        try:
            good.append(checked_item(item))
        except InvalidInputError as error:
            invalid.append((item, error))
    return good, invalid


def checked_item(item: object) -> BatchItem:
    """Return `item` when it can be sent.

    Raises:
        InvalidInputError: It is no `BatchItem`, or its key, prompt, project or extra can't be sent, or its context
            can't be stored, and why.
    """
    if not isinstance(item, BatchItem):
        raise InvalidInputError(f"items must be BatchItems, such as BatchItem(key, prompt), not {type(item).__name__}")
    checked_name("key", item.key)
    checked_prompt("prompt", item.prompt)
    if item.project_id is not None:
        checked_id("project_id", item.project_id)
    if item.context is not None:
        check_context(item.context)
    if item.extra is not None:
        _check_extra(item.extra)
    return item


def checked_key(key: object) -> str:
    """Return `key` if it can be that of an item, or of one of its tries.

    Raises:
        InvalidInputError: It is not a string of 1 to 512 characters, without the number of the try, or contains control
            characters or surrogates.
    """
    checked_name("key", _TRY.sub("", key) if isinstance(key, str) else key)
    return str(key)


def checked_keys(keys: object) -> list[str]:
    """Return `keys` as a list.

    Raises:
        InvalidInputError: They are no sequence, or one of them can be no key, as by `checked_key`.
    """
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence):
        raise InvalidInputError(f"keys must be a sequence of keys, not {type(keys).__name__}")
    return list(map(checked_key, keys))


def check_context(context: object) -> None:
    """Check that `context` can be that of an item.

    Raises:
        InvalidInputError: It is no dict, is not JSON, or has more than 16 KiB as JSON.
    """
    if not isinstance(context, dict):
        raise InvalidInputError(f"context must be a dict, as of a JSON object, not {type(context).__name__}")
    try:
        text = context_text(context) or ""
        same, size = json.loads(text) == context, len(text.encode())
    except (TypeError, ValueError, RecursionError):
        same, size = False, 0
    # Raised outside of the handler: inside of it, an error that may quote the context would become its context.
    if not same:
        raise InvalidInputError("context must be JSON: dicts, lists, strings, finite numbers, booleans and None")
    if size > _LONGEST_CONTEXT_BYTES:
        raise InvalidInputError(f"context must have at most {_LONGEST_CONTEXT_BYTES} bytes as JSON, not {size}")


def _check_extra(extra: object) -> None:
    if not isinstance(extra, dict):
        raise InvalidInputError(f"extra must be a dict, as of a JSON object, not {type(extra).__name__}")
    checked_extra(extra)  # which fields the create has already is known where it is sent


def context_text(context: dict[str, Any] | None) -> str | None:
    """Return a context as the journal stores it: JSON without spaces; `None` without one."""
    return None if context is None else json.dumps(context, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
