import pytest

from agentjobs_async.report.texts import link_or_none, shown, span_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("a\r\nb", "a\nb"),
        ("\x00\x1b[0m\x7f", "\\x00\\x1b[0m\\x7f"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800", "\\ud800"),
        ("\ufeffx\u200b", "\\ufeffx\\u200b"),
        ("abcdef", "abc…"),
        ("👩‍💻", "👩‍💻"),
    ],
)
def test_shown(text: str, expected: str) -> None:
    """Text is cut, and what would act on a screen is escaped."""
    assert shown(text, 4 if text == "abcdef" else 100) == expected


@pytest.mark.parametrize(
    "text",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "//evil.example",
        "https://a.example/\u202e",
        "https://a b",
        'http://a/"',
        "",
    ],
)
def test_no_link(text: str) -> None:
    """Only plain http and https links are links."""
    assert link_or_none(text) is None
    assert link_or_none(None) is None
    assert link_or_none("https://code.example/pull/1?a=b#c") == "https://code.example/pull/1?a=b#c"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0.00 s"),
        (0.25, "0.25 s"),
        (4.25, "4.3 s"),
        (59.4, "59 s"),
        (192, "3 min 12 s"),
        (3599.6, "60 min 0 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_span_text(seconds: float, expected: str) -> None:
    """A span of time is told in the unit that suits it."""
    assert span_text(seconds) == expected
