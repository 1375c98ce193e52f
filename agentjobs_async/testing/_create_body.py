"""The body of a create, read back by the template that it was filled from."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import attrs

from agentjobs_async.testing._messages import Answer, error

_PROMPT, _PROJECT, _EXTRA_START = "{prompt}", "{project_id}", "{extra."
_MISSING: Final = object()
_LONGEST_VALUE = 60  # characters of a value in an error


@attrs.frozen
class CreateBody:
    """What a create asks for.

    Args:
        prompt: The prompt.
        project_id: The project that the body names; `None` if it names none.
        extra: Its further fields, by their names.
    """

    prompt: str
    project_id: str | None = None
    extra: Mapping[str, Any] = attrs.field(factory=dict)


class _DifferentError(Exception):
    """The body is none that the template could have made; the text says where."""


def read_create(template: Mapping[str, Any], body: bytes) -> CreateBody | Answer:
    """Return what a create asks for, or the answer that refuses its body.

    Args:
        template: The object of a create, with texts such as "{prompt}" where values stand.
        body: The body as it arrived.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return error(400, "the body is not JSON")
    if not isinstance(document, dict):
        return error(400, "the body is not an object")
    found: dict[str, Any] = {}
    try:
        _read_members(template, document, "", found)
    except _DifferentError as difference:
        return error(400, str(difference))
    further = {name: value for name, value in document.items() if name not in template}
    named = {
        placeholder.removeprefix(_EXTRA_START).removesuffix("}"): value
        for placeholder, value in found.items()
        if placeholder.startswith(_EXTRA_START)
    }
    return CreateBody(found[_PROMPT], found.get(_PROJECT), further | named)


def names_project(template: Any) -> bool:
    """Return whether a body has a place for the project."""
    if isinstance(template, Mapping):
        return any(map(names_project, template.values()))
    if isinstance(template, list | tuple):
        return any(map(names_project, template))
    return bool(template == _PROJECT)


def _read(template: Any, value: Any, where: str, found: dict[str, Any]) -> None:
    """Read a value by its template, and keep what its placeholders stand for.

    Raises:
        _DifferentError: The template could not have made this value.
    """
    if _is_extra(template):
        if value is not _MISSING:
            _keep(template, value, where, found)
    elif template in (_PROMPT, _PROJECT):
        _keep(template, _checked_text(value, where), where, found)
    elif value is _MISSING:
        raise _DifferentError(f"{where} is missing")
    elif isinstance(template, Mapping):
        _read_object(template, value, where, found)
    elif isinstance(template, list | tuple):
        _read_elements(template, value, where, found)
    elif type(value) is not type(template) or value != template:
        raise _DifferentError(f"{where} must be {_shown(template)}, not {_shown(value)}")


def _checked_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _DifferentError(f"{where} must be a string")
    if not value.strip():
        raise _DifferentError(f"{where} must not be blank")
    return value


def _read_object(template: Mapping[str, Any], value: Any, where: str, found: dict[str, Any]) -> None:
    if not isinstance(value, dict):
        raise _DifferentError(f"{where} must be an object")
    _read_members(template, value, f"{where}.", found)
    if unknown := sorted(value.keys() - template.keys()):
        raise _DifferentError(f"{where}.{unknown[0]} is unknown")


def _read_members(template: Mapping[str, Any], value: Mapping[str, Any], prefix: str, found: dict[str, Any]) -> None:
    for name, member in template.items():
        _read(member, value.get(name, _MISSING), f"{prefix}{name}", found)


def _read_elements(template: Sequence[Any], value: Any, where: str, found: dict[str, Any]) -> None:
    """Read an array. An element whose extra is missing is left out of it, so that those behind it move up."""
    if not isinstance(value, list):
        raise _DifferentError(f"{where} must be an array")
    difference = _DifferentError(f"{where} must have {len(template)} elements, not {len(value)}")
    for elements in _as_long(template, len(value)):
        read = dict(found)
        try:
            for position, (element, member) in enumerate(zip(elements, value, strict=True)):
                _read(element, member, f"{where}.{position}", read)
        except _DifferentError as error:
            difference = error
        else:
            found |= read
            return
    raise difference


def _as_long(template: Sequence[Any], length: int) -> Iterator[list[Any]]:
    """Yield the template of an array without as many of its extras as are missing."""
    extras = [position for position, element in enumerate(template) if _is_extra(element)]
    if length <= len(template):
        for left_out in combinations(extras, len(template) - length):
            yield [element for position, element in enumerate(template) if position not in left_out]


def _is_extra(template: Any) -> bool:
    return isinstance(template, str) and template.startswith(_EXTRA_START) and template.endswith("}")


def _keep(placeholder: str, value: Any, where: str, found: dict[str, Any]) -> None:
    if found.setdefault(placeholder, value) != value:
        raise _DifferentError(f"{where} must be {_shown(found[placeholder])} as elsewhere, not {_shown(value)}")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
