"""Jobs and the references that find them again."""

import copy
import pickle
from datetime import UTC, datetime
from string import ascii_letters, digits
from typing import Any
from urllib.parse import quote, unquote

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError
from hypothesis import example, given
from hypothesis import strategies as st

from agentjobs_async._validation import MAX_NAME_LENGTH, checked_id
from agentjobs_async.errors import InvalidInputError, JobFailedError
from agentjobs_async.models import AgentJob, JobRef, JobSource, JobStatus
from tests.ids import LEGAL_IDS
from tests.rows import failures

JOB = AgentJob(
    "job_1",
    "docs",
    "completed",
    JobSource("acme/docs", "main"),
    "large",
    "https://example.com/pull/1",
    datetime(2026, 1, 2, tzinfo=UTC),
    datetime(2026, 1, 3, tzinfo=UTC),
    {"id": "job_1", "extra": [1]},
)

ILLEGAL_IDS: list[Any] = [
    *("", ".", "..", "a" * (MAX_NAME_LENGTH + 1), "a\x00", "a\r\nb", "\x7f", "\x9f", "\ud800", "a\udfff"),
    *(None, 7, True, b"job", ["job"]),
]


def unpickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def test_illegal_ids() -> None:
    """What can't be one segment of a path is refused, by the name of the parameter, on one line; a ref holds none."""

    def check(value: Any) -> None:
        with pytest.raises(InvalidInputError, match=r"^the_id must ") as caught:
            checked_id("the_id", value)
        assert str(caught.value).isprintable()
        with pytest.raises(InvalidInputError, match=r"^project_id must"):
            JobRef(value, "job")
        with pytest.raises(InvalidInputError, match=r"^job_id must"):
            JobRef("docs", value)

    assert failures(check, *ILLEGAL_IDS) == {}


def test_legal_ids() -> None:
    """Ids are opaque: any other text of 1 to 512 characters is one."""
    legal = ("a", "...", " ", "a/b", "?", "%2e", "\\", "é", "\U0001f680", "a" * 512)
    assert [checked_id("job_id", value) for value in legal] == [*legal]


@given(LEGAL_IDS, LEGAL_IDS)
@example("a/b", "%2F")
@example(" ", "...")
@example("a~b", "~.")
@example("..~", "%2F")
def test_token_round_trip(project_id: str, job_id: str) -> None:
    """A token is a segment of a path that nothing decodes, splits or resolves, and gives the ref back, or in spaces."""
    ref = JobRef(project_id, job_id)
    token = ref.to_token()
    assert set(token) <= set(ascii_letters + digits + "-._~")
    assert unquote(token) == quote(token, safe="") == token
    assert token not in {".", ".."}
    assert JobRef.from_token(token) == ref
    assert JobRef.from_token(f" \t{token}\r\n") == ref


NO_TOKENS = [
    *("", "~.", "docs", "docs~.", "~.job", "a~.b~.c", ".~.job", "docs~...", "a b~.c", "a~.~2e~2e", "a~.~zz", "a~.~ff"),
    *("a~.é", "a~.~2f", "a~.~00", "a~.~ed~a0~80", "a~.~", "a~." + "b" * 513, "a~.\x1b[31m", "a~.\ud800"),
    *("a~b", "a~~b", "a/b", "a~.b/c", "a~.%41", "a~.~41"),
]


def test_no_token() -> None:
    """What `to_token` never gives is refused, shown on one line, and leaves no other error in the chain."""

    def check(text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"not a job token: .*; a token looks like project~.job") as caught:
            JobRef.from_token(text)
        assert str(caught.value).isprintable()
        assert caught.value.__context__ is None

    assert failures(check, *NO_TOKENS) == {}
    with pytest.raises(InvalidInputError, match=r"^not a job token: it is empty; a token looks like"):
        JobRef.from_token(" ")
    others: list[Any] = [None, 7, b"docs~.job"]
    for value in others:
        with pytest.raises(InvalidInputError, match="a token must be a string, not"):
            JobRef.from_token(value)


