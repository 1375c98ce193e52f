"""Text made fit to be shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._text import error_text, one_line, span


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é ☃", "plain é ☃"),
        ("", ""),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x1b[31mred\x07\x00", r"\x1b[31mred\x07\x00"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("\u202egnp.exe\u2028", r"\u202egnp.exe\u2028"),
        ("\ud800", r"\ud800"),
    ],
)
def test_one_line(text: str, shown: str) -> None:
    """Unprintable characters are escaped as Python does; anything else stays as it is."""
    assert one_line(text) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("a" * 10, 10, "a" * 10),
        ("a" * 11, 10, "a" * 7 + "…"),
        ("é" * 6, 10, "é" * 3 + "…"),
        ("é" * 5, 10, "é" * 5),
        ("\n" * 6, 10, r"\n\n\n" + "\\…"),
        ("a" * 1_000_000, 2048, "a" * 2045 + "…"),
    ],
)
def test_bound(text: str, limit: int, shown: str) -> None:
    """The bound is in bytes of UTF-8, the ellipsis included, and cuts no character in two."""
    assert one_line(text, limit) == shown


def test_default_bound() -> None:
    """Without another bound, text is shown up to 2 KiB."""
    assert one_line("a" * 2048) == "a" * 2048
    assert one_line("a" * 2049) == "a" * 2045 + "…"


@given(st.text(), st.integers(3, 100))
def test_any_text(text: str, limit: int) -> None:
    """Any text becomes printable text within the bound; printable text within it stays as it is."""
    shown = one_line(text, limit)
    assert shown.isprintable()
    assert len(shown.encode()) <= limit
    if text.isprintable() and len(text.encode()) <= limit:
        assert shown == text


class Speechless(Exception):  # noqa: N818 - stands for a foreign exception of any name
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "words"),
    [(ValueError("two\nlines"), r"two\nlines"), (ValueError(), "ValueError"), (Speechless(), "Speechless")],
)
def test_words_of(error: Exception, words: str) -> None:
    """A foreign exception is told in one line, by its type when it has no words or can't say them."""
    assert error_text(error) == words


@pytest.mark.parametrize(("seconds", "words"), [(0.4, "0 s"), (59.0, "59 s"), (61.0, "1 min"), (5400.0, "1.5 h")])
def test_span(seconds: float, words: str) -> None:
    """A span of time is told in the unit that fits it."""
    assert span(seconds) == words
