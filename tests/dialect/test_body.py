"""The body of a create: what is replaced, what stays, and what is left out."""

import json
from typing import Any

import pytest

from agentjobs_async import Dialect, InvalidInputError
from agentjobs_async._dialect.body import BodyTemplate
from agentjobs_async._extra import checked_extra
from tests.rows import failures

PROMPT = 'Fix "ü" \\ 🙂\n{project_id} {extra.branch} {prompt}'


def sent(body: Any, extra: Any = None) -> Any:
    return json.loads(BodyTemplate(body).filled(PROMPT, "docs", extra or {}))


def test_usual_body() -> None:
    """The usual body is the prompt alone, in UTF-8, byte for byte."""
    assert BodyTemplate(Dialect().body).filled("Fix é", "docs") == '{"prompt": "Fix é"}'.encode()


def test_filled() -> None:
    """Placeholders are replaced in one pass, as whole texts that keep their types; all else stays."""
    rows: list[tuple[Any, Any, Any]] = [
        ({"prompt": "{prompt}"}, {}, {"prompt": PROMPT}),
        ({"a": ["{prompt}", 1, None], "p": "{project_id}"}, {}, {"a": [PROMPT, 1, None], "p": "docs"}),
        ({"t": "{prompt}", "n": "{extra.n}"}, {"n": {"x": [1.5]}}, {"t": PROMPT, "n": {"x": [1.5]}}),
        ({"t": "{prompt}", "n": "{extra.n}"}, {}, {"t": PROMPT}),
        ({"t": "{prompt}", "l": ["{extra.n}", 2]}, {}, {"t": PROMPT, "l": [2]}),
        ({"t": "{prompt}", "n": "{extra.n}"}, {"n": "{prompt}"}, {"t": PROMPT, "n": "{prompt}"}),
        ({"t": "{prompt}"}, {"branch": "main", "n": None}, {"t": PROMPT, "branch": "main", "n": None}),
        ({"t": "{prompt}", "c": "{extra.a.b}"}, {"a.b": 1}, {"t": PROMPT, "c": 1}),
        (
            {"t": "{prompt}", "x": "{}", "y": "{ x }", "z": "a{1}"},
            {},
            {"t": PROMPT, "x": "{}", "y": "{ x }", "z": "a{1}"},
        ),
        ({"t": "{prompt}", "x": "{extra.x}"}, {"x": "same name"}, {"t": PROMPT, "x": "same name"}),
    ]

    def check(body: Any, extra: Any, expected: Any) -> None:
        assert checked_extra(extra, fields=BodyTemplate(body).taken) == extra
        assert sent(body, extra) == expected

    assert failures(check, *rows) == {}


def test_extra_that_has_no_place() -> None:
    """An extra may not take the place of a field of the body."""

    def check(body: Any, name: str) -> None:
        with pytest.raises(InvalidInputError, match=f"extra must not have '{name}'"):
            checked_extra({"branch": "main", name: "x"}, fields=BodyTemplate(body).taken)

    rows = [({"prompt": "{prompt}"}, "prompt"), ({"input": {"t": "{prompt}"}}, "input")]
    assert failures(check, *rows) == {}


def test_each_body_is_its_own() -> None:
    """A body that was filled before leaves nothing in the next one."""
    template = BodyTemplate({"a": {"t": "{prompt}", "n": "{extra.n}"}})
    template.filled("one", "docs", {"n": [1], "x": 1})
    assert json.loads(template.filled("two", "docs")) == {"a": {"t": "two"}}


def test_integer_that_python_writes_no_more() -> None:
    """An integer of thousands of digits is refused when the template is made, not at the first create."""
    with pytest.raises(InvalidInputError, match="body has an integer of thousands of digits"):
        BodyTemplate({"prompt": "{prompt}", "n": [10**5000]})