@given(st.text(max_size=30))
def test_any_text_as_token(text: str) -> None:
    """Any text is a token or an InvalidInputError, and a token only in the one way that `to_token` writes it."""
    try:
        ref = JobRef.from_token(text)
    except InvalidInputError:
        return
    assert text.strip() == ref.to_token()


def test_values() -> None:
    """Models pickle, copy and hash as the values that they are."""
    values: list[Any] = [JOB, JOB.ref, JOB.source]
    for again in (unpickled, copy.copy, copy.deepcopy):
        assert [again(value) for value in values] == values
        assert [hash(again(value)) for value in values] == [*map(hash, values)]


def test_frozen() -> None:
    """Models are frozen, and take up no more room than their fields."""
    for value, name in ((JOB, "status"), (JOB.ref, "job_id"), (JOB.source, "ref")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, "other")
        assert not hasattr(value, "__dict__")


def test_raw_is_beside_the_value() -> None:
    """`raw` survives pickling, and is not in repr, equality or hash."""
    other = evolve(JOB, raw={"secret": "marmalade"})
    assert other == JOB
    assert hash(other) == hash(JOB)
    assert "marmalade" not in repr(other)
    assert unpickled(other).raw == {"secret": "marmalade"}


def test_equality_sees_every_field() -> None:
    """Jobs that differ in anything but `raw` are not equal: that is how a change is noticed."""
    names = ("id", "project_id", "status", "source", "model", "pr_link", "created_at", "archived_at")
    changes: dict[str, Any] = {name: {name: "other"} for name in names}
    assert [name for name, change in changes.items() if evolve(JOB, **change) == JOB] == []
    assert [name for name, change in changes.items() if evolve(JOB, **change) != evolve(JOB, **change)] == []


def test_statuses() -> None:
    """Completed, archived and failed are ends; only completed is success; an unknown status is neither."""
    statuses = ("active", "completed", "archived", "failed", "paused", "Completed")
    jobs = [AgentJob("job", "docs", status) for status in statuses]
    assert [job.status for job in jobs] == [*statuses]
    assert [job.status for job in jobs if job.is_terminal] == ["completed", "archived", "failed"]
    assert [job.status for job in jobs if job.succeeded] == ["completed"]


def test_known_status_is_a_member() -> None:
    """A documented status becomes a JobStatus; any other stays the server's own text."""
    assert AgentJob("job", "docs", "active").status is JobStatus.ACTIVE
    assert type(AgentJob("job", "docs", "paused").status) is str
    assert type(unpickled(AgentJob("job", "docs", "paused")).status) is str


def test_raise_for_status() -> None:
    """A failed job raises itself; any other comes back."""
    failed = evolve(JOB, status="failed")
    with pytest.raises(JobFailedError, match=r"docs~\.job_1") as caught:
        failed.raise_for_status()
    assert caught.value.job is failed
    others = [evolve(JOB, status=status) for status in ("active", "completed", "archived", "paused")]
    assert all(job.raise_for_status() is job for job in others)


def test_ref() -> None:
    """A job knows the ref that finds it again; a hand-made one with an id that can't be polled has none."""
    assert JOB.ref == JobRef("docs", "job_1")
    assert JOB.ref.to_token() == "docs~.job_1"
    with pytest.raises(InvalidInputError, match="job_id"):
        _ = AgentJob("..", "docs", "active").ref


def test_vital_fields_suffice() -> None:
    """Whatever is not vital may be missing."""
    job = AgentJob("job", "docs", "active")
    assert (job.source, job.model, job.pr_link, job.created_at, job.archived_at, job.raw) == (*[None] * 5, {})
    assert JobSource() == JobSource(None, None)


def test_status_of_another_type() -> None:
    """A hand-made job's status is text."""
    status: Any = 5
    with pytest.raises(InvalidInputError, match="status must be a string, not int"):
        AgentJob("job_1", "docs", status)
