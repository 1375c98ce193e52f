"""The service over HTTP, one exchange per call: owns address, paths, key, decoder and connections."""

from collections.abc import Collection, Mapping
from ssl import SSLContext
from typing import Final

from yarl import URL

from agentjobs_async._cancel_scope import CancelScope
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.create import Create, CreateRequest
from agentjobs_async._http.responses import ResponseDecoder, checked_refusals
from agentjobs_async._http.transport import HttpTimeouts, Transport, checked_user_agent
from agentjobs_async._http.urls import PathTemplate, checked_proxy
from agentjobs_async._observers import Hooks
from agentjobs_async._validation import checked_count, checked_instance
from agentjobs_async.errors import AgentJobsError
from agentjobs_async.models import AgentJob, JobRef, JobStatus, JobWithRetryAfter

__all__ = ["Service"]

_MOST_DOCUMENT_BYTES: Final = 1_073_741_824
"""1 GiB: a document is held in memory as a whole."""
_PROJECT, _JOB = "project_id", "job_id"


class Service:
    """One service, under one key. Errors are returned as values, without tracebacks and causes that could hold the key.

    `AgentJobsSession` documents the arguments.

    Attributes:
        base_url: The address of the service.

    Raises:
        InvalidInputError: An argument is invalid, or the address is missing.
    """

    def __init__(
        self,
        base_url: URL,
        key: ApiKey,
        *,
        create_path: str,
        get_path: str,
        timeouts: HttpTimeouts | None,
        ssl: SSLContext | None,
        proxy: str | None,
        max_document_bytes: int,
        allow_insecure: bool,
        user_agent: str | None,
        create_refusals: Collection[int],
        statuses: Mapping[str, JobStatus],
    ) -> None:
        self.base_url = base_url
        self._key = key
        self._create_path = PathTemplate("create_path", create_path, base_url, allowed=frozenset({_PROJECT}))
        self._get_path = PathTemplate(
            "get_path", get_path, base_url, allowed=frozenset({_PROJECT, _JOB}), required=frozenset({_JOB})
        )
        most = checked_count("max_document_bytes", max_document_bytes, most=_MOST_DOCUMENT_BYTES)
        self._decoder = ResponseDecoder(key, most, checked_refusals(create_refusals), statuses)
        self._transport = Transport(
            key,
            timeouts=checked_instance("timeouts", timeouts, HttpTimeouts) or HttpTimeouts(),
            ssl=checked_instance("ssl", ssl, SSLContext),
            proxy=checked_proxy(proxy, base_url, allow_insecure=allow_insecure),
            user_agent=checked_user_agent(user_agent),
            max_document_bytes=most,
        )

    def open(self) -> None:
        """Make the connection pools in the running loop, without any I/O. Idempotent."""
        self._transport.open()

    async def create(self, request: CreateRequest, hooks: Hooks, group: set[CancelScope]) -> AgentJob | AgentJobsError:
        """Return the job of one create, or the error with its outcome. Until then its scope is in `group`."""
        url = self._create_path.url(request.project_id)
        return await Create(request, url, self._transport, self._decoder, hooks).run(group)

    async def read(self, ref: JobRef) -> AgentJob | JobWithRetryAfter | AgentJobsError:
        """Return the job as the service shows it now, or the error of this one exchange."""
        response = await self._transport.read(self._get_path.url(ref.project_id, ref.job_id))
        return response if isinstance(response, AgentJobsError) else self._decoder.read(response, ref)

    def mask(self, text: str) -> str:
        """Return `text` with the key replaced by `***`, in each form that `ApiKey.mask` knows."""
        return self._key.mask(text)

    async def aclose(self) -> None:
        """Abort all connections. Idempotent."""
        await self._transport.aclose()
