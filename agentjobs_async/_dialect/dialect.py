"""The dialect: what differs between services, or between a gateway and the service behind it."""

from collections.abc import Collection, Mapping
from os import PathLike
from types import MappingProxyType
from typing import Any, Final, Self

from attrs import field, fields, frozen

from agentjobs_async._dialect.body import BodyTemplate, frozen_body, thawed
from agentjobs_async._dialect.fields import checked_fields
from agentjobs_async._dialect.header_fields import checked_header_name
from agentjobs_async._dialect.templates import create_template, get_template
from agentjobs_async._dialect.toml_file import dialect_settings, read_toml
from agentjobs_async._text import one_line
from agentjobs_async._validation import checked_count, checked_flag, checked_seconds, validator
from agentjobs_async.errors import InvalidInputError
from agentjobs_async.models import JobStatus

_MOST_DOCUMENT_BYTES: Final = 1_073_741_824  # 1 GiB: a document is held in memory as a whole
_KEY: Final = "{key}"
_BODY: Final = MappingProxyType({"prompt": "{prompt}"})
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _frozen_body(value: object) -> Any:
    BodyTemplate(value)
    return frozen_body(value)


def _frozen_fields(value: object) -> Mapping[str, str]:
    return MappingProxyType(checked_fields(value))


def _frozen_statuses(value: object) -> Mapping[str, JobStatus]:
    return MappingProxyType(checked_statuses(value))


def checked_statuses(value: object) -> dict[str, JobStatus]:
    """Return `value`, the statuses that the service's other words stand for.

    Raises:
        InvalidInputError: `value` is not a mapping of non-empty strings to statuses, or maps one of the four documented
            words to another status.
    """
    if not isinstance(value, Mapping):
        example = "{'cancelled': JobStatus.FAILED}"
        raise InvalidInputError(f"statuses must be a mapping such as {example}, not {type(value).__name__}")
    return dict(_checked_status(word, status) for word, status in value.items())


def _checked_status(word: object, status: object) -> tuple[str, JobStatus]:
    if not isinstance(word, str) or not word:
        raise InvalidInputError(f"statuses must have words of the service as its keys, not {one_line(repr(word), 60)}")
    known = list(JobStatus)
    if not isinstance(status, str) or status not in known:
        shown = one_line(repr(status), 60)
        turned = "; the service's word comes first" if word in known else ""
        raise InvalidInputError(
            f"statuses must have {', '.join(known)} for {one_line(word, 60)!r}, not {shown}{turned}"
        )
    if word in known and word != status:
        raise InvalidInputError(f"statuses must not change what {word} means: it is a status of its own")
    return str(word), JobStatus(status)


def _frozen_refusals(value: object) -> frozenset[int]:
    if not isinstance(value, Collection) or isinstance(value, str | bytes):
        raise InvalidInputError(f"create_refusals must be a collection such as {{503}}, not {type(value).__name__}")
    return frozenset(checked_count("each of create_refusals", status, least=500, most=599) for status in value)


def _check_create_path(_dialect: object, _attribute: object, value: object) -> None:
    create_template(value)


def _check_get_path(_dialect: object, _attribute: object, value: object) -> None:
    get_template(value)


def _check_key_format(_dialect: object, _attribute: object, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"key_format must be a string such as 'Bearer {_KEY}', not {type(value).__name__}")
    if value.count(_KEY) != 1:
        raise InvalidInputError(f"key_format must contain {_KEY} once, as 'Bearer {_KEY}' does")
    rest = value.replace(_KEY, "")
    if not (value.isascii() and value.isprintable()) or value != value.strip() or "{" in rest or "}" in rest:
        raise InvalidInputError(
            f"key_format must be visible ASCII on one line, without spaces around it and braces other than {_KEY}"
        )


