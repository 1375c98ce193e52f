"""Documents and bodies under a fault."""

import gzip
import json
import zlib

import pytest

from agentjobs_async.testing.faults.bodies import FORMS, bomb, compressed, padded

TEXT = json.dumps({"id": "job_1", "status": "active"})


@pytest.mark.parametrize("form", ["latin-1", "utf-16", "utf-8"])
def test_broken_encodings(form: str) -> None:
    """A body in another encoding is not UTF-8."""
    with pytest.raises(UnicodeDecodeError):
        FORMS[form](TEXT).decode()


@pytest.mark.parametrize("form", ["html", "empty", "text", "cut", "bom"])
def test_not_json(form: str) -> None:
    """These bodies are UTF-8 but not JSON."""
    with pytest.raises(json.JSONDecodeError):
        json.loads(FORMS[form](TEXT).decode())


@pytest.mark.parametrize(("form", "error"), [("deep", RecursionError), ("number", ValueError)])
def test_beyond_a_decoder(form: str, error: type[Exception]) -> None:
    """These bodies are JSON beyond the limits of a decoder."""
    with pytest.raises(error):
        json.loads(FORMS[form](TEXT))


@pytest.mark.parametrize(
    ("form", "kind"), [("null", type(None)), ("list", list), ("string", str), ("error", dict), ("nan", dict)]
)
def test_wrong_shapes(form: str, kind: type) -> None:
    """These bodies are JSON of another shape, or with a value that JSON does not have."""
    assert type(json.loads(FORMS[form](TEXT))) is kind


def test_lone_surrogate() -> None:
    """The model is a lone surrogate."""
    assert json.loads(FORMS["surrogate"](TEXT))["model"] == "\ud800"


def test_key_twice() -> None:
    """The document has the key `status` twice, with two values."""
    pairs = json.loads(FORMS["twice"](TEXT), object_pairs_hook=list)
    assert [value for name, value in pairs if name == "status"] == ["completed", "active"]


def test_padded() -> None:
    """White space pads a document to the size, and never shortens it."""
    assert len(padded(TEXT, 1000)) == 1000
    assert padded(TEXT, 1) == TEXT.encode()


def test_compressed() -> None:
    """The good form decompresses, the cut one ends early, the false one is not compressed."""
    assert gzip.decompress(compressed("", TEXT, 0)).decode() == TEXT
    with pytest.raises(EOFError):
        gzip.decompress(compressed("cut", TEXT, 0))
    assert compressed("false", TEXT, 0).decode() == TEXT


def test_bomb() -> None:
    """A bomb is small, and expands to the document and its white space."""
    small = compressed("bomb", TEXT, 8 * 1_048_576)
    assert small == bomb(TEXT, 8 * 1_048_576)
    assert len(small) < 10_000
    grown = zlib.decompressobj(-zlib.MAX_WBITS).decompress(small[10:])
    assert (len(grown), grown.decode().strip()) == (len(TEXT) + 8 * 1_048_576, TEXT)


@pytest.mark.parametrize("size", [0, 1, 1000, 1_048_575, 3_000_000])
def test_bomb_of_any_size(size: int) -> None:
    """A bomb of any size, a multiple of a block or not, expands by that size and has a valid checksum."""
    assert gzip.decompress(bomb(TEXT, size)) == TEXT.encode() + b" " * size
