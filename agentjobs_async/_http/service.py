"""The service over HTTP, one exchange per call: owns paths, decoder, and the last responses of polled jobs."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Final, TypeVar

from yarl import URL

from agentjobs_async._dialect.body import BodyTemplate
from agentjobs_async._dialect.templates import create_template, get_template
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.create import Create, CreateRequest, Message
from agentjobs_async._http.credentials import MOST_KEYS
from agentjobs_async._http.responses import Response, ResponseDecoder
from agentjobs_async._http.transport import Transport
from agentjobs_async._http.urls import UrlTemplate, service_text
from agentjobs_async._loop.shutdown import Shutdown
from agentjobs_async._text import limit
from agentjobs_async.errors import AgentJobsError, NotSentError
from agentjobs_async.models import AgentJob, JobRef, Seen, with_label
from agentjobs_async.telemetry.no_hooks import Hooks

T = TypeVar("T")

_UNAUTHORIZED: Final = 401
_MAX_CACHED_BYTES: Final = 4_096  # of a body: 100,000 jobs still fit into memory, and nearly all documents are smaller
_MAX_CACHED_CONTAINERS: Final = 64  # in a body: an empty object takes 2 bytes of it, and 64 once it is decoded
_OK: Final = 200


class Service:
    """One service at one address. Errors are returned as values, without tracebacks and causes that could hold the key.

    Args:
        base_url: The address of the service.
        transport: Its connections, which the caller opens and closes.
        decoder: Reads its responses.

    Attributes:
        identity: Its address and path templates as one text: of two services with the same one, each knows the jobs of
            the other.
        taken_fields: The names of fields that the body of each create has, and that no extra may have.
    """

    def __init__(self, base_url: URL, transport: Transport, decoder: ResponseDecoder) -> None:
        dialect = decoder.dialect
        self._creates = UrlTemplate(base_url, create_template(dialect.create_path))
        self._reads = UrlTemplate(base_url, get_template(dialect.get_path))
        self._body = BodyTemplate(dialect.body)
        self.taken_fields = self._body.taken
        text = service_text(base_url, dialect.create_path, dialect.get_path)
        self.identity = decoder.credentials.mask_keys(text)  # a gateway may want the key in the path, too
        self._transport = transport
        self._decoder = decoder
        self._credentials = decoder.credentials
        self.longest_poll = transport.read_seconds  # it is a `Reader`, whom `_http` does not know by name
        self._last: dict[JobRef, tuple[bytes, AgentJob]] = {}

    async def create(
        self, request: CreateRequest, hooks: Hooks, shutdown: Shutdown[JobRef]
    ) -> AgentJob | AgentJobsError:
        """Return the job of one create, or the error with its outcome; `shutdown` may end it earlier."""
        return await Create(request, self._message(request), self._transport, self._decoder, hooks).run(shutdown)

    def _message(self, request: CreateRequest) -> Message:
        """Return what a create sends, made before its first try: each repetition sends the same bytes."""
        body = self._body.filled(request.prompt, request.project_id, request.extra)
        header = self._decoder.dialect.idempotency_header
        return Message(self._creates.url(request.project_id), body, header)

    async def digest_of(self, request: CreateRequest) -> str | AgentJobsError:
        """Return a digest of what must not have changed when a create is repeated: the address, the body, the key."""
        key = await self._credentials.current()
        return key if isinstance(key, AgentJobsError) else self._message(request).digest(key)

    async def read(self, ref: JobRef, label: str | None) -> Seen | AgentJobsError:
        """Return the job as the service shows it now, with `label`, or the error of this one exchange.

        It is sent once more where a reused connection broke before a byte of the answer, and decoded each time. A poll
        is neither: the next one is due soon.
        """
        response = await self._received(ref, repeats=True)
        if isinstance(response, AgentJobsError):
            return response
        return with_label(self._decoder.read(response, ref), label)

    async def answer(self, ref: JobRef, label: str | None) -> Seen | AgentJobsError:
        """Return the answer to one poll: what the decoder's `read` would return, with `label`, or an equal job.

        Nearly all polls find a job as the one before did, byte for byte: then the same job is returned again. Decoding
        takes a fifth of a poll's CPU (`benchmarks/bench_requests.py`); comparing the bytes takes next to none.
        """
        found = await self._received(ref, repeats=False)
        if isinstance(found, AgentJobsError):
            return found
        last = self._last.get(ref)
        if last is not None and found.body == last[0] and last[1].label == label and _says_no_more_than_its_body(found):
            return Seen(last[1])
        answer = with_label(self._decoder.read(found, ref), label)
        if isinstance(answer, Seen) and not answer.job.is_terminal and self._may_be_cached(found):
            self._last[ref] = found.body, answer.job
        elif last is not None:
            del self._last[ref]
        return answer

    def _received(self, ref: JobRef, *, repeats: bool) -> Awaitable[Response | AgentJobsError]:
        """Return the response to come to a read."""
        url, credentials = self._reads.url(ref.project_id, ref.job_id), self._credentials
        if credentials.key is None or credentials.may_change:
            return self._received_under_keys(url, repeats=repeats)
        return self._transport.read(url, credentials.key, repeats=repeats)

    async def _received_under_keys(self, url: URL, *, repeats: bool) -> Response | AgentJobsError:
        """Return the response to a read; where the service refuses the key, that under another one, if there is one."""
        credentials = self._credentials
        key: ApiKey | AgentJobsError | None = credentials.key
        if key is None:
            key = await self._asked(credentials.current())
        for _ in range(MOST_KEYS):
            if not isinstance(key, ApiKey):
                return key
            found = await self._transport.read(url, key, repeats=repeats)
            if isinstance(found, AgentJobsError) or found.status != _UNAUTHORIZED:
                return found
            newer = await self._asked(credentials.newer(key))
            if newer is None:
                return found
            key = newer
        return found

    async def _asked(self, asking: Coroutine[Any, Any, T]) -> T | NotSentError:
        """Return what a callable of the user's gives within the time that a read may take."""
        try:
            async with asyncio.timeout(self.longest_poll):
                return await asking
        except TimeoutError:
            return NotSentError(f"nothing was sent: api_key gave no key within {limit(self.longest_poll)}", "key")

    def _may_be_cached(self, response: Response) -> bool:
        """Return whether the body is small, decoded too, and does not echo the key: nothing may hold that."""
        body = response.body
        return (
            len(body) <= _MAX_CACHED_BYTES
            and body.count(b"{") + body.count(b"[") <= _MAX_CACHED_CONTAINERS
            and _says_no_more_than_its_body(response)
            and not self._credentials.may_be_in(body)
        )

    def forget(self, ref: JobRef) -> None:
        """Forget the last response for a job that is no longer polled."""
        self._last.pop(ref, None)


def _says_no_more_than_its_body(response: Response) -> bool:
    """Return whether the answer follows from the bytes of the body alone."""
    named = response.headers.get
    asks_for_no_pause = named("Retry-After") is None and named("Retry-After-Ms") is None
    return asks_for_no_pause and named("Content-Encoding") is None and response.whole and response.status == _OK
