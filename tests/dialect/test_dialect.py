"""The dialect as a value: what it refuses, and that nothing changes it."""

import copy
import pickle
from typing import Any

import pytest
from attrs import evolve
from attrs.exceptions import FrozenInstanceError

from agentjobs_async import Dialect, InvalidInputError, JobStatus
from tests.rows import failures

BODY: dict[str, Any] = {"input": {"text": "{prompt}", "tags": ["{extra.tag}", 1]}, "draft": True}
FULL: dict[str, Any] = {
    "create_path": "/runs",
    "get_path": "/runs/{job_id}",
    "key_header": "X-Api-Key",
    "key_format": "{key}",
    "body": BODY,
    "fields": {"pr_link": "links.0.href"},
    "integer_ids": True,
    "statuses": {"cancelled": JobStatus.FAILED},
    "create_refusals": [503],
    "max_document_bytes": 65_536,
    "idempotency_header": "Idempotency-Key",
    "idempotency_seconds": 3600.0,
}

REFUSED: dict[str, tuple[Any, ...]] = {
    "create_path": ("", "v2", "/{job_id}", "/../x", "//x", "/{key}", 5, None),
    "get_path": ("/job", "/{project_id}", "/{job_id}/{other}", "/{job_id}#x", 5),
    "key_header": ("", "a b", "a:b", "ü", "Host", "content-type", "If-Match", "Proxy-Authorization", "TE", 5, None),
    "key_format": ("", "Bearer", "{key} {key}", "{key}{x}", " {key}", "{key}\n", "ü{key}", 5, None),
    "body": (
        *(None, 5, "{prompt}", ["{prompt}"], {}, {"a": "b"}, {"a": "{promt}"}, {"a": "Do: {prompt}"}),
        *({"a": "{prompt}", "b": "{key}"}, {"a": "{prompt}", "{prompt}": 1}, {"a": "{prompt}", "b": "{job_id}"}),
        *({"a": "{prompt}", "b": float("nan")}, {"a": "{prompt}", "b": {1}}, {"a": "{prompt}", 1: 2}),
        *({"a": "{prompt}", "b": "\ud800"}, {"a": "{prompt}", "b": "{extra.}"}),
    ),
    "fields": (None, ["id"], {"link": "x"}, {"id": ""}, {"id": "a..b"}, {"id": "a."}, {"id": 5}, {"id": "x" * 513}),
    "integer_ids": (None, 1, "yes"),
    "statuses": (
        *(None, ["cancelled"], {"": JobStatus.FAILED}, {5: JobStatus.FAILED}, {"cancelled": "gone"}),
        *({"cancelled": None}, {"active": JobStatus.FAILED}, {JobStatus.FAILED: JobStatus.COMPLETED}),
    ),
    "create_refusals": (503, None, "503", {"503"}, [True], [499], [600], [429], [503.0], [10**9999]),
    "max_document_bytes": (0, -1, True, 1.5, float("nan"), "1", 2**31),
    "idempotency_header": ("", "a b", "Content-Type", 5, "authorization"),
    "idempotency_seconds": (0, -1, True, float("inf"), float("nan"), "1", None),
}


def test_refused() -> None:
    """A setting that makes no sense is refused by its name when the dialect is made."""

    def check(name: str, value: Any) -> None:
        with pytest.raises(InvalidInputError, match=name.removesuffix("s")):
            Dialect(**{name: value})

    assert failures(check, *((name, value) for name, values in REFUSED.items() for value in values)) == {}
    assert set(REFUSED) == set(FULL)


def test_value() -> None:
    """Two dialects of the same settings are equal and have one hash; copied and pickled ones are equal, too."""
    full = Dialect(**FULL)
    assert full == Dialect(**copy.deepcopy(FULL)) != Dialect()
    assert hash(full) == hash(Dialect(**FULL))
    assert pickle.loads(pickle.dumps(full)) == copy.deepcopy(full) == full  # noqa: S301 - our own bytes
    assert evolve(Dialect(), **FULL) == full
    assert all(Dialect(**{name: value}) != Dialect() for name, value in FULL.items())


def test_frozen() -> None:
    """Neither the dialect nor what it holds can be changed, and it shares nothing with what it was made of."""
    given = copy.deepcopy(FULL)
    dialect: Any = Dialect(**given)
    given["body"]["input"]["tags"].append(2)
    given["fields"]["id"] = "x"
    assert dialect == Dialect(**FULL)
    for name, value in FULL.items():
        with pytest.raises(FrozenInstanceError):
            setattr(dialect, name, value)
    for held in (dialect.body, dialect.body["input"], dialect.fields, dialect.statuses):
        with pytest.raises(TypeError):
            held["x"] = 1
    assert dialect.body["input"]["tags"] == ("{extra.tag}", 1)
    assert dialect.create_refusals == frozenset({503})


def test_statuses_as_texts() -> None:
    """A status may be given by its word, as a file has it."""
    assert Dialect(statuses={"done": "completed"}).statuses == {"done": JobStatus.COMPLETED}


def test_hint() -> None:
    """A misspelt field is refused with the one that was probably meant."""
    with pytest.raises(InvalidInputError, match="did you mean 'pr_link'"):
        Dialect(fields={"prlink": "x"})
