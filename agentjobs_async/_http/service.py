"""The service over HTTP, one exchange per call: owns paths, decoder, and the last responses of polled jobs."""

from typing import Final

from yarl import URL

from agentjobs_async._http.create import Create, CreateRequest
from agentjobs_async._http.responses import Response, ResponseDecoder
from agentjobs_async._http.transport import Transport
from agentjobs_async._http.urls import PathTemplate, service_text
from agentjobs_async._loop.shutdown import Shutdown
from agentjobs_async.errors import AgentJobsError
from agentjobs_async.models import AgentJob, JobRef, Seen, with_label
from agentjobs_async.telemetry.no_hooks import Hooks

_PROJECT, _JOB = "project_id", "job_id"
_MAX_CACHED_BYTES: Final = 4_096  # of a body: 100,000 jobs still fit into memory, and nearly all documents are smaller
_MAX_CACHED_CONTAINERS: Final = 64  # in a body: an empty object takes 2 bytes of it, and 64 once it is decoded
_OK: Final = 200


class Service:
    """One service at one address. Errors are returned as values, without tracebacks and causes that could hold the key.

    Args:
        base_url: The address of the service.
        create_path: Template of the path of creates.
        get_path: Template of the path of reads.
        transport: Its connections, which the caller opens and closes.
        decoder: Reads its responses.

    Raises:
        InvalidInputError: A template is invalid.

    Attributes:
        key: The key with which it is asked, and which masks itself.
        identity: Its address and path templates as one text: of two services with the same one, each knows the jobs of
            the other.
    """

    def __init__(
        self, base_url: URL, create_path: str, get_path: str, transport: Transport, decoder: ResponseDecoder
    ) -> None:
        self._create_path = PathTemplate("create_path", create_path, base_url, allowed=frozenset({_PROJECT}))
        self._get_path = PathTemplate(
            "get_path", get_path, base_url, allowed=frozenset({_PROJECT, _JOB}), required=frozenset({_JOB})
        )
        self.identity = service_text(base_url, create_path, get_path)
        self._transport = transport
        self._decoder = decoder
        self.key = decoder.key
        self.longest_poll = transport.read_seconds  # it is a `Reader`, whom `_http` does not know by name
        self._last: dict[JobRef, tuple[bytes, AgentJob]] = {}

    async def create(
        self, request: CreateRequest, hooks: Hooks, shutdown: Shutdown[JobRef]
    ) -> AgentJob | AgentJobsError:
        """Return the job of one create, or the error with its outcome; `shutdown` may end it earlier."""
        url = self._create_path.url(request.project_id)
        return await Create(request, url, self._transport, self._decoder, hooks).run(shutdown)

    async def read(self, ref: JobRef, label: str | None) -> Seen | AgentJobsError:
        """Return the job as the service shows it now, with `label`, or the error of this one exchange.

        It is sent once more where a reused connection broke before a byte of the answer, and decoded each time. A poll
        is neither: the next one is due soon.
        """
        response = await self._transport.read(self._get_path.url(ref.project_id, ref.job_id), repeats=True)
        if isinstance(response, AgentJobsError):
            return response
        return with_label(self._decoder.read(response, ref), label)

    async def answer(self, ref: JobRef, label: str | None) -> Seen | AgentJobsError:
        """Return the answer to one poll: what the decoder's `read` would return, with `label`, or an equal job.

        Nearly all polls find a job as the one before did, byte for byte: then the same job is returned again. Decoding
        takes a fifth of a poll's CPU (`benchmarks/bench_requests.py`); comparing the bytes takes next to none.
        """
        found = await self._transport.read(self._get_path.url(ref.project_id, ref.job_id))
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

    def _may_be_cached(self, response: Response) -> bool:
        """Return whether the body is small, decoded too, and does not echo the key: nothing may hold that."""
        body = response.body
        return (
            len(body) <= _MAX_CACHED_BYTES
            and body.count(b"{") + body.count(b"[") <= _MAX_CACHED_CONTAINERS
            and _says_no_more_than_its_body(response)
            and not self._decoder.key.may_be_in(body)
        )

    def forget(self, ref: JobRef) -> None:
        """Forget the last response for a job that is no longer polled."""
        self._last.pop(ref, None)


def _says_no_more_than_its_body(response: Response) -> bool:
    """Return whether the answer follows from the bytes of the body alone."""
    named = response.headers.get
    asks_for_no_pause = named("Retry-After") is None and named("Retry-After-Ms") is None
    return asks_for_no_pause and named("Content-Encoding") is None and response.whole and response.status == _OK