@frozen(kw_only=True)
class Dialect:
    """What differs between services. The defaults are the usual service's; a dialect is equal by value, and frozen.

    Attributes:
        create_path: Template of the path of creates. It may contain `{project_id}` and a query string.
        get_path: Template of the path of reads. It must contain `{job_id}`, and may contain `{project_id}` and a query
            string.
        key_header: The name of the header that holds the key.
        key_format: Its value: visible ASCII that contains `{key}` once.
        body: The object of a create. A text that is as a whole `"{prompt}"`, `"{project_id}"` or `"{extra.NAME}"` is
            replaced, and keeps its type; a field whose extra is missing is left out. Extras that the body does not name
            go to its top level, and may name none of its fields.
        fields: Where the fields of a job stand in the service's document, as dotted paths, such as
            `"result.pull_request.url"` or `"links.0.href"`: of `id`, `status`, `model`, `pr_link`, `created_at`,
            `archived_at`, `source.repository` and `source.ref`. A field that is left out stands where the usual service
            has it; one whose path leads nowhere is missing.
        integer_ids: Whether ids are JSON integers, and nothing else; a job's `id` is the decimal text.
        statuses: The statuses that the service's other words stand for, such as `{"cancelled": JobStatus.FAILED}`, in
            its documents and in what `get_job` returns; `raw` keeps the word. Other unknown words do not end a wait.
        create_refusals: Statuses from 500 to 599 that the gateway answers with when it has not forwarded the request.
            Such a create counts as refused, and is repeated like a 429. After any other 5xx its outcome is unknown.
        max_document_bytes: How long a document may be, before and after decompression: 1 byte to 1 GiB. A longer one is
            a `ProtocolError`.
        idempotency_header: The header in which the service promises to honour a key for each create: `Idempotency-Key`,
            most often. Only then is a create whose outcome is unknown sent again, with the same key. `None` where the
            service promises nothing.
        idempotency_seconds: How long the service remembers such a key, in seconds above 0.

    Raises:
        InvalidInputError: A setting is invalid; the message names it, and says what is valid.
    """

    create_path: str = field(default="/v2/agent/{project_id}/job", validator=_check_create_path)
    get_path: str = field(default="/v2/agent/{project_id}/job/{job_id}", validator=_check_get_path)
    key_header: str = field(default="Authorization", validator=validator(checked_header_name))
    key_format: str = field(default="Bearer {key}", validator=_check_key_format)
    body: Mapping[str, Any] = field(default=_BODY, converter=_frozen_body, hash=False)
    fields: Mapping[str, str] = field(default=_NOTHING, converter=_frozen_fields, hash=False)
    integer_ids: bool = field(default=False, validator=validator(checked_flag))
    statuses: Mapping[str, JobStatus] = field(default=_NOTHING, converter=_frozen_statuses, hash=False)
    create_refusals: Collection[int] = field(default=(), converter=_frozen_refusals)
    max_document_bytes: int = field(default=1_048_576, validator=validator(checked_count, most=_MOST_DOCUMENT_BYTES))
    idempotency_header: str | None = field(default=None, validator=validator(checked_header_name, optional=True))
    idempotency_seconds: float = field(default=86_400.0, validator=validator(checked_seconds))

    def __attrs_post_init__(self) -> None:
        if self.idempotency_header is not None and self.idempotency_header.lower() == self.key_header.lower():
            raise InvalidInputError("idempotency_header must be another header than key_header")

    @property
    def own_headers(self) -> tuple[str, ...]:
        """The names of the headers that it sets itself."""
        return (self.key_header,) if self.idempotency_header is None else (self.key_header, self.idempotency_header)

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> Self:
        """Return the dialect of a service file: TOML whose names are those of this class.

        `base_url`, `key_env` and `[headers]` are left to the session.

        Raises:
            InvalidInputError: The file can't be read, is no TOML, or has an unknown or invalid setting.
        """
        return read_toml(path, lambda document: cls(**dialect_settings(document, SETTINGS)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the settings as plain values."""
        return _made, (type(self), plain_settings(self))


SETTINGS: Final = tuple(each.name for each in fields(Dialect))
"""The names of all settings."""


def plain_settings(dialect: Dialect) -> dict[str, Any]:
    """Return the settings of a dialect by their names, as plain dicts and lists."""
    return {name: thawed(getattr(dialect, name)) for name in SETTINGS}


def _made(kind: type[Dialect], settings: dict[str, Any]) -> Dialect:
    return kind(**settings)
