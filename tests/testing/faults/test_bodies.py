"""Documents and bodies under a fault."""

import gzip
import json

import pytest

from agentjobs_async.testing._faults.bodies import FORMS, GZIP_FORMS

TEXT = json.dumps({"id": "job_1", "status": "active"})


FAILURES: dict[str, type[Exception]] = {
    **dict.fromkeys(("latin-1", "utf-16", "utf-8"), UnicodeDecodeError),
    **dict.fromkeys(("html", "empty", "text", "cut", "bom"), json.JSONDecodeError),
    "deep": RecursionError,
    "number": ValueError,
}
SHAPES = {"null": type(None), "list": list, "string": str, "error": dict, "nan": dict}


def failure(form: str) -> type[Exception] | None:
    """Return how reading a body of that form fails."""
    try:
        json.loads(FORMS[form](TEXT).decode())
    except (ValueError, RecursionError) as error:
        return type(error)
    return None


def test_forms() -> None:
    """A body is no UTF-8, no JSON, beyond the limits of a decoder, or JSON of another shape or with a strange value."""
    assert {form: failure(form) for form in FAILURES} == FAILURES
    assert {form: type(json.loads(FORMS[form](TEXT))) for form in SHAPES} == SHAPES
    assert json.loads(FORMS["surrogate"](TEXT))["model"] == "\ud800"


def test_key_twice() -> None:
    """The document has the key `status` twice, with two values."""
    pairs = json.loads(FORMS["twice"](TEXT), object_pairs_hook=list)
    assert [value for name, value in pairs if name == "status"] == ["completed", "active"]


def test_compressed() -> None:
    """The good form decompresses, the cut one ends early, the false one is not compressed."""
    assert gzip.decompress(GZIP_FORMS[""](TEXT, 0)).decode() == TEXT
    with pytest.raises(EOFError):
        gzip.decompress(GZIP_FORMS["cut"](TEXT, 0))
    assert GZIP_FORMS["false"](TEXT, 0).decode() == TEXT


def test_bomb() -> None:
    """A bomb of any size, a multiple of a block or not, is small, expands by that size and has a valid checksum."""
    for size in (0, 1, 1000, 1_048_575, 8 * 1_048_576):
        small = GZIP_FORMS["bomb"](TEXT, size)
        assert len(small) < 10_000
        assert gzip.decompress(small) == TEXT.encode() + b" " * size
