"""The meaning of a response: status, headers and body in, a job or an error of this package out. No I/O.

The status decides; the body is read within bounds, and the key is masked in every text taken from it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from time import time
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from attrs import define, evolve, field, frozen

from agentjobs_async._dialect.dialect import Dialect
from agentjobs_async._documents import DocumentReader
from agentjobs_async._http.credentials import Credentials
from agentjobs_async._http.headers import coding_of, inflated, retry_after
from agentjobs_async._http.masking import MASK
from agentjobs_async._http.strict_json import parse
from agentjobs_async._text import one_line
from agentjobs_async._validation import checked_id, is_web_link
from agentjobs_async.errors import (
    AgentJobsError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    InvalidInputError,
    ProtocolError,
    ResponseError,
)
from agentjobs_async.models import AgentJob, JobRef, JobSource, JobStatus, Seen

_LARGE_BYTES: Final = 16_384  # more is not kept between two polls: 100,000 jobs still fit into memory
_CONTAINER_BYTES: Final = 64  # of an empty object or array, once it is decoded: in a body it takes 2
_SHOWN_BYTES: Final = 200  # of an id within a message
_EXCERPT_BYTES: Final = 65_536  # of a body: more than an excerpt shows, since masking and escaping change the length
_REQUEST_ID_NAMES: Final = ("X-Request-Id", "Request-Id", "X-Correlation-Id")
_WITHOUT_DOCUMENT: Final = frozenset({204, 205, 206})  # no content, no content, a part of the content
_UNKNOWN_CREATES: Final = frozenset({303, 408})  # see other, request timeout: an agent may have been started


class Headers(Protocol):
    """Header fields by case-insensitive name."""

    def get(self, key: str, /) -> str | None: ...

    def getall(self, key: str, default: Sequence[str], /) -> Sequence[str]: ...


@define  # not frozen: one is made at each poll, and a frozen one takes longer to make
class Response:
    """A response as received: at first its head, with an empty body.

    Attributes:
        status: The HTTP status.
        headers: The header fields.
        body: The body, still in the coding that Content-Encoding names; only its beginning if not `whole`.
        whole: Whether the body is here to its end: it was within the limit, and did not break.
    """

    status: int
    headers: Headers
    body: bytes = b""
    whole: bool = True

    @property
    def is_error(self) -> bool:
        """Whether the status and the headers say what happened, so that the body only explains it."""
        return self.status >= 300  # noqa: PLR2004 - the classes of HTTP itself


@frozen
class ResponseDecoder:
    """Reads the responses for one session.

    Attributes:
        credentials: What is masked where the server echoes it.
        dialect: How the service speaks.
        documents: Reads its documents.
    """

    credentials: Credentials
    dialect: Dialect
    documents: DocumentReader = field(init=False)

    @documents.default
    def _of_the_dialect(self) -> DocumentReader:
        return DocumentReader(self.dialect)

    def read(self, response: Response, ref: JobRef) -> Seen | AgentJobsError:
        """Return the job that the response to a read of `ref` shows, or the error; errors are returned, not raised."""
        retry_after = _retry_after(response.headers)
        if not _is_success(response.status) or response.status in _WITHOUT_DOCUMENT:
            return self._refusal(response)
        try:
            body = self._decoded(response)
            job = self._job(body, ref.project_id)
        except ProtocolError as error:
            error.retry_after = retry_after
            return error.with_traceback(None)  # its frames hold the body, in which the server may echo the key
        if job.id != ref.job_id:
            other = one_line(job.id, _SHOWN_BYTES)
            return ProtocolError("wrong_id", f"the answer is about another job: {other}", retry_after, other)
        containers = body.count(b"{") + body.count(b"[")
        is_large = len(body) + containers * _CONTAINER_BYTES > _LARGE_BYTES
        return Seen(job, retry_after, is_large)

    def create(self, response: Response, project_id: str, sent_at: datetime | None = None) -> AgentJob | AgentJobsError:
        """Return the job that the response to a create shows, or the error, with its `outcome` set, not raised.

        Args:
            response: The response.
            project_id: The project of the create.
            sent_at: When it was sent, for the error; `None` where nobody reads that.
        """

        def unknown(detail: str, retry_after: float | None, excerpt: str) -> CreateOutcomeUnknownError:
            return CreateOutcomeUnknownError(
                detail, "response", response.status, retry_after, excerpt, project_id=project_id, sent_at=sent_at
            )

        if not _is_success(response.status):
            refusal = self._refusal(response)
            if not isinstance(refusal, ResponseError) or self._may_have_started(response.status):
                status = f"HTTP {response.status}"
                what = refusal.message.replace(status, f"{status} after the prompt was sent", 1)
                return unknown(what, refusal.retry_after, refusal.excerpt)
            refusal.outcome = CreateOutcome.REJECTED
            return refusal
        excerpt = ""
        try:
            job = self._job(self._decoded(response), project_id)
            excerpt = one_line(job.id, _SHOWN_BYTES)
            checked_id("job_id", job.id)  # else no read could ask for it
        except (ProtocolError, InvalidInputError) as error:
            defect = error.message
        else:
            return job
        return unknown(defect, _retry_after(response.headers), excerpt)

    def _may_have_started(self, status: int) -> bool:
        unknown = status in _UNKNOWN_CREATES or status >= 500  # noqa: PLR2004 - the class of HTTP itself
        return unknown and status not in self.dialect.create_refusals

    def _job(self, body: bytes, project_id: str) -> AgentJob:
        document = parse(body)
        if not self.credentials.may_be_in(body):
            return self.documents.job(document, project_id)
        job = self.documents.job(document, project_id)
        if self.credentials.mask_keys(job.id) != job.id:
            raise ProtocolError("schema", "the job's id holds the API key")
        return self._masked(job)

    def _masked(self, job: AgentJob) -> AgentJob:
        """Return a job with the secrets masked in all texts but its id, by which it is read, and a known status."""
        mask = self.credentials.mask
        source = job.source and JobSource(*(text and mask(text) for text in (job.source.repository, job.source.ref)))
        link = job.pr_link and mask(job.pr_link)
        return evolve(
            job,
            status=job.status if isinstance(job.status, JobStatus) else mask(job.status),
            source=source,
            model=job.model and mask(job.model),
            pr_link=link if link and is_web_link(link) else None,
            raw=_masked(job.raw, lambda text: text if text == job.id else mask(text)),
        )

    def _decoded(self, response: Response) -> bytes:
        if not response.whole:
            raise ProtocolError("too_large", f"more than {self.dialect.max_document_bytes} bytes")
        coding = coding_of(response.headers.getall("Content-Encoding", ()))
        return inflated(response.body, coding, self.dialect.max_document_bytes) if coding else response.body

    def _refusal(self, response: Response) -> ResponseError | ProtocolError:
        status, retry_after = response.status, _retry_after(response.headers)
        if not 300 <= status < 600:  # noqa: PLR2004 - the classes of HTTP itself
            return ProtocolError("unexpected_status", f"HTTP {status}", retry_after)
        excerpt = self._redirect(response.headers) if status < 400 else self._explanation(response)  # noqa: PLR2004 - as above
        named = next((name for name in map(response.headers.get, _REQUEST_ID_NAMES) if name), None)
        request_id = None if named is None else one_line(self.credentials.mask(named), _SHOWN_BYTES)
        return ResponseError.of_status(status, request_id, retry_after, one_line(self.credentials.mask(excerpt)))

    def _redirect(self, headers: Headers) -> str:
        """Return a text that names the origin of a redirect's target, and no more of it: the rest may hold secrets."""
        try:
            # Mask before splitting: urlsplit makes the host lower case, and a key within it would not be found.
            target = urlsplit(self.credentials.mask(headers.get("Location") or ""))
            host = f"[{target.hostname}]" if ":" in (target.hostname or "") else target.hostname
            port = "" if target.port is None else f":{target.port}"
        except ValueError:
            host = port = ""
        if not host:
            return "a redirect within the same origin or to nowhere, not followed"
        return f"a redirect to {target.scheme or 'the same scheme'}://{host}{port}, not followed"

    def _explanation(self, response: Response) -> str:
        """Return the message of an error document; the beginning of the body if it has none."""
        try:
            body = self._decoded(response)
        except ProtocolError:
            body = response.body
        try:
            document = parse(body)
        except ProtocolError:
            document = None
        return _message(document) or self._beginning(body, whole=response.whole)

    def _beginning(self, body: bytes, *, whole: bool) -> str:
        """Return the beginning of a body, and no part of a key that its end has cut off: such a part is not masked."""
        text = body[:_EXCERPT_BYTES].decode(errors="replace").strip()
        if whole and len(body) <= _EXCERPT_BYTES:
            return text
        masked, mask, _ = self.credentials.mask(text).rpartition(MASK)
        if mask:
            return f"{masked}{mask}"  # masking may have made so much shorter that the end would be shown
        if len(text) > _EXCERPT_BYTES // 8:
            return text  # so long that its end is not shown
        return " ".join(text.rsplit(maxsplit=1)[:-1])  # the last word may be a part of the key, which has no space


def _is_success(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004 - the class of HTTP itself


def _retry_after(headers: Headers) -> float | None:
    values, milliseconds = headers.getall("Retry-After", ()), headers.getall("Retry-After-Ms", ())
    return retry_after(values, headers.get("Date"), time(), milliseconds) if values or milliseconds else None


def _message(document: object) -> str:
    """Return the text under `error`, `message` or `detail`, also nested, as in `{"error": {"message": text}}`."""
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
