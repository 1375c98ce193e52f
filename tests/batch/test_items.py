"""What an item may be."""

import math
from typing import Any

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import BatchItem, check_items
from agentjobs_async.batch.items import checked_item

DEEP: dict[str, Any] = {}
for _ in range(100_000):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    "context",
    [
        "secret",
        ["secret"],
        {"secret": {1, 2}},
        {1: "secret"},
        {"secret": math.nan},
        {"secret": ("a", "tuple")},
        {"secret": "\ud800"},
        {"secret": "x" * 16_384},
        {"secret": "ü" * 8_192},
        DEEP,
    ],
    ids=["text", "list", "set", "number as name", "nan", "tuple", "surrogate", "long", "many bytes", "deep"],
)
def test_wrong_contexts(context: Any) -> None:
    """A context that is no JSON object, or is too large, is refused, without a word of what it holds."""
    with pytest.raises(InvalidInputError, match="context must") as caught:
        checked_item(BatchItem("k", "p", context=context))
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None
    assert len(check_items([BatchItem("k", "p", context=context)])[1]) == 1


def test_contexts() -> None:
    """Any JSON object of up to 16 KiB is a context; the item can be hashed as before, and its repr leaves it out."""
    for context in ({}, {"a": [1, 2.5, "x\0", None, True, {"b": []}]}, {"a": "x" * 16_375}):
        item = BatchItem("k", "p", context=context)
        assert checked_item(item) is item
        assert hash(item) == hash(BatchItem("k", "p"))
        assert "x" not in repr(item).replace("context", "")
