"""Faults and plans as values, and the words of their text."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async.testing import Fault, FaultPlan
from agentjobs_async.testing._faults.fault import FAULTS, check_kind, check_option, json_or_plain, plain, split
from agentjobs_async.testing._faults.kinds import is_status
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
    """The last of several values is the value of an option; without a value it has none."""
    fault = Fault.parse('429 retry-after=2 retry-after="a b"')
    assert (fault.values("retry-after"), fault.option("retry-after"), fault.option("date")) == (
        ["2", "a b"],
        "a b",
        None,
    )


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
    """The error for a misspelt kind names the nearest one, or says what a status is; otherwise it has no advice."""
    with pytest.raises(ValueError, match=r"did you mean hang:body\?"):
        check_kind("hang", "bdy")
    with pytest.raises(ValueError, match=r"^no such fault: 50; an HTTP status has three digits$"):
        check_kind("50", "")
    with pytest.raises(ValueError, match=r"^no such fault: zzz$"):
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
