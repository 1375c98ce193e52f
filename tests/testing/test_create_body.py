"""The body of a create, read back."""

import json
from typing import Any

from agentjobs_async.testing._create_body import CreateBody, names_project, read_create
from agentjobs_async.testing._messages import Answer
from tests.rows import failures

TEMPLATE = {
    "input": {"task": "{prompt}", "model": "large", "turns": 3, "branch": "{extra.branch}"},
    "steps": ["{extra.first}", {"name": "{project_id}"}, "{extra.last}"],
}


def good(**members: Any) -> dict[str, Any]:
    return {"input": {"task": "write", "model": "large", "turns": 3}, "steps": [{"name": "docs"}]} | members


def read(document: Any) -> CreateBody | Answer:
    return read_create(TEMPLATE, json.dumps(document).encode())


def test_usual_body() -> None:
    """The prompt of the usual body arrives unchanged, and its other members are extras."""
    body = b'{"prompt": " \\u00e9 ", "more": {"a": 1}}'
    assert read_create({"prompt": "{prompt}"}, body) == CreateBody(" \u00e9 ", extra={"more": {"a": 1}})


def test_read_back() -> None:
    """Prompt, project and extras are read where the template has them; further members of the top level are extras."""

    def check(steps: list[Any], extra: dict[str, Any]) -> None:
        found = read(good(steps=steps, input=good()["input"] | {"branch": None}, more=[1]))
        assert found == CreateBody("write", "docs", extra | {"branch": None, "more": [1]})

    project = {"name": "docs"}
    rows: list[tuple[list[Any], dict[str, Any]]] = [
        ([project], {}),
        ([1, project], {"first": 1}),
        ([project, 2], {"last": 2}),
        ([1, project, 2], {"first": 1, "last": 2}),
    ]
    assert failures(check, *rows) == {}
    assert read(good()) == CreateBody("write", "docs")


def test_refusals() -> None:
    """A body that the template can't have made is refused with 400, and what is wrong where."""

    def check(body: Any, text: str) -> None:
        answer = read_create(TEMPLATE, body if isinstance(body, bytes) else json.dumps(body).encode())
        assert isinstance(answer, Answer)
        assert (answer.status, answer.document["error"]) == (400, text)

    def changed(**members: Any) -> dict[str, Any]:
        return good(input={name: value for name, value in (good()["input"] | members).items() if value != "gone"})

    rows = [
        *((body, "the body is not JSON") for body in (b"{", b"\xff", b"[" * 100_000)),
        ([], "the body is not an object"),
        ({}, "input is missing"),
        (good(input=1), "input must be an object"),
        (changed(task="gone"), "input.task must be a string"),
        (changed(task=1), "input.task must be a string"),
        (changed(task=" "), "input.task must not be blank"),
        (changed(model="gone"), "input.model is missing"),
        (changed(model="small"), 'input.model must be "large", not "small"'),
        (changed(turns=3.0), "input.turns must be 3, not 3.0"),
        (changed(turns="3" * 99), f'input.turns must be 3, not "{"3" * 59}...'),
        (changed(speed=1), "input.speed is unknown"),
        (good(steps={}), "steps must be an array"),
        (good(steps=[]), "steps must have 3 elements, not 0"),
        (good(steps=[1, 2, 3, 4]), "steps must have 3 elements, not 4"),
        (good(steps=[{}]), "steps.0.name must be a string"),
    ]
    assert failures(check, *rows) == {}


def test_a_placeholder_twice() -> None:
    """A placeholder that stands twice has the same value at both places."""
    template = {"prompt": "{prompt}", "title": "{prompt}"}
    assert read_create(template, b'{"prompt": "a", "title": "a"}') == CreateBody("a")
    answer = read_create(template, b'{"prompt": "a", "title": "b"}')
    assert isinstance(answer, Answer)
    assert answer.document["error"] == 'title must be "a" as elsewhere, not "b"'


def test_names_project() -> None:
    """A body names the project where the placeholder stands, however deep."""
    bodies: list[tuple[Any, bool]] = [
        ({"prompt": "{prompt}"}, False),
        ({"a": [1, {"b": "{project_id}"}]}, True),
        ({"{project_id}": 1}, False),
    ]
    assert [names_project(body) for body, _ in bodies] == [named for _, named in bodies]
