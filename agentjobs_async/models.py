"""What the service speaks of: jobs, and the references that find them again. Frozen values, aware UTC datetimes."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self
from urllib.parse import quote, unquote

from attrs import field, frozen

from agentjobs_async._text import one_line
from agentjobs_async.errors import InvalidInputError, JobFailedError

__all__ = ["AgentJob", "JobRef", "JobSource", "JobStatus"]

MAX_ID_LENGTH: Final = 512
_CONTROL_OR_SURROGATE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class JobStatus(StrEnum):
    """The statuses that the service documents."""

    ACTIVE = "active"
    """The agent works."""
    COMPLETED = "completed"
    """It is done; there is a pull request where it changed anything."""
    ARCHIVED = "archived"
    """The job was put away."""
    FAILED = "failed"
    """The agent met an unrecoverable error."""


TERMINAL: Final = frozenset({JobStatus.COMPLETED, JobStatus.ARCHIVED, JobStatus.FAILED})
_KNOWN: Final = {status.value: status for status in JobStatus}


def checked_id(name: str, value: object) -> str:
    """Give `value` when it can be one segment of a path: the rule for project ids and job ids alike.

    Raises:
        InvalidInputError: Not a string, empty, over 512 characters, `.` or `..`, or with control characters or
            surrogates.
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be a string, not {type(value).__name__}")
    if not value or len(value) > MAX_ID_LENGTH:
        raise InvalidInputError(f"{name} must have 1 to {MAX_ID_LENGTH} characters, not {len(value)}")
    if value in {".", ".."}:
        raise InvalidInputError(
            f"{name} must not be {value!r}: it would change the path; give the id as the service did"
        )
    if _CONTROL_OR_SURROGATE.search(value):
        raise InvalidInputError(f"{name} must not contain control characters or surrogates: {one_line(value, 200)}")
    return value


def _id_rule(instance: object, attribute: Any, value: str) -> None:
    del instance
    checked_id(attribute.name, value)


@frozen
class JobRef:
    """All it takes to find a job again, after a restart too. Pickles; holds no key.

    Attributes:
        project_id: 1 to 512 characters; not `.` or `..`, no control characters.
        job_id: The same.

    Raises:
        InvalidInputError: One of them breaks that rule.
    """

    project_id: str = field(validator=_id_rule)
    job_id: str = field(validator=_id_rule)

    def to_token(self) -> str:
        """Give one line of visible ASCII: both ids percent-encoded, with a slash between."""
        return f"{quote(self.project_id, safe='')}/{quote(self.job_id, safe='')}"

    @classmethod
    def from_token(cls, text: str) -> Self:
        """Take back what `to_token` gave; white space around it is ignored.

        Raises:
            InvalidInputError: The text is no such token.
        """
        if not isinstance(text, str):
            raise InvalidInputError(f"a token must be a string, not {type(text).__name__}")
        token = text.strip()
        ref = None
        if token.isascii() and token.count("/") == 1:
            try:
                ref = cls(*(unquote(part, errors="strict") for part in token.split("/")))
            except ValueError:
                ref = None
        if ref is None or ref.to_token() != token:
            raise InvalidInputError(
                f"not a job token: {one_line(token, 200)};"
                " a token looks like project/job, as JobRef.to_token() gives it"
            )
        return ref


@frozen
class JobSource:
    """Where the agent works. Each is `None` when the service gave no text.

    Attributes:
        repository: The repository.
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
    """A job as the service showed it at one moment. Only `id` and `status` are vital; the rest may be `None`.

    Attributes:
        id: The service's name for the job.
        project_id: The project that it was created or read in; not part of the document.
        status: A `JobStatus`, or the service's own text when it is none of them.
        pr_link: The pull request's URL, only when it is absolute http(s) without userinfo or control characters;
            any other text stays in `raw`. Never fetched.
        source: Where the agent works.
        model: What the agent runs on.
        created_at: When it was created, in UTC.
        archived_at: When it was archived, in UTC.
        raw: The document as a plain dict, the key masked if the server echoed it.
    """

    id: str
    project_id: str
    status: JobStatus | str = field(converter=_known_status)
    source: JobSource | None = None
    model: str | None = None
    pr_link: str | None = None
    created_at: datetime | None = None
    archived_at: datetime | None = None
    raw: dict[str, Any] = field(factory=dict, repr=False, eq=False)

    @property
    def ref(self) -> JobRef:
        """What finds this job again.

        Raises:
            InvalidInputError: The ids of a hand-made job can't be polled.
        """
        return JobRef(self.project_id, self.id)

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended: completed, archived or failed. An unknown status is not an end."""
        return self.status in TERMINAL

    @property
    def succeeded(self) -> bool:
        """Whether the status is completed."""
        return self.status == JobStatus.COMPLETED

    @property
    def shown_name(self) -> str:
        """Project and id as one printable line, as a ref's token is; of a hand-made job, too, that can't be polled."""
        return "/".join(quote(str(part), safe="", errors="replace") for part in (self.project_id, self.id))

    @property
    def shown_status(self) -> str:
        """The status as one printable line of at most 200 bytes, whatever the server sent."""
        return one_line(self.status, 200)

    def raise_for_status(self) -> Self:
        """Give the job itself, unless it failed.

        Raises:
            JobFailedError: The status is failed.
        """
        if self.status == JobStatus.FAILED:
            raise JobFailedError(self)
        return self


@frozen
class Paced:
    """A job, and the seconds of patience that the server asked for beside it. Stays within the package."""

    job: AgentJob
    retry_after: float
