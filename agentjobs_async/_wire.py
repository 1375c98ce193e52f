"""What the service's bytes mean: (status, headers, body) in, a job or an error of ours out. No I/O.

An answer's status decides what it is about; its body is read within bounds, and the key masked in whatever comes of it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from time import time
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from attrs import frozen

from agentjobs_async._content_coding import inflated
from agentjobs_async._documents import job_of
from agentjobs_async._retry_after import retry_after
from agentjobs_async._secrets import MASK, ApiKey
from agentjobs_async._strict_json import parse
from agentjobs_async._text import one_line
from agentjobs_async.errors import (
    BY_STATUS,
    AgentJobsError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    InvalidInputError,
    ProtocolError,
    RejectedError,
    ResponseError,
    ServerError,
)
from agentjobs_async.models import AgentJob, JobRef, Paced

__all__ = ["Codec", "Headers", "Response", "prompt_body"]

_SHOWN: Final = 200
_EXCERPT_READ: Final = 65_536
_REQUEST_ID_NAMES: Final = ("X-Request-Id", "Request-Id", "X-Correlation-Id")
_WITHOUT_DOCUMENT: Final = frozenset({204, 205, 206})
_UNSURE_CREATES: Final = frozenset({303, 408})


class Headers(Protocol):
    """Header fields by case-insensitive name."""

    def get(self, key: str, /) -> str | None: ...

    def getall(self, key: str, default: Sequence[str], /) -> Sequence[str]: ...


@frozen
class Response:
    """An answer as it came.

    Attributes:
        body: In the coding that Content-Encoding names; its beginning when it is not `whole`.
        whole: Whether the body was short enough to be read to its end.
    """

    status: int
    headers: Headers
    body: bytes
    whole: bool = True


def prompt_body(prompt: object) -> bytes:
    """Give the body of a create: a JSON object in UTF-8 that holds the prompt as it is.

    Raises:
        InvalidInputError: The prompt is no string, only white space, or has a lone surrogate.
    """
    if not isinstance(prompt, str):
        raise InvalidInputError(f"prompt must be a string, not {type(prompt).__name__}")
    if not prompt.strip():
        raise InvalidInputError("prompt must say something: it is empty or only white space")
    try:
        return json.dumps({"prompt": prompt}, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        position = error.start
    raise InvalidInputError(
        f"prompt must be text that UTF-8 can hold: it has a lone surrogate (about character {position - 11});"
        " decode its source with errors='replace'"
    )


@frozen
class Codec:
    """Reads the service's answers for one session.

    Attributes:
        key: What is masked wherever the server echoes it.
        max_document_bytes: How long a decoded document may be.
    """

    key: ApiKey
    max_document_bytes: int

    def polled(self, response: Response, ref: JobRef) -> AgentJob | Paced | AgentJobsError:
        """Give what the answer to a read of `ref` says; an error is given, not raised."""
        wish = _wish(response.headers)
        if not _is_success(response.status) or response.status in _WITHOUT_DOCUMENT:
            return self._refusal(response)
        try:
            job = self._job(response, ref.project_id)
        except ProtocolError as error:
            error.retry_after = wish
            return error.with_traceback(None)
        if job.id != ref.job_id:
            return ProtocolError("wrong_id", f"the answer is about the job {one_line(job.id, _SHOWN)}", wish)
        return job if wish is None else Paced(job, wish)

    def created(self, response: Response, project_id: str) -> AgentJob | AgentJobsError:
        """Give what the answer to a create says; an error is given, not raised, and bears the create's outcome."""
        if not _is_success(response.status):
            refusal = self._refusal(response)
            if not isinstance(refusal, ResponseError) or _may_have_started(response.status):
                return CreateOutcomeUnknownError(refusal.message, "response", response.status)
            refusal.outcome = CreateOutcome.REJECTED
            return refusal
        try:
            job = self._job(response, project_id)
            _ = job.ref
        except (ProtocolError, InvalidInputError) as error:
            defect = error.message
        else:
            return job
        return CreateOutcomeUnknownError(defect, "response", response.status)

    def _job(self, response: Response, project_id: str) -> AgentJob:
        body = self._decoded(response)
        document = parse(body)
        if not self.key.may_be_in(body):
            return job_of(document, project_id)
        masked = _masked(document, self.key.mask)
        if isinstance(document, dict) and masked.get("id") != document.get("id"):
            raise ProtocolError("schema", "the job's id holds the API key")
        return job_of(masked, project_id)

    def _decoded(self, response: Response) -> bytes:
        if not response.whole:
            raise ProtocolError("too_large", f"more than {self.max_document_bytes} bytes")
        coding = (response.headers.get("Content-Encoding") or "identity").strip().lower()
        if coding == "identity":
            return response.body
        return inflated(response.body, coding, self.max_document_bytes)

    def _refusal(self, response: Response) -> ResponseError | ProtocolError:
        status, wish = response.status, _wish(response.headers)
        if not 300 <= status < 600:  # noqa: PLR2004 - the classes of HTTP itself
            return ProtocolError("unexpected_status", f"HTTP {status}", wish)
        kind = BY_STATUS.get(status, ServerError if status >= 500 else RejectedError)  # noqa: PLR2004 - as above
        said = self._redirect(response.headers) if status < 400 else self._said(response)  # noqa: PLR2004 - as above
        named = next((name for name in map(response.headers.get, _REQUEST_ID_NAMES) if name), None)
        request_id = None if named is None else one_line(self.key.mask(named), _SHOWN)
        return kind(status, request_id, wish, one_line(self.key.mask(said)))

    def _redirect(self, headers: Headers) -> str:
        """Name the origin that a redirect points to, and nothing more of it: the rest may hold secrets."""
        try:
            # Masked before it is split: that makes the host lower case, and the key with it.
            target = urlsplit(self.key.mask(headers.get("Location") or ""))
            host = f"[{target.hostname}]" if ":" in (target.hostname or "") else target.hostname
            port = "" if target.port is None else f":{target.port}"
        except ValueError:
            host = port = ""
        if not host:
            return "a redirect within the same origin or to nowhere, not followed"
        return f"a redirect to {target.scheme or 'the same scheme'}://{host}{port}, not followed"

    def _said(self, response: Response) -> str:
        """Give what an error document says, else the beginning of the text."""
        try:
            body = self._decoded(response)
        except ProtocolError:
            body = response.body
        try:
            document = parse(body)
        except ProtocolError:
            document = None
        return _message(document) or body[:_EXCERPT_READ].decode(errors="replace").strip()


def _is_success(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004 - the class of HTTP itself


def _may_have_started(status: int) -> bool:
    return status in _UNSURE_CREATES or status >= 500  # noqa: PLR2004 - the class of HTTP itself


def _wish(headers: Headers) -> float | None:
    values = headers.getall("Retry-After", ())
    return retry_after(values, headers.get("Date"), time()) if values else None


def _message(document: object) -> str:
    """Find the text of `{"error": text}`, `{"message": text}`, and of the one within the other."""
    if isinstance(document, Mapping):
        for name in ("error", "message", "detail"):
            value = document.get(name)
            text = value if isinstance(value, str) else _message(value)
            if text:
                return text
    return ""


def _masked(value: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {mask(name): _masked(member, mask) for name, member in value.items()}
    if isinstance(value, list):
        return [_masked(member, mask) for member in value]
    return value if isinstance(value, bool) or value is None or mask(str(value)) == str(value) else MASK
