"""Jobs and references as JSON: the checks of a document, its JSON schema, and how Pydantic reads and writes it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from agentjobs_async._validation import has_surrogates, is_web_link, moment_of
from agentjobs_async.errors import InvalidInputError


def _nullable(kind: str, **more: str) -> dict[str, Any]:
    return {"anyOf": [{"type": kind, **more}, {"type": "null"}]}


_SOURCE: Final = {
    "title": "JobSource",
    "type": "object",
    "properties": {"repository": _nullable("string"), "ref": _nullable("string")},
    "required": ["repository", "ref"],
}

JOB_SCHEMA: Final[dict[str, Any]] = {
    "title": "AgentJob",
    "description": "A job as the service showed it at one moment.",
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "project_id": {"type": "string", "minLength": 1},
        "status": {
            "type": "string",
            "minLength": 1,
            "description": "active, completed, archived, failed, or another text that the service sent.",
            "examples": ["active", "completed", "archived", "failed"],
        },
        "source": {"anyOf": [_SOURCE, {"type": "null"}]},
        "model": _nullable("string"),
        "pr_link": _nullable("string", format="uri"),
        "created_at": _nullable("string", format="date-time"),
        "archived_at": _nullable("string", format="date-time"),
    },
    "required": ["id", "project_id", "status", "source", "model", "pr_link", "created_at", "archived_at"],
}
"""The JSON schema of `AgentJob.to_dict()`; `raw`, which is there only when asked for, is not part of it."""

REF_SCHEMA: Final[dict[str, Any]] = {
    "title": "JobRef",
    "description": "The token of a job: its project and its id, percent-encoded with ~ for %, and ~. between them.",
    "type": "string",
    "examples": ["docs~.job_1"],
}
"""The JSON schema of `JobRef.to_token()`."""


def checked_document(document: object) -> dict[str, Any]:
    """Return the fields of a job's document, its times as datetimes in UTC; a field that is absent is `None`.

    Raises:
        InvalidInputError: The document is not a mapping, or a field of it has a value that no job of the service has;
            the error names the field.
    """
    found = _mapping("it", document)
    for name in _FIELDS:
        if has_surrogates(found.get(name)):
            raise InvalidInputError(f"not a job's document: {name} must be valid Unicode: it has a lone surrogate")
    return {name: read(name, found.get(name)) for name, read in _FIELDS.items()}


def _source_or_none(name: str, value: object) -> dict[str, str | None] | None:
    if value is None:
        return None
    source = _mapping(name, value)
    return {part: _text_or_none(f"{name}.{part}", source.get(part)) for part in ("repository", "ref")}


def _raw(name: str, value: object) -> dict[str, object]:
    return {} if value is None else dict(_mapping(name, value))


def _mapping(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _refused(name, "an object", value)
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _refused(name, "a string that is not empty", value)
    return value


def _text_or_none(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _refused(name, "a string or null", value)
    return value


def _link_or_none(name: str, value: object) -> str | None:
    link = _text_or_none(name, value)
    if link is not None and not is_web_link(link):  # a page may show it as a link
        raise InvalidInputError(f"not a job's document: {name} must be an absolute http(s) URL")
    return link


def _time_or_none(name: str, value: object) -> datetime | None:
    text = _text_or_none(name, value)
    if text is None:
        return None
    moment = moment_of(text)
    if moment is not None and moment.tzinfo is not None:
        return moment
    raise InvalidInputError(f"not a job's document: {name} must be a time in ISO 8601 with an offset from UTC")


def _refused(name: str, wanted: str, value: object) -> InvalidInputError:
    found = "an empty one" if value == "" else type(value).__name__
    return InvalidInputError(f"not a job's document: {name} must be {wanted}, not {found}")


_FIELDS: Final[dict[str, Callable[[str, object], object]]] = {
    "id": _text,
    "project_id": _text,
    "status": _text,
    "source": _source_or_none,
    "model": _text_or_none,
    "pr_link": _link_or_none,
    "created_at": _time_or_none,
    "archived_at": _time_or_none,
    "raw": _raw,
}


def pydantic_schema(kind: type, load: Callable[[Any], object], dump: Callable[[Any], object]) -> Any:
    """Return the core schema by which Pydantic reads `kind` with `load`, unless it is one already, and writes it."""
    from pydantic_core import core_schema  # noqa: PLC0415 - only Pydantic calls this: the package does not need it

    return core_schema.no_info_plain_validator_function(
        lambda value: value if isinstance(value, kind) else load(value),
        ref=f"{kind.__module__}.{kind.__qualname__}",  # OpenAPI then has one component for it, not a copy at each use
        # Not the plain serializer: that one leaves nothing out, whatever a caller or FastAPI is told to exclude.
        serialization=core_schema.wrap_serializer_function_ser_schema(
            lambda value, write: write(dump(value)), schema=core_schema.any_schema()
        ),
    )
