import re

from agentjobs_async.report.texts import link_or_none, shown, span_text


def test_shown() -> None:
    """A text is whole, and what would act on a screen is escaped."""
    wanted = {
        "plain\n\ttext": "plain\n\ttext",
        "a\r\nb": "a\nb",
        "\x00\x1b[0m\x7f": "\\x00\\x1b[0m\\x7f",
        "\u202eabc\u2066": "\\u202eabc\\u2066",
        "\ud800": "\\ud800",
        "\ufeffx\u200b": "\\ufeffx\\u200b",
        "👩‍💻": "👩‍💻",
    }
    assert {text: shown(text) for text in wanted} == wanted
    assert shown("x" * 1_000_000) == "x" * 1_000_000


def test_links() -> None:
    """Only plain http and https links are links."""
    others = ("javascript:alert(1)", "data:text/html,x", "//evil.example", "https://a.example/\u202e", "https://a b")
    assert [text for text in (*others, 'http://a/"', "", None) if link_or_none(text) is not None] == []
    assert link_or_none("https://code.example/pull/1?a=b#c") == "https://code.example/pull/1?a=b#c"


def test_span_text() -> None:
    """A span of time is shown in the unit that suits it, from which no line parts its number."""
    wanted = {
        0: "0 s",
        0.004: "0 s",
        2: "2 s",
        0.25: "0.25 s",
        4.25: "4.3 s",
        59.4: "59 s",
        59.6: "1 min",
        192: "3 min 12 s",
        3599.6: "1 h",
        7500: "2 h 05 min",
    }
    assert {seconds: re.sub("(?<=[0-9])\u00a0", " ", span_text(seconds)) for seconds in wanted} == wanted
