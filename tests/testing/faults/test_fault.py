"""Faults and plans as values."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async.testing import Fault, FaultPlan
from agentjobs_async.testing.faults.grammar import FAULTS
from tests.rows import failures


def test_parse_reads_every_part() -> None:
    """The text form holds kind, where, options, operation, agent and count."""
    fault = Fault.parse('hang:body for=2.5 header.X="a b" on=get agent=no x3')
    assert fault == Fault(
        "hang", "body", options=(("for", "2.5"), ("header.X", '"a b"')), on="get", agent=False, times=3
    )
    assert Fault.parse("500 agent=yes forever") == Fault("500", agent=True, times=None)


@given(
    st.sampled_from([*FAULTS, "missing:status", "429", "999"]),
    st.lists(
        st.tuples(st.sampled_from(["retry-after", "location", "header.X"]), st.from_regex("[!#-~]*", fullmatch=True))
    ),
    st.sampled_from([None, "create", "get"]),
    st.sampled_from([None, True, False]),
    st.sampled_from([None, 1, 2, 1000]),
)
def test_text_parses_back(name: str, options: list[tuple[str, str]], on: object, agent: object, times: object) -> None:
    """Writing any fault and parsing its text gives the same fault."""
    kind, _, where = name.partition(":")
    fault = Fault(kind, where, options=tuple(options), on=on, agent=agent, times=times)  # type: ignore[arg-type]  # as above
    assert Fault.parse(str(fault)) == fault


def test_parse_refuses() -> None:
    """A text that is no fault raises a ValueError that says what is wrong."""

    def check(text: str, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            Fault.parse(text)

    rows = [
        ("", "missing"),
        ("500 then 500", "not an option: then"),
        ("500 on=delete", "on must be one of create, get"),
        ("500 agent=maybe", "agent must be one of yes, no"),
        ("500 x0", "at least one"),
        ("unheard-of", "no such fault"),
    ]
    assert failures(check, *rows) == {}


def test_starts_agent() -> None:
    """A create starts the agent unless the status denies it or the fault says otherwise."""
    started = ["reset", "hang:body", "body:html", "ok", "201", "500", "303", "600", "429 agent=yes"]
    denied = ["302", "400", "429", "body:html code=404", "reset agent=no"]
    assert [text for text in (*started, *denied) if Fault.parse(text).starts_agent] == started


def test_options_by_name() -> None:
    """The last of several values is the value of an option, and a number has a default."""
    fault = Fault.parse('429 retry-after=2 retry-after="a b"')
    assert (fault.values("retry-after"), fault.option("retry-after"), fault.option("date")) == (
        ["2", "a b"],
        "a b",
        None,
    )
    assert (fault.number("by", 3), Fault.parse("short by=4").number("by", 3)) == (3, 4)


def test_amount() -> None:
    """The amount is the number of the kind's own option, by default the kind's own."""
    assert [Fault.parse(text).amount for text in ("short by=4", "short", "500")] == [4, 10, 0]


def test_fields() -> None:
    """The fields are the options that are neither the kind's number nor a part of the answer."""
    assert list(Fault.parse("surplus after=1 code=200 id=7 header.X=1").fields()) == [("id", 7)]
    assert list(Fault.parse("500 error=7").fields()) == [("error", "7")]


def test_plan_parses_back() -> None:
    """A plan is faults joined by `then`, and its text parses back."""
    text = 'reset:headers x2 then 429 retry-after="then 2" then ok forever'
    plan = FaultPlan.parse(text)
    assert [fault.kind for fault in plan.steps] == ["reset", "429", "ok"]
    assert str(plan) == text


def test_plan_of() -> None:
    """A text, a fault and a plan all stand for a plan."""
    plan = FaultPlan((Fault("500"),))
    assert FaultPlan.of("500") == FaultPlan.of(Fault("500")) == FaultPlan.of(plan) == plan


def test_values_travel() -> None:
    """Plans can be pickled, and hash by value."""
    plan = FaultPlan.parse("500 x2 then hang:body")
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - our own bytes
    assert hash(plan) == hash(FaultPlan.parse(str(plan)))
