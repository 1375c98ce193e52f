"""Where the fields of a job stand in the service's document."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

from agentjobs_async._text import one_line, suggestion
from agentjobs_async.errors import InvalidInputError, ProtocolError

_USUAL: Final = MappingProxyType(
    {
        "id": "id",
        "status": "status",
        "model": "model",
        "pr_link": "prLink",
        "created_at": "createdAt",
        "archived_at": "archivedAt",
        "source.repository": "source.repository",
        "source.ref": "source.ref",
    }
)
"""The names of the fields, and their places in the documents of the usual service."""

_MISSING: Final = object()
_LONGEST_PATH: Final = 512  # characters


def checked_fields(value: object) -> dict[str, str]:
    """Return `value`, the places of fields by their names.

    Raises:
        InvalidInputError: It is no mapping of texts; a name is none of a job's fields; or a place has an empty part.
    """
    if not isinstance(value, Mapping):
        example = "{'pr_link': 'result.pull_request.url'}"
        raise InvalidInputError(f"fields must be a mapping such as {example}, not {type(value).__name__}")
    for name, path in value.items():
        _check_field(name, path)
    return dict(value)


def _check_field(name: object, path: object) -> None:
    if name not in _USUAL:
        shown = one_line(str(name), 60)
        words = f"fields has {shown!r}, which is none of {', '.join(_USUAL)}"
        raise InvalidInputError(f"{words}{suggestion(str(name), _USUAL)}")
    if not isinstance(path, str):
        raise InvalidInputError(f"fields must have a dotted path for {name}, not {type(path).__name__}")
    if len(path) > _LONGEST_PATH or not all(path.split(".")):
        raise InvalidInputError(
            f"fields must have a dotted path for {name}, such as result.pull_request.url, not {one_line(path, 60)!r}"
        )


def places(fields: Mapping[str, str]) -> dict[str, str]:
    """Return where each field of a job stands, by its name, where `fields` are those that stand elsewhere."""
    return dict(_USUAL) | dict(fields)


class FieldPaths:
    """Reads a document whose fields stand elsewhere, or whose ids are integers, as one of the usual service.

    Args:
        fields: The checked places of fields that stand elsewhere.
        integer_ids: Whether ids are JSON integers.
    """

    def __init__(self, fields: Mapping[str, str], *, integer_ids: bool) -> None:
        self._paths = {name: tuple(path.split(".")) for name, path in places(fields).items()}
        self._integer_ids = integer_ids
        self._is_usual = not integer_ids and all(_USUAL[name] == path for name, path in fields.items())

    def usual(self, document: Mapping[str, object]) -> Mapping[str, object]:
        """Return a document with the names and types of the usual service; a field whose path is missing is missing.

        Raises:
            ProtocolError: The id must be an integer and is none (`schema`).
        """
        if self._is_usual:
            return document
        found = {name: _at(document, path) for name, path in self._paths.items()}
        if self._integer_ids and found["id"] is not _MISSING:
            found["id"] = _text_of(found["id"])
        source = {name: found.pop(f"source.{name}") for name in ("repository", "ref")}
        named = {_USUAL[name]: value for name, value in found.items()} | {"source": _present(source)}
        return _present(named)


def _present(members: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in members.items() if value is not _MISSING}


def _text_of(number: object) -> str:
    """Return the decimal text of an integer."""
    if isinstance(number, int) and not isinstance(number, bool):
        with suppress(ValueError):  # Python's limit of digits: a user's own `get_job` may return any integer
            return str(number)
        raise ProtocolError("schema", "id must be an integer of fewer digits")
    raise ProtocolError("schema", f"id must be an integer, not {type(number).__name__}")


def _at(document: Mapping[str, object], path: tuple[str, ...]) -> Any:
    """Return what stands at a path: the names of members, and the positions of elements from 0."""
    found: Any = document
    for part in path:
        if isinstance(found, Mapping):
            found = found.get(part, _MISSING)
        elif isinstance(found, list | tuple) and part.isascii() and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return _MISSING
    return found
