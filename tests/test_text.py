"""Text made fit to be shown."""

from datetime import UTC, datetime, timedelta, timezone
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._text import error_text, limit, local_time, one_line, shown_name, shown_status, span
from agentjobs_async.models import JobStatus


def test_one_line() -> None:
    """Unprintable characters are escaped as Python does; anything else stays as it is."""
    lines = {
        "plain é ☃": "plain é ☃",
        "": "",
        "a\r\nb\tc": r"a\r\nb\tc",
        "\x1b[31mred\x07\x00": r"\x1b[31mred\x07\x00",
        "\x9b2J\x7f": r"\x9b2J\x7f",
        "\u202egnp.exe\u2028": r"\u202egnp.exe\u2028",
        "\ud800": r"\ud800",
    }
    assert {text: one_line(text) for text in lines} == lines


def test_bound() -> None:
    """The bound, 2 KiB by default, is in bytes of UTF-8, the ellipsis included, and cuts no character in two."""
    lines = {
        "a" * 10: "a" * 10,
        "a" * 11: "a" * 7 + "…",
        "é" * 6: "é" * 3 + "…",
        "é" * 5: "é" * 5,
        "\n" * 6: r"\n\n\n" + "\\…",
    }
    assert {text: one_line(text, 10) for text in lines} == lines
    assert one_line("a" * 2048) == "a" * 2048
    assert one_line("a" * 1_000_000) == "a" * 2045 + "…"


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


def test_words_of() -> None:
    """A foreign exception is told in one line, by its type when it has no words or can't say them."""
    errors = [ValueError("two\nlines"), ValueError(), Speechless()]
    assert [error_text(error) for error in errors] == [r"two\nlines", "ValueError", "Speechless"]


def test_shown_name_and_status() -> None:
    """A job is named as by its token, also where no token is possible; a status is shown as one bounded line."""
    assert shown_name("my docs", "job_1") == "my~20docs~.job_1"
    assert shown_name("", "a/\ud800") == "~.a~2F~3F"
    assert shown_status(JobStatus.ACTIVE) == "active"
    assert shown_status("odd\n\x1b[2J") == r"odd\n\x1b[2J"
    assert len(shown_status("x" * 1000).encode()) == 200


def test_span() -> None:
    """A span of time is told in the unit that fits it."""
    found = [span(seconds) for seconds in (0.0, 0.42, 0.97, 59.0, 59.6, 61.0, 3590.0, 5400.0, 2e5, 1e7, 1e9)]
    assert found == ["0 s", "0.4 s", "1 s", "59 s", "1 min", "1 min", "1 h", "1.5 h", "55.6 h", "116 days", "32 years"]


def test_limit() -> None:
    """A limit is told exactly below an hour, and from there on in the unit that fits it; never as a power of ten."""
    assert [limit(seconds) for seconds in (0.25, 90.0, 3600.0, 1e9, inf)] == [
        "0.25 s",
        "90 s",
        "1 h",
        "32 years",
        "inf s",
    ]


def test_local_time() -> None:
    """A time is told with its date in this machine's time zone, which is named, whichever zone it is given in."""
    moment = datetime(2025, 3, 3, 14, 5, 9, 700_000).astimezone()
    words = f"Mon 03 Mar 14:05:09 {moment.tzname()}"
    assert local_time(moment) == local_time(moment.astimezone(UTC)) == words
    assert local_time(moment.astimezone(timezone(timedelta(hours=5)))) == words
