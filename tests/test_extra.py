"""What more fields of a create must be, and the text by which they are kept and compared."""

import json
from collections import ChainMap
from collections.abc import Iterator
from math import inf, nan
from typing import Any

import pytest

from agentjobs_async._extra import checked_extra, extra_text
from agentjobs_async.errors import InvalidInputError

SECRET = "hunter2"
LONGEST = "x" * (16_384 - len('{"a":""}'))


def deep(levels: int) -> dict[str, Any]:
    value: Any = SECRET
    for _ in range(levels):
        value = [value]
    return {"a": value}


def test_copy() -> None:
    """An extra is any mapping of JSON values; what is returned shares nothing with it."""
    given = {"branch": "main", "tags": ["a", {"b": None}], "depth": 3, "part": 0.5, "draft": True, "é": "🙂"}
    copy = checked_extra(ChainMap(given))
    assert copy == given
    assert type(copy) is dict
    given["tags"][1]["b"] = 1  # type: ignore[index]  # a list of dicts
    assert copy["tags"] == ["a", {"b": None}]


def test_size() -> None:
    """An extra has at most 16 KiB as JSON."""
    assert checked_extra({"a": LONGEST}) == {"a": LONGEST}
    with pytest.raises(InvalidInputError, match=r"at most 16384 bytes as JSON, not 16385$"):
        checked_extra({"a": LONGEST + "x"})


@pytest.mark.parametrize(
    "wrong",
    [
        *({"a": SECRET, "b": value} for value in (nan, inf, -inf, b"x", {1}, (1, 2), object(), "\ud800")),
        *({"a": {key: SECRET}} for key in (1, None, True, (1,), "\udfff")),
        {1: SECRET},
        {1: SECRET, "a": SECRET},
        {"\ud800": SECRET},
        deep(100_000),
    ],
    ids=lambda wrong: repr(wrong)[:40] if len(wrong) < 3 and "a" not in wrong else None,
)
def test_no_json(wrong: Any) -> None:
    """Whatever JSON does not keep as it is gets refused, and is not quoted."""
    with pytest.raises(InvalidInputError, match=r"^extra must be JSON") as caught:
        checked_extra(wrong)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("wrong", ["branch=main", [("a", 1)], 5, None, {"a"}])
def test_no_mapping(wrong: Any) -> None:
    """An extra is a mapping; its type is named otherwise."""
    with pytest.raises(
        InvalidInputError, match=rf"^extra must be a dict, as of a JSON object, not {type(wrong).__name__}"
    ):
        checked_extra(wrong)


def test_taken() -> None:
    """An extra may not name a field that the create has already: the prompt, unless others are named."""
    assert checked_extra({"prompt": "x"}) == {"prompt": "x"}
    with pytest.raises(InvalidInputError, match=r"^extra must not have 'task': "):
        checked_extra({"prompt": "x", "task": "y"}, fields={"task"})


def test_text() -> None:
    """Equal extras have equal texts, whatever the order of their fields; none and an empty one have none."""
    first, second = {"b": {"y": 1, "x": "é"}, "a": None}, {"a": None, "b": {"x": "é", "y": 1}}
    assert extra_text(first) == extra_text(second) == '{"a":null,"b":{"x":"é","y":1}}'
    assert json.loads(extra_text(first) or "") == first
    assert extra_text(None) is extra_text({}) is None


def test_broken_mapping() -> None:
    """A mapping that fails with an error of a wrong value is refused as one that is not JSON."""

    class Broken(dict[str, Any]):
        def keys(self) -> Any:
            raise ValueError(SECRET)

        def __iter__(self) -> Iterator[str]:
            raise ValueError(SECRET)

    with pytest.raises(InvalidInputError, match=r"^extra must be JSON"):
        checked_extra(Broken(a=1))
