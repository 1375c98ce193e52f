"""The table of fault kinds."""

import pytest

from agentjobs_async.testing import Fault
from agentjobs_async.testing.faults.kinds import KINDS, Amount, Kind
from tests.rows import failing


def test_help() -> None:
    """The help of `Fault` has every kind, each `where` and the default of its number."""

    def check(name: str, kind: Kind) -> None:
        heading, text = str(Fault.__doc__).split(f"- ``{name}", 1)[1].split("\n", 1)
        assert all(where in heading for where in kind.where or ["FIELD"])
        assert kind.amount is None or f" {kind.amount.name}={kind.amount.default:.15g}" in heading
        assert text.split()[0] == kind.help.split()[0]

    assert failing(check, KINDS.items()) == {}


def test_where() -> None:
    """A kind has the words of its row after the colon, or the name of any field."""
    assert [where for where in ("", "a", "c") if Kind(help="", where=("a", "b")).has_where(where)] == ["a"]
    assert [where for where in ("", "a", "c") if Kind(help="", where=None).has_where(where)] == ["a", "c"]


def test_options() -> None:
    """A kind has the options of its row; one that sets fields has any."""
    kind = Kind(help="", amount=Amount("by", 1), texts=("error",))
    assert [kind.has_option(name) for name in ("by", "error", "id")] == [True, True, False]
    assert Kind(help="", fields=True).has_option("id")


def test_amounts() -> None:
    """A number is refused by the name of its option, below 0 or where it is not whole."""
    for text, whole in (("-1", False), ("nan", False), ("1.5", True), ("inf", True), ("x", False)):
        with pytest.raises(ValueError, match=r"by must be a .*number from 0 on, not "):
            Amount("by", 1, whole=whole).check(text)
    Amount("by", 1).check("2.5")
