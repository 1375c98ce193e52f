"""Jobs and references as JSON, for the standard library, Pydantic and msgspec."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from agentjobs_async import AgentJob, InvalidInputError, JobRef, JobSource, JobStatus
from tests.rows import failures

JOB: Final = AgentJob(
    "job_1",
    "docs",
    "completed",
    JobSource("acme/docs", None),
    "large",
    "https://example.com/pull/1",
    datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC),
    None,
    {"id": "job_1", "extra": [1]},
)
DOCUMENT: Final[dict[str, Any]] = {
    "id": "job_1",
    "project_id": "docs",
    "status": "completed",
    "source": {"repository": "acme/docs", "ref": None},
    "model": "large",
    "pr_link": "https://example.com/pull/1",
    "created_at": "2026-01-02T03:04:05.678900+00:00",
    "archived_at": None,
}
REF: Final = JobRef("a b", "x/y")

TEXTS: Final = st.text(max_size=20)
TIMES: Final = st.none() | st.datetimes(timezones=st.just(UTC))
JOBS: Final = st.builds(
    AgentJob,
    st.text(min_size=1, max_size=20),
    st.text(min_size=1, max_size=20),
    st.sampled_from(JobStatus) | st.text(min_size=1, max_size=20),
    st.none() | st.builds(JobSource, st.none() | TEXTS, st.none() | TEXTS),
    st.none() | TEXTS,
    st.sampled_from([None, "https://code.example/pull/1", "http://[::1]:8080/?q"]),
    TIMES,
    TIMES,
    st.dictionaries(TEXTS, st.none() | st.integers() | TEXTS, max_size=3),
)


def test_document() -> None:
    """The document holds every field in plain JSON types, and `raw` only when asked for."""
    assert JOB.to_dict() == DOCUMENT
    assert type(JOB.to_dict()["status"]) is str
    assert JOB.to_dict(raw=True) == DOCUMENT | {"raw": {"id": "job_1", "extra": [1]}}


@given(JOBS)
def test_taken_back(job: AgentJob) -> None:
    """Any job survives the way through JSON text, with its `raw` where that was asked for."""
    back = AgentJob.from_dict(json.loads(json.dumps(job.to_dict(raw=True))))
    assert (back, back.raw, type(back.status)) == (job, job.raw, type(job.status))
    assert AgentJob.from_dict(job.to_dict()).raw == {}


def test_absent_and_unknown_names() -> None:
    """A field that is absent is `None`; names that are not a job's are ignored, such as those of a later version."""
    lean = AgentJob.from_dict({"id": "job_1", "project_id": "docs", "status": "active", "job": "docs~.job_1", "new": 1})
    assert lean == AgentJob("job_1", "docs", JobStatus.ACTIVE)


def test_time_in_lower_case() -> None:
    """The letters of a time may be lower case, as RFC 3339 allows."""
    job = AgentJob.from_dict(DOCUMENT | {"created_at": "2026-01-02t03:04:05.6789z"})
    assert job.created_at == datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)


def test_time_of_another_zone() -> None:
    """A time with another offset is the same moment, in UTC."""
    job = AgentJob.from_dict(DOCUMENT | {"archived_at": "2026-01-02T05:00:00+02:00"})
    assert job.archived_at == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert job.archived_at.utcoffset() == timedelta(0)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: value}) for name in ("id", "project_id", "status") for value in (None, "", 7)),
    *((name, {name: 7}) for name in ("model", "pr_link", "created_at", "archived_at", "source", "raw")),
    *(("created_at", {"created_at": text}) for text in ("", "soon", "2026-01-02", "2026-01-02T03:04:05")),
    ("created_at", {"created_at": "0001-01-01T00:00:00+14:00"}),  # no datetime in UTC
    ("source.repository", {"source": {"repository": 7}}),
    *(("pr_link", {"pr_link": text}) for text in ("", "javascript:alert(1)")),
    *((name, {name: "a\ud800"}) for name in ("id", "project_id", "status", "model")),
    *((name, {name: {"ref": "a\udfff"}}) for name in ("source", "raw")),
]


def test_refused() -> None:
    """What `to_dict` never writes is refused, by the name of its field; nothing is coerced."""

    def check(field: str, change: dict[str, Any]) -> None:
        with pytest.raises(InvalidInputError, match=f"^not a job's document: {field} must be "):
            AgentJob.from_dict(DOCUMENT | change)

    assert failures(check, *REFUSED) == {}


def test_no_document() -> None:
    """What is no object at all is refused; so is the service's own document, which names no project."""
    others: list[Any] = [None, 7, "job_1", [DOCUMENT], JOB]
    for document in others:
        with pytest.raises(InvalidInputError, match="not a job's document"):
            AgentJob.from_dict(document)
    with pytest.raises(InvalidInputError, match="project_id must be a string that is not empty, not NoneType"):
        AgentJob.from_dict({"id": "job_1", "status": "active", "createdAt": "2026-01-02T03:04:05Z"})


# Pydantic.


class Order(BaseModel):
    """A model of a user's own."""

    job: AgentJob
    ref: JobRef | None = None


def test_field_of_a_model() -> None:
    """A job and a ref are fields of a model: written as document and token, and read from them."""
    order = Order(job=JOB, ref=REF)
    assert order.job is JOB
    assert order.model_dump() == order.model_dump(mode="json") == {"job": DOCUMENT, "ref": "a~20b~.x~2Fy"}
    assert Order.model_validate_json(order.model_dump_json()) == order
    left_out = {"job": {"model", "source"}}
    assert set(DOCUMENT) - set(order.model_dump(exclude=left_out)["job"]) == left_out["job"]


def test_invalid_field_of_a_model() -> None:
    """What a job or a ref cannot be made of is a validation error like any other, at its place."""
    changes: list[dict[str, object]] = [{"job": {"id": "job_1"}}, {"job": None}, {"ref": "job_1"}, {"ref": 7}]
    for change in changes:
        with pytest.raises(ValidationError) as caught:
            Order.model_validate({"job": DOCUMENT} | change)
        assert [error["loc"] for error in caught.value.errors()] == [tuple(change)]


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_schema(mode: Any) -> None:
    """The schema names exactly the fields of the document, the same for reading and writing."""
    schema = TypeAdapter(AgentJob).json_schema(mode=mode)
    assert (schema["title"], list(schema["properties"]), schema["required"]) == ("AgentJob", [*DOCUMENT], [*DOCUMENT])
    assert TypeAdapter(JobRef).json_schema(mode=mode)["type"] == "string"
    schema["properties"].clear()
    assert TypeAdapter(AgentJob).json_schema(mode=mode)["properties"]  # each caller gets one of its own


def test_msgspec() -> None:
    """Msgspec writes the fields of the document, without `raw`, and `from_dict` takes them back."""
    document = msgspec.json.decode(msgspec.json.encode({"job": JOB}))["job"]
    assert set(document) == set(DOCUMENT)
    assert AgentJob.from_dict(document) == JOB
