"""Fields that stand elsewhere in the service's document."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from agentjobs_async import AgentJob, Dialect, JobSource, JobStatus, ProtocolError
from agentjobs_async._dialect.fields import FieldPaths
from agentjobs_async._documents import DocumentReader
from tests.rows import failures

PATHS = {
    "id": "data.run.id",
    "status": "data.state",
    "model": "data.0",
    "pr_link": "links.1.href",
    "created_at": "times.began",
    "archived_at": "times.filed",
    "source.repository": "repo",
    "source.ref": "branch.name",
}
DOCUMENT = {
    "data": {"run": {"id": "r1"}, "state": "done", "0": "large"},
    "links": [{"href": "x"}, {"href": "https://git.example/pull/1"}],
    "times": {"began": "2026-01-02T03:04:05Z"},
    "repo": "acme/docs",
    "branch": {"name": "main"},
    "id": "not this one",
}


def read(document: Any, **settings: Any) -> AgentJob:
    return DocumentReader(Dialect(**settings)).job(document, "docs")


def test_places() -> None:
    """Each field is read where the dialect says, by names and by positions; `raw` stays the service's own document."""
    job = read(DOCUMENT, fields=PATHS, statuses={"done": "completed"})
    assert (job.id, job.status, job.model) == ("r1", JobStatus.COMPLETED, "large")
    assert (job.pr_link, job.source) == ("https://git.example/pull/1", JobSource("acme/docs", "main"))
    assert job.created_at is not None
    assert job.archived_at is None
    assert job.raw == DOCUMENT


def test_missing_places() -> None:
    """A path that leads nowhere is a missing field: none of a job's own, and an error for its id and status."""

    def check(path: str) -> None:
        assert read(DOCUMENT | {"status": "active"}, fields={"pr_link": path}).pr_link is None
        with pytest.raises(
            ProtocolError, match=re.escape(f"id is missing at {path}, where the dialect's fields have it")
        ):
            read(DOCUMENT | {"status": "active"}, fields={"id": path})

    missing = ("nowhere", "data.x.y", "links.2.href", "links.-1", "links.x", "repo.0", "links.٣", "data.state.x")
    assert failures(check, *missing) == {}


def test_integers_without_the_setting() -> None:
    """An integer where the dialect has ids as text names the setting that reads integers."""
    with pytest.raises(
        ProtocolError, match=r"id must be a string, not int \(integer_ids of the dialect reads integers\)"
    ):
        read({"id": 7, "status": "active"})


def test_places_of_some() -> None:
    """A field that the dialect leaves out stands where the usual service has it."""
    document = {"run": "r1", "status": "active", "prLink": "https://git.example/1", "source": {"ref": "main"}}
    job = read(document, fields={"id": "run"})
    assert (job.id, job.status, job.pr_link) == ("r1", "active", "https://git.example/1")
    assert job.source is not None
    assert job.source.ref == "main"


def test_integer_ids() -> None:
    """With integer ids, integers alone are ids, read as their decimal texts; without, texts alone are."""
    big = 2**63
    assert [read({"id": number, "status": "active"}, integer_ids=True).id for number in (7, 0, -1, big)] == [
        *("7", "0", "-1", str(big))
    ]

    def check(value: object, integer_ids: bool) -> None:  # noqa: FBT001 - a column of the rows
        with pytest.raises(ProtocolError, match="id must be a"):
            read({"id": value, "status": "active"}, integer_ids=integer_ids)

    wrong: list[object] = ["7", 7.0, True, None, [7], {}]
    rows = [(value, True) for value in wrong]
    assert failures(check, *rows, (7, False), (True, False)) == {}


def test_no_object() -> None:
    """A document that is no object is no job, in each dialect."""

    def check(document: object) -> None:
        with pytest.raises(ProtocolError, match="a job is an object"):
            read(document, fields=PATHS)

    assert failures(check, ([],), (None,), ("x",), (5,)) == {}


def test_mappings() -> None:
    """Any mapping is read, as a `get_job` of the user's may return it."""

    class Own(Mapping[str, object]):
        def __getitem__(self, name: str) -> object:
            return {"run": "r1", "status": "active"}[name]

        def __iter__(self) -> Any:
            return iter(("run", "status"))

        def __len__(self) -> int:
            return 2

    assert read(Own(), fields={"id": "run"}).id == "r1"


def test_integer_id_that_python_writes_no_more() -> None:
    """An id of thousands of digits, which only a `get_job` of one's own may return, is a bad answer."""
    paths = FieldPaths({}, integer_ids=True)
    with pytest.raises(ProtocolError, match="id must be an integer of fewer digits"):
        paths.usual({"id": 10**5000, "status": "active"})
