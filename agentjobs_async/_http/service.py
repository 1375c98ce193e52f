"""The service over HTTP, one exchange per call: owns paths, decoder and connections."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from yarl import URL

from agentjobs_async._http.create import Create, CreateRequest
from agentjobs_async._http.polled_jobs import PolledJobs
from agentjobs_async._http.responses import Response, ResponseDecoder
from agentjobs_async._http.transport import Transport
from agentjobs_async._http.urls import PathTemplate
from agentjobs_async._loop.cancel_scope import CancelScope
from agentjobs_async.errors import AgentJobsError
from agentjobs_async.models import AgentJob, JobRef, ReadJob

if TYPE_CHECKING:  # loaded with the first hook
    from agentjobs_async.telemetry.hooks import Hooks

_PROJECT, _JOB = "project_id", "job_id"


class Service:
    """One service at one address. Errors are returned as values, without tracebacks and causes that could hold the key.

    Args:
        base_url: The address of the service.
        create_path: Template of the path of creates.
        get_path: Template of the path of reads.
        transport: Its connections.
        decoder: Reads its responses.

    Raises:
        InvalidInputError: A template is invalid.
    """

    def __init__(
        self, base_url: URL, create_path: str, get_path: str, transport: Transport, decoder: ResponseDecoder
    ) -> None:
        self._create_path = PathTemplate("create_path", create_path, base_url, allowed=frozenset({_PROJECT}))
        self._get_path = PathTemplate(
            "get_path", get_path, base_url, allowed=frozenset({_PROJECT, _JOB}), required=frozenset({_JOB})
        )
        self._transport = transport
        self._decoder = decoder
        self._polled = PolledJobs(decoder)
        self.longest_poll = transport.read_seconds  # it is a `Reader`, whom `_http` does not know by name

    @property
    def is_open(self) -> bool:
        """Whether `open` has made the connection pools; also after they were closed."""
        return self._transport.is_open

    def open(self) -> None:
        """Make the connection pools in the running loop, without any I/O. Idempotent."""
        self._transport.open()

    async def create(
        self, request: CreateRequest, hooks: "Hooks | None", group: set[CancelScope]
    ) -> AgentJob | AgentJobsError:
        """Return the job of one create, or the error with its outcome. Until then its scope is in `group`."""
        url = self._create_path.url(request.project_id)
        return await Create(request, url, self._transport, self._decoder, hooks).run(group)

    async def read(self, ref: JobRef) -> AgentJob | ReadJob | AgentJobsError:
        """Return the job as the service shows it now, or the error of this one exchange."""
        response = await self._transport.read(self._get_path.url(ref.project_id, ref.job_id))
        return response if isinstance(response, AgentJobsError) else self._decoder.read(response, ref)

    def poll(self, ref: JobRef) -> Awaitable[Response | AgentJobsError]:
        """Begin one read of a job that is polled; `answer_of` says what its result means."""
        return self._transport.read(self._get_path.url(ref.project_id, ref.job_id))

    def answer_of(self, found: Response | AgentJobsError, ref: JobRef) -> AgentJob | ReadJob | AgentJobsError:
        """Return what `read` would return; the same object as at the last poll if the response has not changed."""
        return found if isinstance(found, AgentJobsError) else self._polled.read(found, ref)

    def forget(self, ref: JobRef) -> None:
        """Forget a job that is no longer polled."""
        self._polled.forget(ref)

    def mask(self, text: str) -> str:
        """Return `text` with the key replaced by `***`."""
        return self._decoder.key.mask(text)

    def abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Abort all connections of a service that was never closed, and whose loop may run in another thread."""
        self._transport.abandon(loop)

    async def aclose(self) -> None:
        """Abort all connections. Idempotent."""
        await self._transport.aclose()
