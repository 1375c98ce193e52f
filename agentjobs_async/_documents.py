"""What a job's document says: a decoded object in, a job out. The only module that knows cattrs.

Nothing is coerced: a field of another type than documented is `None`, and without a usable `id` and `status` there is
no job.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import cattrs
from attrs import define
from cattrs.gen import make_dict_structure_fn, override

from agentjobs_async.errors import ProtocolError
from agentjobs_async.models import AgentJob, JobSource

__all__ = ["job_of"]

_LONGEST_DATE: Final = 10


def job_of(document: object, project_id: str) -> AgentJob:
    """Give the job that a decoded document describes.

    Raises:
        ProtocolError: `schema`: it is no object, or `id` or `status` is not a non-empty string.
    """
    if not isinstance(document, Mapping):
        raise ProtocolError("schema", f"a job is an object, not {type(document).__name__}")
    try:
        fields = _quick_or_described(document)
    except cattrs.BaseValidationError as error:
        defect = "; ".join(map(_named_first, cattrs.transform_error(error, format_exception=_described)))
    else:
        return AgentJob(
            fields.id,
            project_id,
            fields.status,
            fields.source,
            fields.model,
            fields.pr_link,
            fields.created_at,
            fields.archived_at,
            document if type(document) is dict else dict(document),
        )
    raise ProtocolError("schema", defect)


def _quick_or_described(document: Mapping[str, object]) -> "_Fields":
    try:
        return _structure(document, _Fields)
    except (KeyError, TypeError):
        return _structure_described(document, _Fields)


@define  # not frozen: it lives for a moment, and there is one for each poll
class _Fields:
    id: str
    status: str
    source: JobSource | None = None
    model: str | None = None
    pr_link: str | None = None
    created_at: datetime | None = None
    archived_at: datetime | None = None


def _vital(value: object, _type: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be a string, not {type(value).__name__}")
    if not value:
        raise TypeError("must not be empty")
    return value


def _text_or_none(value: object, _type: object = None) -> str | None:
    return value if isinstance(value, str) else None


def _source_or_none(value: object, _type: object) -> JobSource | None:
    if not isinstance(value, Mapping):
        return None
    return JobSource(_text_or_none(value.get("repository")), _text_or_none(value.get("ref")))


def _moment_or_none(value: object, _type: object) -> datetime | None:
    """Take ISO 8601 with a time of day; without an offset it is UTC, as the service documents."""
    if not isinstance(value, str) or len(value) <= _LONGEST_DATE:
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is UTC:
            return moment
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _link_or_none(value: object, _type: object) -> str | None:
    if not isinstance(value, str) or not value.isprintable() or " " in value or "\\" in value:
        return None
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and "@" not in parts.netloc
        _ = parts.port
    except ValueError:
        return None
    return value if usable else None


def _described(error: BaseException, _type: object) -> str:
    return "is missing" if isinstance(error, KeyError) else str(error)


def _named_first(defect: str) -> str:
    """Turn cattrs' order: `is missing @ $.id` becomes `id is missing`."""
    words, _, path = defect.partition(" @ $.")
    return f"{path} {words}"


def _structurer(*, described: bool) -> Callable[[Mapping[str, object], type[_Fields]], _Fields]:
    """Make a reader of documents; one that tells what is wrong with each field takes longer."""
    return make_dict_structure_fn(
        _Fields,
        cattrs.Converter(),
        _cattrs_detailed_validation=described,
        id=override(struct_hook=_vital),
        status=override(struct_hook=_vital),
        source=override(struct_hook=_source_or_none),
        model=override(struct_hook=_text_or_none),
        pr_link=override(rename="prLink", struct_hook=_link_or_none),
        created_at=override(rename="createdAt", struct_hook=_moment_or_none),
        archived_at=override(rename="archivedAt", struct_hook=_moment_or_none),
    )


_structure: Final = _structurer(described=False)
_structure_described: Final = _structurer(described=True)
