"""What an item may be."""

import math
from types import MappingProxyType
from typing import Any

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import BatchItem, check_items
from agentjobs_async.batch.items import checked_item

WRONG_CONTEXTS: dict[str, Any] = {
    "text": "secret",
    "list": ["secret"],
    "set": {"secret": {1, 2}},
    "number as name": {1: "secret"},
    "nan": {"secret": math.nan},
    "tuple": {"secret": ("a", "tuple")},
    "surrogate": {"secret": "\ud800"},
    "long": {"secret": "x" * 16_384},
    "many bytes": {"secret": "ü" * 8_192},
}


def deep() -> dict[str, Any]:
    """Return a context of 100,000 levels."""
    context: dict[str, Any] = {}
    for _ in range(100_000):
        context = {"a": context}
    return context


def test_wrong_contexts() -> None:
    """A context that is no JSON object, or is too large, is refused, without a word of what it holds."""
    for name, context in (WRONG_CONTEXTS | {"deep": deep()}).items():
        with pytest.raises(InvalidInputError, match="context must") as caught:
            checked_item(BatchItem("k", "p", context=context))
        assert "secret" not in str(caught.value), name
        assert caught.value.__context__ is None, name
        assert len(check_items([BatchItem("k", "p", context=context)])[1]) == 1, name


def test_wrong_extras() -> None:
    """An extra that is no JSON object, or is too large, is refused, without a word of what it holds."""
    for name, extra in (WRONG_CONTEXTS | {"deep": deep(), "mapping": MappingProxyType({"a": "secret"})}).items():
        with pytest.raises(InvalidInputError, match="extra must") as caught:
            checked_item(BatchItem("k", "p", extra=extra))
        assert "secret" not in str(caught.value), name
        assert caught.value.__context__ is None, name
        assert len(check_items([BatchItem("k", "p", extra=extra)])[1]) == 1, name


def test_contexts() -> None:
    """Any JSON object of up to 16 KiB is a context or extra; the item's hash and its repr leave it out."""
    for context in ({}, {"a": [1, 2.5, "x\0", None, True, {"b": []}]}, {"a": "x" * 16_375}):
        item = BatchItem("k", "p", context=context, extra=context)
        assert checked_item(item) is item
        assert hash(item) == hash(BatchItem("k", "p"))
        assert "x" not in repr(item).replace("context", "").replace("extra", "")
