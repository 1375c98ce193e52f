"""The service's side of a dialect."""

import pytest

from agentjobs_async import Dialect, InvalidInputError, JobStatus
from agentjobs_async.testing._dialect import Resource, ServedDialect, served_dialect

FIELDS = {"id": "job_1", "status": "active", "pr_link": None, "source.ref": "main"}


def test_the_usual_service() -> None:
    """The client's default dialect is the usual service, as the emulator knows it by itself."""
    assert served_dialect(Dialect()) == served_dialect(None) == ServedDialect()


def test_resource_of() -> None:
    """Each id is one segment of the path, percent-decoded."""
    resources = {
        "/v2/agent/docs/job": Resource("docs"),
        "/v2/agent/docs/job/job_1?x=/y": Resource("docs", "job_1"),
        "http://host/v2/agent/docs/job": Resource("docs"),
        "/v2/agent/a%2Fb/job/%C3%A9%0A": Resource("a/b", "\u00e9\n"),
        **dict.fromkeys(("/v2/agent//job", "/v2/agent/docs/job/", "/v2/agent/docs/job/a/b", "/", "/v2/x/docs/job")),
    }
    assert {target: ServedDialect().resource_of("GET", target) for target in resources} == resources


def test_templates() -> None:
    """An id is found wherever a template has it: within a segment, in the query, twice; a literal may be escaped."""
    dialect = ServedDialect(create_path="/base/run;x=%41", get_path="/base/{job_id}.json?of={project_id}&v=1")
    resources = {
        "/base/run;x=A": Resource(None),
        "/base/run;x=A?debug=1": Resource(None),
        "/base/a.b.json?v=1&of=p%26q+r": Resource("p&q r", "a.b"),
        **dict.fromkeys(("/base/a.json?v=1", "/base/a.json?of=p&v=2", "/base/axjson?of=p&v=1", "/run;x=A")),
    }
    assert {target: dialect.resource_of("GET", target) for target in resources} == resources
    twice = ServedDialect(get_path="/{project_id}/{job_id}-{project_id}")
    assert twice.resource_of("GET", "/a/1-a") == Resource("a", "1")
    assert twice.resource_of("GET", "/a/1-b") is None


def test_templates_that_overlap() -> None:
    """Where a target fits both templates, a POST is a create, and every other request is for a job."""
    dialect = ServedDialect(create_path="/jobs/{project_id}", get_path="/jobs/{job_id}")
    assert [dialect.resource_of(method, "/jobs/a") for method in ("POST", "GET")] == [
        Resource("a"),
        Resource(None, "a"),
    ]


def test_documents() -> None:
    """Fields stand where the dialect has them, with the service's words and types."""
    fields = {"id": "data.task", "pr_link": "links.0.href", "source.ref": "branch"}
    words = {"working": JobStatus.ACTIVE, "queued": JobStatus.ACTIVE}
    dialect = served_dialect(Dialect(fields=fields, statuses=words, integer_ids=True))
    document = dialect.document(FIELDS | {"id": "17"})
    assert document == {"data": {"task": 17}, "status": "working", "links": [{"href": None}], "branch": "main"}
    assert dialect.document(FIELDS | {"status": "paused"})["status"] == "paused"


def test_places_of_faults() -> None:
    """A fault may call a field by its name here, by that of the usual service, or by a path of the document."""
    dialect = served_dialect(Dialect(fields={"pr_link": "result.url", "source.ref": "branch"}))
    places = {
        **dict.fromkeys(("pr_link", "prLink", "result.url"), ("result", "url")),
        "source.ref": ("branch",),
        "createdAt": ("createdAt",),
        "a.b": ("a", "b"),
    }
    assert {name: dialect.place_of(name) for name in places} == places


def test_fields_in_the_way() -> None:
    """A field that nobody moved gives room to one that was; two that were moved to one place are refused."""
    document = served_dialect(Dialect(fields={"status": "source"})).document(FIELDS)
    assert document["source"] == "active"
    expected = "dialect can't be emulated: no document has id at job and status at job.state"
    with pytest.raises(InvalidInputError, match=expected):
        served_dialect(Dialect(fields={"id": "job", "status": "job.state"}))


def test_no_dialect() -> None:
    """What is no dialect is refused by the name of the setting."""
    with pytest.raises(InvalidInputError, match="dialect must be of type Dialect, not dict"):
        served_dialect({})  # type: ignore[arg-type]  # what is tested
