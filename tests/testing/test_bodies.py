"""Bodies that a decoder must not trust."""

import gzip
import json
import zlib

import pytest

from agentjobs_async.testing._bodies import FORMS, bomb, compressed, padded

TEXT = json.dumps({"id": "job_1", "status": "active"})


@pytest.mark.parametrize("form", ["latin-1", "utf-16", "utf-8"])
def test_broken_encodings(form: str) -> None:
    """A body in another encoding is not UTF-8."""
    with pytest.raises(UnicodeDecodeError):
        FORMS[form](TEXT).decode()


@pytest.mark.parametrize("form", ["html", "empty", "text", "cut", "bom"])
def test_not_json(form: str) -> None:
    """These bodies are UTF-8, and no JSON."""
    with pytest.raises(json.JSONDecodeError):
        json.loads(FORMS[form](TEXT).decode())


@pytest.mark.parametrize(("form", "error"), [("deep", RecursionError), ("number", ValueError)])
def test_beyond_a_decoder(form: str, error: type[Exception]) -> None:
    """These bodies are JSON that is too much for a decoder."""
    with pytest.raises(error):
        json.loads(FORMS[form](TEXT))


@pytest.mark.parametrize(
    ("form", "kind"), [("null", type(None)), ("list", list), ("string", str), ("error", dict), ("nan", dict)]
)
def test_wrong_shapes(form: str, kind: type) -> None:
    """These bodies are JSON of another shape, or of values that JSON doesn't have."""
    assert type(json.loads(FORMS[form](TEXT))) is kind


def test_lone_surrogate() -> None:
    """The model is half a character."""
    assert json.loads(FORMS["surrogate"](TEXT))["model"] == "\ud800"


def test_key_twice() -> None:
    """The status is there twice, with two values."""
    pairs = json.loads(FORMS["twice"](TEXT), object_pairs_hook=list)
    assert [value for name, value in pairs if name == "status"] == ["completed", "active"]


def test_padded() -> None:
    """White space makes a document as long as asked for, and never shorter than it is."""
    assert len(padded(TEXT, 1000)) == 1000
    assert padded(TEXT, 1) == TEXT.encode()


def test_compressed() -> None:
    """A good form decompresses, a cut one ends early, a false one was never compressed."""
    assert gzip.decompress(compressed("", TEXT, 0)).decode() == TEXT
    with pytest.raises(EOFError):
        gzip.decompress(compressed("cut", TEXT, 0))
    assert compressed("false", TEXT, 0).decode() == TEXT


def test_bomb() -> None:
    """A bomb is small, and grows to the document and the white space asked for."""
    small = compressed("bomb", TEXT, 8 * 1_048_576)
    assert small == bomb(TEXT, 8 * 1_048_576)
    assert len(small) < 10_000
    grown = zlib.decompressobj(-zlib.MAX_WBITS).decompress(small[10:])
    assert (len(grown), grown.decode().strip()) == (len(TEXT) + 8 * 1_048_576, TEXT)
