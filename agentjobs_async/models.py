"""Jobs, and the references by which they are found again: frozen values; datetimes are aware, in UTC."""

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self, TypeVar
from urllib.parse import unquote

from attrs import asdict, define, evolve, field, frozen

from agentjobs_async._job_json import JOB_SCHEMA, REF_SCHEMA, checked_document, pydantic_schema
from agentjobs_async._text import BETWEEN_IDS, one_line, shown_name
from agentjobs_async._validation import checked_id, validator
from agentjobs_async.errors import InvalidInputError, JobFailedError

__all__ = ["AgentJob", "JobRef", "JobSource", "JobStatus"]


class JobStatus(StrEnum):
    """The statuses that the service documents (any other one stays a plain string)."""

    ACTIVE = "active"
    """The agent is at work."""
    COMPLETED = "completed"
    """The agent is done; there is a pull request if it changed any file."""
    ARCHIVED = "archived"
    """The job was archived."""
    FAILED = "failed"
    """The agent met an unrecoverable error."""


TERMINAL: Final = frozenset({JobStatus.COMPLETED, JobStatus.ARCHIVED, JobStatus.FAILED})
_KNOWN: Final = {status.value: status for status in JobStatus}


@frozen
class JobRef:
    """The project and id by which a job is found again, also after a restart. Can be pickled; holds no key.

    Attributes:
        project_id: 1 to 512 characters; not `.` or `..`; no control characters, no surrogates.
        job_id: As `project_id`.

    Raises:
        InvalidInputError: One of them breaks this rule.
    """

    project_id: str = field(validator=validator(checked_id))
    job_id: str = field(validator=validator(checked_id))

    def to_token(self) -> str:
        """Return the ref as one word of `A-Z a-z 0-9 - . _ ~`, such as `docs~.job_1`.

        `~.` stands between the ids; in them, `~` and two hexadecimal digits for each byte of another character and of
        `~` itself. No framework or proxy decodes or splits it, so that it can be a segment of a URL's path.
        """
        return shown_name(self.project_id, self.job_id)

    @classmethod
    def from_token(cls, text: str) -> Self:
        """Return the ref of a token made by `to_token`; white space around the token is ignored.

        Raises:
            InvalidInputError: `text` is not such a token.
        """
        if not isinstance(text, str):
            raise InvalidInputError(f"a token must be a string, not {type(text).__name__}")
        token = text.strip()
        project_id, _, job_id = token.partition(BETWEEN_IDS)
        try:
            ref = cls(*(unquote(part.replace("~", "%"), errors="strict") for part in (project_id, job_id)))
        except ValueError:
            ref = None
        if ref is None or ref.to_token() != token:
            raise InvalidInputError(
                f"not a job token: {one_line(token, 200) or 'it is empty'};"
                " a token looks like project~.job, as JobRef.to_token() gives it"
            )
        return ref

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        """Return how Pydantic reads and writes a ref: as its token."""
        return pydantic_schema(cls, cls.from_token, cls.to_token)

    @classmethod
    def __get_pydantic_json_schema__(cls, _core_schema: object, _handler: object) -> dict[str, Any]:
        """Return the JSON schema of a token."""
        return deepcopy(REF_SCHEMA)


@frozen
class JobSource:
    """Where the agent works. Each attribute is `None` when the service sent no text for it.

    Attributes:
        repository: The repository, as the service names it.
        ref: The branch, tag or commit.
    """

    repository: str | None = None
    ref: str | None = None


def _known_status(value: JobStatus | str) -> JobStatus | str:
    if not isinstance(value, str):
        raise InvalidInputError(f"status must be a string, not {type(value).__name__}")
    return _KNOWN.get(value, value)


