"""The service's side of a dialect. It reads the settings of a `Dialect`, and shares no code with the client's side."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, unquote_plus

import attrs

from agentjobs_async import InvalidInputError
from agentjobs_async._deferred import deferred
from agentjobs_async._validation import checked_instance
from agentjobs_async.testing._create_body import CreateBody, names_project, read_create
from agentjobs_async.testing._messages import Answer
from agentjobs_async.testing._places import Place, collide, place_of, with_value

if TYPE_CHECKING:
    from agentjobs_async import Dialect
else:
    Dialect = deferred("agentjobs_async", "Dialect")

UNNAMED_PROJECT: Final = "default"
"""The project of a job whose create names none, neither in its path nor in its body."""

_ORIGIN: Final = re.compile("^https?://[^/?]*", re.IGNORECASE)
_PLACEHOLDER: Final = re.compile(r"\{(project_id|job_id)\}")
_BODY: Final = MappingProxyType({"prompt": "{prompt}"})
_PLACES: Final[Mapping[str, Place]] = MappingProxyType(
    {
        "id": ("id",),
        "status": ("status",),
        "source.repository": ("source", "repository"),
        "source.ref": ("source", "ref"),
        "model": ("model",),
        "pr_link": ("prLink",),
        "created_at": ("createdAt",),
        "archived_at": ("archivedAt",),
    }
)
_USUAL_NAMES: Final = {".".join(place): field for field, place in _PLACES.items()}


@attrs.frozen
class Resource:
    """What a request is for: the jobs of a project, or one job; a project is `None` where the path names none."""

    project_id: str | None
    job_id: str | None = None


@attrs.frozen(kw_only=True)
class ServedDialect:
    """How the requests and documents of the service look; the defaults are the usual service's.

    Args:
        create_path: Template of the target of creates.
        get_path: Template of the target of reads.
        key_header: The name of the header of the key.
        key_format: Its value, with "{key}" where the key stands.
        body: Template of the body of a create.
        places: Where the fields of a job stand.
        integer_ids: Whether ids are integers.
        words: The service's words for statuses.
        idempotency_header: The header of idempotency keys; `None` if they are not honoured.
        idempotency_seconds: How long a key is remembered.
    """

    create_path: str = "/v2/agent/{project_id}/job"
    get_path: str = "/v2/agent/{project_id}/job/{job_id}"
    key_header: str = "Authorization"
    key_format: str = "Bearer {key}"
    body: Mapping[str, Any] = _BODY
    places: Mapping[str, Place] = _PLACES
    integer_ids: bool = False
    words: Mapping[str, str] = attrs.field(factory=dict)
    idempotency_header: str | None = None
    idempotency_seconds: float = 86_400.0

    def resource_of(self, method: str, target: str) -> Resource | None:
        """Return the resource of a request, whose target may be absolute; `None` if the service does not have it."""
        patterns = [self.create_path, self.get_path]
        for template in patterns if method == "POST" else reversed(patterns):
            ids = _pattern(template).ids(target)
            if ids is not None:
                return Resource(ids.get("project_id"), ids.get("job_id"))
        return None

    def value_of_key(self, api_key: str) -> str:
        """Return the value that the header of the key must have."""
        return self.key_format.replace("{key}", api_key)

    def read_create(self, body: bytes) -> CreateBody | Answer:
        """Return what a create asks for, or the answer that refuses its body."""
        return read_create(self.body, body)

    @property
    def creates_name_a_project(self) -> bool:
        """Whether a create has its project in the path or the body."""
        return "{project_id}" in self.create_path or names_project(self.body)

    def place_of(self, name: str) -> Place:
        """Return where a field of a job stands, by its name here or with the usual service; else the dotted path."""
        return self.places.get(_USUAL_NAMES.get(name, name), place_of(name))

    def document(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document with these fields of a job, by their names."""
        document: dict[str, Any] = {}
        for field, value in self.values(fields).items():
            if field in self.places:
                document = with_value(document, self.places[field], value)
        return document

    def values(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields with the types and words of the service; an id that is no number stays a text."""
        job_id, status = fields["id"], fields["status"]
        is_number = self.integer_ids and job_id.isascii() and job_id.isdecimal()
        return {**fields, "id": int(job_id) if is_number else job_id, "status": self.words.get(status, status)}

    def completed(self, word: str, pr_link: str) -> dict[str, Any]:
        """Return the fields of a job that was never created, whose id has a word in it unless ids are integers."""
        job_id = "1" if self.integer_ids else f"job_{word}"
        return {"id": job_id, "status": "completed", "pr_link": pr_link}


def served_dialect(dialect: "Dialect | None") -> ServedDialect:
    """Return how the service of a dialect looks; `None` is the usual service.

    Raises:
        InvalidInputError: It is no `Dialect`, or no document can have two of its fields where they should stand.
    """
    if dialect is None:
        return ServedDialect()
    from agentjobs_async import Dialect  # noqa: PLC0415 - the emulator runs without the client

    checked_instance("dialect", dialect, Dialect)
    words: dict[str, str] = {}
    for word, status in dialect.statuses.items():
        words.setdefault(status.value, word)
    return ServedDialect(
        create_path=dialect.create_path,
        get_path=dialect.get_path,
        key_header=dialect.key_header,
        key_format=dialect.key_format,
        body=dialect.body,
        places=_checked_places(dialect.fields),
        integer_ids=dialect.integer_ids,
        words=words,
        idempotency_header=dialect.idempotency_header,
        idempotency_seconds=dialect.idempotency_seconds,
    )


def _checked_places(fields: Mapping[str, str]) -> dict[str, Place]:
    """Return the places of fields; a field that no one moved is left out where another one needs its place."""
    moved = {field: place_of(path) for field, path in fields.items()}
    for field, place in moved.items():
        other = next((name for name in moved if name != field and collide(moved[name], place)), None)
        if other is not None:
            raise InvalidInputError(
                f"dialect can't be emulated: no document has {field} at {fields[field]} and {other} at {fields[other]}"
            )
    rest = {
        field: place
        for field, place in _PLACES.items()
        if field not in moved and not any(collide(place, taken) for taken in moved.values())
    }
    return {field: (moved | rest)[field] for field in _PLACES if field in moved or field in rest}


@attrs.frozen
class _Part:
    """A segment of a path, or a parameter of a query, decoded."""

    pattern: re.Pattern[str]
    names: tuple[str, ...]

    def ids(self, text: str) -> list[tuple[str, str]] | None:
        """Return the ids in a text; `None` if it does not fit."""
        found = self.pattern.fullmatch(text)
        return None if found is None else list(zip(self.names, found.groups(), strict=True))

    def first_ids(self, texts: Iterable[str]) -> list[tuple[str, str]] | None:
        """Return the ids in the first text that fits; `None` if none does."""
        return next((ids for text in texts if (ids := self.ids(text)) is not None), None)


@attrs.frozen
class _TargetPattern:
    """The template of a target, for reading.

    Args:
        segments: The segments of its path, all of them.
        parameters: The parameters of its query, each of which a target must have, among others or not.
    """

    segments: tuple[_Part, ...]
    parameters: tuple[_Part, ...]

    def ids(self, target: str) -> dict[str, str] | None:
        """Return the ids in a target; `None` if it does not fit, or has two ids for one placeholder."""
        path, _, query = _ORIGIN.sub("", target).partition("?")
        texts = [unquote(segment) for segment in path.split("/")]
        if len(texts) != len(self.segments):
            return None
        given = [unquote_plus(parameter) for parameter in query.split("&")]
        found = [
            *(segment.ids(text) for segment, text in zip(self.segments, texts, strict=True)),
            *(parameter.first_ids(given) for parameter in self.parameters),
        ]
        ids: dict[str, str] = {}
        for pairs in found:
            if pairs is None or any(ids.setdefault(name, text) != text for name, text in pairs):
                return None
        return ids


@cache
def _pattern(template: str) -> _TargetPattern:
    path, _, query = template.partition("?")
    return _TargetPattern(
        tuple(_part(segment, unquote) for segment in path.split("/")),
        tuple(_part(parameter, unquote_plus) for parameter in query.split("&") if parameter),
    )


def _part(template: str, decode: Callable[[str], str]) -> _Part:
    literals, names = _PLACEHOLDER.split(template)[::2], _PLACEHOLDER.findall(template)
    pattern = "(.+?)".join(re.escape(decode(literal)) for literal in literals)
    return _Part(re.compile(pattern, re.DOTALL), tuple(names))
