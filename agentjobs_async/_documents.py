"""Turns a decoded document into a job. The only module that knows cattrs.

No value is coerced: a field of another type than documented becomes `None`; without a usable `id` and `status` there
is no job.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Final

import cattrs
from attrs import define
from cattrs.gen import make_dict_structure_fn, override

from agentjobs_async._dialect.dialect import Dialect
from agentjobs_async._dialect.fields import FieldPaths
from agentjobs_async._validation import is_web_link, moment_of
from agentjobs_async.errors import ProtocolError
from agentjobs_async.models import AgentJob, JobSource, JobStatus

NO_STATUSES: Final[Mapping[str, JobStatus]] = MappingProxyType({})
_MISSING: Final = "is missing"
_INTEGER: Final = "must be a string, not int"
_DATE_LENGTH: Final = 10  # characters of YYYY-MM-DD, the longest date without a time of day


class DocumentReader:
    """Reads the documents of one dialect.

    Args:
        dialect: Where the fields stand, and what the service's words mean.
    """

    __slots__ = ("_paths", "_places", "_statuses")

    def __init__(self, dialect: Dialect) -> None:
        self._paths = FieldPaths(dialect.fields, integer_ids=dialect.integer_ids)
        self._places = dict(dialect.fields)
        self._statuses = dict(dialect.statuses)

    def status(self, word: JobStatus | str) -> JobStatus | str:
        """Return the status that a word of the service stands for; the word itself if it stands for none."""
        return self._statuses.get(word, word)

    def job(self, document: object, project_id: str) -> AgentJob:
        """Return the job that a decoded document describes.

        Raises:
            ProtocolError: With the reason `schema`: the document is not an object, or its `id` or `status` is not a
                non-empty string; or ids are integers, and it has another one.
        """
        if type(document) is not dict and not isinstance(document, Mapping):
            raise ProtocolError("schema", f"a job is an object, not {type(document).__name__}")
        try:
            fields = _quick_or_described(self._paths.usual(document))
        except cattrs.BaseValidationError as error:
            defects = map(_named_first, cattrs.transform_error(error, format_exception=_described))
            defect = "; ".join(f"{name} {words}{self._hint(name, words)}" for name, words in defects)
        else:
            return AgentJob(
                fields.id,
                project_id,
                self._statuses.get(fields.status, fields.status),
                fields.source,
                fields.model,
                fields.pr_link,
                fields.created_at,
                fields.archived_at,
                document if type(document) is dict else dict(document),
            )
        raise ProtocolError("schema", defect)

    def _hint(self, name: str, words: str) -> str:
        """Return what the dialect has to do with a defect of a field; an empty text where it has nothing."""
        if words == _MISSING and name in self._places:
            return f" at {self._places[name]}, where the dialect's fields have it"
        return " (integer_ids of the dialect reads integers)" if (name, words) == ("id", _INTEGER) else ""


_USUAL: Final = DocumentReader(Dialect())


def reader_with(statuses: Mapping[str, JobStatus]) -> DocumentReader:
    """Return the reader of the usual service's documents, where other words stand for these statuses, too.

    Raises:
        InvalidInputError: They are none, as of `Dialect`.
    """
    return _USUAL if statuses is NO_STATUSES else DocumentReader(Dialect(statuses=statuses))


def _quick_or_described(document: Mapping[str, object]) -> "_Fields":
    """Read the fields quickly; read those of a bad document again, with a reader that describes what is wrong."""
    try:
        return _structure(document, _Fields)
    except (KeyError, TypeError):
        return _structurer(described=True)(document, _Fields)


@define  # not frozen: one is made and dropped at each poll, and a frozen one takes longer to make
class _Fields:
    id: str
    status: str
    source: JobSource | None = None
    model: str | None = None
    pr_link: str | None = None
    created_at: datetime | None = None
    archived_at: datetime | None = None


def _required_text(value: object, _type: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be a string, not {type(value).__name__}")
    if not value:
        raise TypeError("must not be empty")
    return value


def _text_or_none(value: object, _type: object = None) -> str | None:
    return value if isinstance(value, str) else None


def _source_or_none(value: object, _type: object) -> JobSource | None:
    if type(value) is not dict and not isinstance(value, Mapping):
        return None
    return JobSource(_text_or_none(value.get("repository")), _text_or_none(value.get("ref")))


def _moment_or_none(value: object, _type: object) -> datetime | None:
    """Return the datetime of an ISO 8601 text with a time of day, else `None`; without an offset it is UTC."""
    if not isinstance(value, str) or len(value) <= _DATE_LENGTH:
        return None
    moment = moment_of(value)
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _link_or_none(value: object, _type: object) -> str | None:
    return value if isinstance(value, str) and is_web_link(value) else None


def _described(error: BaseException, _type: object) -> str:
    return _MISSING if isinstance(error, KeyError) else str(error)


def _named_first(defect: str) -> tuple[str, str]:
    """Return the field of cattrs' message, and its words: of `is missing @ $.id`, `id` and `is missing`."""
    words, _, path = defect.partition(" @ $.")
    return path, words


@cache
def _structurer(*, described: bool) -> Callable[[Mapping[str, object], type[_Fields]], _Fields]:
    """Return a reader of documents; one that describes what is wrong with each field is slower."""
    return make_dict_structure_fn(
        _Fields,
        cattrs.Converter(),
        _cattrs_detailed_validation=described,
        id=override(struct_hook=_required_text),
        status=override(struct_hook=_required_text),
        source=override(struct_hook=_source_or_none),
        model=override(struct_hook=_text_or_none),
        pr_link=override(rename="prLink", struct_hook=_link_or_none),
        created_at=override(rename="createdAt", struct_hook=_moment_or_none),
        archived_at=override(rename="archivedAt", struct_hook=_moment_or_none),
    )


_structure: Final = _structurer(described=False)