@frozen
class AgentJob:
    """A job as the service showed it at one moment. `id`, `project_id` and `status` are always set.

    Attributes:
        id: The job's id.
        project_id: The project in which the job was created or read; the service's document does not hold it.
        status: A `JobStatus`, or the service's own text if it is none of them.
        source: Where the agent works; `None` when the document does not say.
        model: The model that the agent uses; `None` when the document does not say.
        pr_link: The URL of the pull request; `None` unless the document holds an absolute http(s) URL without userinfo
            and control characters (any other text stays in `raw`). It is never fetched.
        created_at: When the job was created, in UTC; `None` when the document has no valid date.
        archived_at: When the job was archived, in UTC; `None` when it was not.
        raw: The document as a plain dict, with the key masked if the server echoed it. It is no part of a job's
            equality, repr and JSON. Waits for one job share it: copy it before you change it.
        label: The text that `create_job` was given to name this job in events, its own and those of waits for it.
            Waits and reads pass it on from the `AgentJob` that they are given; several waits for one job, that of the
            first one with a label. `None` without one. It is no part of a job's equality, repr and JSON.
    """

    id: str
    project_id: str
    status: JobStatus | str = field(converter=_known_status)
    source: JobSource | None = None
    model: str | None = None
    pr_link: str | None = None
    created_at: datetime | None = None
    archived_at: datetime | None = None
    _raw: dict[str, Any] = field(factory=dict, repr=False, eq=False)  # private, so that encoders by field leave it out
    _label: str | None = field(default=None, repr=False, eq=False)

    @property
    def raw(self) -> dict[str, Any]:
        """The document as a plain dict, with the key masked if the server echoed it."""
        return self._raw

    @property
    def label(self) -> str | None:
        """The caller's name for the job; see above."""
        return self._label

    @property
    def ref(self) -> JobRef:
        """The reference by which this job is found again.

        Raises:
            InvalidInputError: The job was made by hand, with ids that no `JobRef` takes.
        """
        return JobRef(self.project_id, self.id)

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended: completed, archived or failed. An unknown status is not an end."""
        return self.status in TERMINAL

    @property
    def succeeded(self) -> bool:
        """Whether the status is `completed`."""
        return self.status == JobStatus.COMPLETED

    def raise_for_status(self) -> Self:
        """Return the job itself, unless it failed.

        Raises:
            JobFailedError: The status is `failed`.
        """
        if self.status == JobStatus.FAILED:
            raise JobFailedError(self)
        return self

    def to_dict(self, *, raw: bool = False) -> dict[str, Any]:
        """Return the job as a document of plain JSON types, which `from_dict` takes back.

        Every field is there, `None` or not; times are ISO 8601 texts. `raw` is added if asked for, as it is, not
        copied.
        """
        document = {
            "id": self.id,
            "project_id": self.project_id,
            "status": str(self.status),
            "source": None if self.source is None else asdict(self.source),
            "model": self.model,
            "pr_link": self.pr_link,
            "created_at": None if self.created_at is None else self.created_at.isoformat(),
            "archived_at": None if self.archived_at is None else self.archived_at.isoformat(),
        }
        return document | {"raw": self.raw} if raw else document

    @classmethod
    def from_dict(cls, document: Mapping[str, object]) -> Self:
        """Return the job of a document made by `to_dict`. Names that `to_dict` does not write are ignored.

        A field that is absent is `None`. Nothing is coerced.

        Raises:
            InvalidInputError: `document` is not a mapping; `id`, `project_id` or `status` is not a string, or empty;
                another field is of another type, or one has a lone surrogate; a time is not ISO 8601 with an offset
                from UTC; `pr_link` is not an absolute http(s) URL without userinfo and control characters.
        """
        fields = checked_document(document)
        source = fields.pop("source")
        return cls(**fields, source=source and JobSource(**source))

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        """Return how Pydantic reads and writes a job: by `from_dict` and `to_dict`."""
        return pydantic_schema(cls, cls.from_dict, cls.to_dict)

    @classmethod
    def __get_pydantic_json_schema__(cls, _core_schema: object, _handler: object) -> dict[str, Any]:
        """Return the JSON schema of `to_dict`."""
        return deepcopy(JOB_SCHEMA)  # Pydantic may change it


@define  # not frozen: one is made at each poll, and a frozen one takes longer to make
class Seen:
    """A job as an answer to a read showed it. Stays within the package.

    Attributes:
        job: The job.
        retry_after: The seconds of the Retry-After that came with it; `None` without one.
        is_large: Whether `raw` is too large to be kept between two polls.
    """

    job: AgentJob
    retry_after: float | None = None
    is_large: bool = False


T = TypeVar("T")


def with_label(answer: T, label: str | None) -> T:
    """Return `answer`, with `label` on the job that it is or has; unchanged where there is no label or no job."""
    if label is None:
        return answer
    if isinstance(answer, Seen):
        return evolve(answer, job=with_label(answer.job, label))
    return evolve(answer, label=label) if isinstance(answer, AgentJob) and answer.label != label else answer
