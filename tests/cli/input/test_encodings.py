import pytest

from agentjobs_async.cli._input.encodings import decoded, encoding_of, likely_encoding, undecodable_line
from tests.cli.checks import accepted, unexpected

TEXT = "id,title\r\n7,Größe\r\n"


def test_names_of_encodings() -> None:
    """Any encoding of text that Python has is one, in any of its spellings; nothing else is."""
    for name in ("cp1252", "UTF-16", "utf_16_le", "Latin-1", "mac_roman", "shift_jis"):
        assert encoding_of(name) == name
    wrong = ("rot13", "base64", "hex", "zip", "undefined", "Umlaute", "\x1b", "cp 1252 or so")
    assert accepted(dict.fromkeys(wrong, "is no encoding of text"), encoding_of) == {}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_mark(encoding: str) -> None:
    """The byte order mark is no part of the text, whichever name of its encoding is given."""
    assert decoded(TEXT.encode(encoding), encoding) == TEXT
    assert decoded(f"\ufeff{TEXT}".encode("utf-16-le"), "utf-16-le") == TEXT
    assert decoded(f"\ufeff{TEXT}".encode(), "utf-8") == TEXT


def test_line_of_a_defect() -> None:
    """The first line is named that is not in the encoding, whatever ends the lines, or that has a character NUL."""
    lines = {
        (TEXT.encode(), "utf-8"): None,
        (TEXT.encode("cp1252"), "utf-8"): 2,
        (b"a\rb\nc\r\n\xff", "utf-8"): 4,
        ("a\nb\n".encode("utf-16") + b"x", "utf-16"): 3,
        (b"a\nb\0\n", "utf-8"): 2,
        (b"a\n\x81", "cp1252"): 2,
        (TEXT.encode("utf-8-sig"), "cp1252"): 1,
        (TEXT.encode("utf-8-sig"), "UTF_8"): None,
        (TEXT.encode("utf-8-sig"), "utf-8-sig"): None,
        (b"", "utf-8"): None,
    }
    assert unexpected(lines, lambda row: undecodable_line(*row)) == {}


def test_likely_encoding() -> None:
    """What a file shows of its encoding is found: a mark, bytes of 0, and whether all of it can be read."""
    likely = {
        TEXT.encode(): "utf-8",
        TEXT.encode("utf-16"): "utf-16",
        TEXT.encode("utf-32"): "utf-32",
        TEXT.encode("utf-16-le"): "utf-16-le",
        TEXT.encode("utf-16-be"): "utf-16-be",
        TEXT.encode("cp1252"): "cp1252",
        "für\n".encode("cp850"): "cp850",
        TEXT.encode() + b"\xfc": None,
        TEXT.encode("utf-16") + b"x": None,
        b"\x89PNG\0\0\0\r": None,
        b"Fix the\0 docs\n": None,
    }
    assert unexpected(likely, likely_encoding) == {}
