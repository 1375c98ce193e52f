"""The words of faults."""

import pytest

from agentjobs_async.testing.faults.grammar import check_kind, check_option, is_status, json_or_plain, plain, split
from tests.rows import failures


def test_split_keeps_quotes_together() -> None:
    """White space splits a text, except in quotes."""
    assert split(r' 500  error="not \" now" x2 ') == ["500", r'error="not \" now"', "x2"]


def test_split_refuses_an_open_quote() -> None:
    """An open quote raises an error that shows the text."""
    with pytest.raises(ValueError, match="a quote is open"):
        split('500 error="now')


def test_statuses() -> None:
    """A status has three digits, the first not 0."""
    assert [text for text in ("", "99", "099", "100", "999", "1000") if is_status(text)] == ["100", "999"]


def test_unknown_kinds() -> None:
    """A kind that does not exist with that `where` raises an error that names it."""

    def check(kind: str, where: str) -> None:
        with pytest.raises(ValueError, match=f"no such fault: {kind}"):
            check_kind(kind, where)

    rows = [("reset", "nowhere"), ("explode", ""), ("500", "body"), ("missing", ""), ("endless", "")]
    assert failures(check, *rows) == {}


def test_near_kinds() -> None:
    """The error for a misspelt kind names the nearest one; otherwise it says where kinds are listed."""
    with pytest.raises(ValueError, match=r"did you mean hang:body\?"):
        check_kind("hang", "bdy")
    with pytest.raises(ValueError, match=r"help\(Fault\) lists them all"):
        check_kind("zzz", "")


def test_unreadable_options() -> None:
    """An option that a kind does not have, or whose value is not valid, raises an error that says so."""

    def check(kind: str, name: str, text: str, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            check_option(kind, name, text)

    rows = [
        ("ok", "by", "1", "no option by"),
        ("short", "by", "-1", "by must be a whole number from 0 on, not -1"),
        ("hang", "for", "nan", "for must be a number from 0 on, not nan"),
        ("hang", "for", "long", "for must be a number from 0 on, not long"),
        ("short", "by", "1.5", "by must be a whole number from 0 on, not 1.5"),
        ("500", "error", "two words", "needs quotes"),
        ("ok", "code", "99", "no such status"),
    ]
    assert failures(check, *rows) == {}


def test_values() -> None:
    """Text may be in quotes; a field is JSON, or else text."""
    assert [plain('"a b"'), plain("ab"), plain("7")] == ["a b", "ab", "7"]
    assert [json_or_plain(text) for text in ("null", "7", '"7"', "../x")] == [None, 7, "7", "../x"]
