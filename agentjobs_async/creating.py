"""One create: sent again only where nothing was started, and ending as exactly one of the four outcomes."""

import asyncio
from hashlib import sha256

from yarl import URL

from agentjobs_async._scope import Scope
from agentjobs_async._strategies import create_attempts
from agentjobs_async._transport import Progress, Transport
from agentjobs_async._wire import Codec
from agentjobs_async.errors import (
    AgentJobsError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    NotSentError,
    RateLimitedError,
)
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry import CreateFailed, Hooks, JobCreated, logger

__all__ = ["Create"]


class Create:
    """One create and how far it has come.

    Args:
        timeout: Seconds in which it ends, repetitions included.
        retry: Whether what started nothing is tried again.
        max_retry_after: Seconds of patience that a 429 may ask for.
    """

    def __init__(
        self,
        project_id: str,
        url: URL,
        body: bytes,
        *,
        timeout: float,
        retry: bool,
        max_retry_after: float,
        hooks: Hooks,
    ) -> None:
        self._project_id = project_id
        self._url = url
        self._body = body
        self._timeout = timeout
        self._retry = retry
        self._max_retry_after = max_retry_after
        self._hooks = hooks
        self._progress = Progress()
        self._last: AgentJobsError | None = None

    async def run(self, transport: Transport, codec: Codec, group: set[Scope]) -> AgentJob | AgentJobsError:
        """Give the job, or the error with its outcome. While it lasts, its scope is in `group`."""
        clock = asyncio.get_running_loop().time
        started = clock()
        scope = Scope(started + self._timeout, group)
        result: AgentJob | AgentJobsError | None = None
        try:
            async with scope:
                result = await self._repeated(transport, codec, started + self._timeout if self._retry else started)
        except asyncio.CancelledError as error:
            self._report(self._outcome(), error)
            raise
        if result is None:
            result = self._interrupted(scope)
        if isinstance(result, AgentJob):
            if self._hooks:
                self._hooks.emit(JobCreated(result, clock() - started))
        else:
            self._report(result.outcome or CreateOutcome.UNKNOWN, result)
        return result

    async def _repeated(self, transport: Transport, codec: Codec, deadline: float) -> AgentJob | AgentJobsError:
        clock = asyncio.get_running_loop().time
        try:
            async for attempt in create_attempts(clock, deadline, self._max_retry_after):
                with attempt:
                    return await self._once(transport, codec)
        except AgentJobsError as error:
            error.__context__ = None
            return error.with_traceback(None)
        raise AssertionError("attempts end by a result or an error")  # pragma: no cover - tenacity never just ends

    async def _once(self, transport: Transport, codec: Codec) -> AgentJob:
        response = await transport.create(self._url, self._body, self._progress)
        if isinstance(response, NotSentError):
            response.outcome = CreateOutcome.NOT_SENT
            result: AgentJob | AgentJobsError = response
        elif isinstance(response, AgentJobsError):
            result = self._unknown(response.message)
        else:
            result = codec.created(response, self._project_id)
        self._progress.may_have_left = False
        if isinstance(result, AgentJobsError):
            self._last = result
            raise result
        return result

    def _interrupted(self, scope: Scope) -> AgentJobsError:
        outcome = self._outcome()
        if outcome is CreateOutcome.UNKNOWN:
            reason = scope.reason.message if isinstance(scope.reason, AgentJobsError) else None
            return self._unknown(reason or f"no usable answer within {self._timeout:g} s")
        error = scope.reason if isinstance(scope.reason, AgentJobsError) else self._last
        error = error or NotSentError(f"nothing was sent: no connection within {self._timeout:g} s", "timeout")
        error.outcome = outcome
        error.__context__ = None
        return error.with_traceback(None)

    def _outcome(self) -> CreateOutcome:
        """Tell how it ends if it ends now without an answer."""
        if self._progress.may_have_left:
            return CreateOutcome.UNKNOWN
        return CreateOutcome.REJECTED if isinstance(self._last, RateLimitedError) else CreateOutcome.NOT_SENT

    def _unknown(self, detail: str) -> CreateOutcomeUnknownError:
        status = self._progress.status
        return CreateOutcomeUnknownError(detail, "request" if status is None else "response", status)

    def _report(self, outcome: CreateOutcome, error: BaseException) -> None:
        if outcome is CreateOutcome.UNKNOWN:
            prompt = sha256(self._body).hexdigest()[:12]
            logger.warning("nobody knows whether a create started an agent (body sha256 %s...): %s", prompt, error)
        if self._hooks:
            self._hooks.emit(CreateFailed(self._project_id, outcome, error))
