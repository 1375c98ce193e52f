import io

import pytest

from agentjobs_async.cli.wrapping import fitted, wrapped


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("short", ["short"]),
        ("four words that wrap here", ["four words that wrap", "here"]),
        ("  130  stopped by Ctrl-C; 143 by it", ["  130  stopped by", "      Ctrl-C; 143 by", "      it"]),
        ("a https://example.com/a-long-link b", ["a", "https://example.com/a-long-link", "b"]),
    ],
)
def test_wrapped(line: str, lines: list[str]) -> None:
    """A line is broken between words, further lines stand below its last cell, and no word is cut."""
    assert wrapped(line, 20).split("\n") == lines


def test_indented() -> None:
    """An indentation holds for every line."""
    assert wrapped("four words that wrap", 15, indent=4) == "    four words\n    that wrap"


def test_without_a_terminal() -> None:
    """What is no terminal gets its lines as they are."""
    assert fitted("word " * 100, io.StringIO()) == "word " * 100
