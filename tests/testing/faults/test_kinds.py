"""The table of fault kinds."""

from agentjobs_async.testing import Fault
from agentjobs_async.testing._faults.kinds import KINDS, Kind
from tests.rows import failures


def test_padded() -> None:
    """White space pads a document to the size, and never shortens it."""
    padded = KINDS["padded"].body
    assert padded("{}", "", 1000) == b"{}" + b" " * 998
    assert padded("{}", "", 1) == b"{}"


def test_help() -> None:
    """The help of `Fault` has every kind, each `where` and the default of its number."""

    def check(name: str, kind: Kind) -> None:
        heading, text = str(Fault.__doc__).split(f"- ``{name}", 1)[1].split("\n", 1)
        assert all(where in heading for where in kind.where or ["FIELD"])
        assert kind.amount is None or f" {kind.amount.name}={kind.amount.default:.15g}" in heading
        assert text.split()[0] == kind.help.split()[0]

    assert failures(check, *KINDS.items()) == {}
