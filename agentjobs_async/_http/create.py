"""One create: sent again only where nothing was started, and ending as exactly one of the four outcomes."""

import asyncio
from collections.abc import Callable
from hashlib import sha256
from typing import Final

import tenacity
from yarl import URL

from agentjobs_async._cancel_scope import CancelScope
from agentjobs_async._http.responses import ResponseDecoder
from agentjobs_async._http.transport import Progress, Transport
from agentjobs_async.errors import (
    AgentJobsError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    NotSentError,
    RateLimitedError,
    ServerError,
)
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry import CreateFailed, Hooks, JobCreated, logger

__all__ = ["Create", "create_attempts"]


class Create:
    """One create and how far it has come.

    Args:
        timeout: Seconds in which it ends, repetitions included.
        retry: Whether what started nothing is tried again.
        max_retry_after: Seconds of patience that a 429 may ask for.
        before_send: Tells, right before the first byte of each try, whether that may still be sent; `None` is always.
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
        before_send: Callable[[], bool] | None = None,
    ) -> None:
        self._project_id = project_id
        self._url = url
        self._body = body
        self._timeout = timeout
        self._retry = retry
        self._max_retry_after = max_retry_after
        self._hooks = hooks
        self._progress = Progress(before_send)
        self._last: AgentJobsError | None = None

    async def run(
        self, transport: Transport, codec: ResponseDecoder, group: set[CancelScope]
    ) -> AgentJob | AgentJobsError:
        """Return the job, or the error with its outcome. While it lasts, its scope is in `group`."""
        clock = asyncio.get_running_loop().time
        started = clock()
        scope = CancelScope(started + self._timeout, group)
        result: AgentJob | AgentJobsError | None = None
        try:
            with scope:
                result = await self._repeated(transport, codec, started + self._timeout if self._retry else started)
            if result is None:
                result = self._refusal(codec) or self._interrupted(scope)
        except asyncio.CancelledError as error:
            self._report(CreateOutcome.REJECTED if self._refusal(codec) else self._outcome(), error)
            raise
        finally:
            self._progress.head = None  # its headers may repeat the key, and a cancellation's frames hold this object
        if isinstance(result, AgentJob):
            if self._hooks:
                self._hooks.emit(JobCreated(result, clock() - started))
        else:
            self._report(result.outcome or CreateOutcome.UNKNOWN, result)
        return result

    async def _repeated(
        self, transport: Transport, codec: ResponseDecoder, deadline: float
    ) -> AgentJob | AgentJobsError:
        clock = asyncio.get_running_loop().time
        try:
            async for attempt in create_attempts(clock, deadline, self._max_retry_after):
                with attempt:
                    return await self._once(transport, codec)
        except AgentJobsError as error:
            error.__context__ = None
            return error.with_traceback(None)
        raise AssertionError("attempts end by a result or an error")  # pragma: no cover - tenacity never just ends

    async def _once(self, transport: Transport, codec: ResponseDecoder) -> AgentJob:
        response = await transport.create(self._url, self._body, self._progress)
        if isinstance(response, NotSentError):
            response.outcome = CreateOutcome.NOT_SENT
            result: AgentJob | AgentJobsError = response
        elif isinstance(response, AgentJobsError):
            result = self._unknown(response.message)
        else:
            result = codec.create(response, self._project_id)
        self._progress.may_have_left = False
        if isinstance(result, AgentJobsError):
            self._last = result
            raise result
        return result

    def _refusal(self, codec: ResponseDecoder) -> AgentJobsError | None:
        """Return the refusal whose head is here, where the body that explains it was cut; `None` without one."""
        head = self._progress.head
        if head is None or not self._progress.may_have_left:
            return None
        result = codec.create(head, self._project_id)
        return result if isinstance(result, AgentJobsError) and result.outcome is CreateOutcome.REJECTED else None

    def _interrupted(self, scope: CancelScope) -> AgentJobsError:
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
        """Return the outcome if the create ended now, without a response."""
        if self._progress.may_have_left:
            return CreateOutcome.UNKNOWN
        refused = self._last is not None and self._last.outcome is CreateOutcome.REJECTED
        return CreateOutcome.REJECTED if refused else CreateOutcome.NOT_SENT

    def _unknown(self, detail: str) -> CreateOutcomeUnknownError:
        status = self._progress.status
        return CreateOutcomeUnknownError(detail, "request" if status is None else "response", status)

    def _report(self, outcome: CreateOutcome, error: BaseException) -> None:
        if outcome is CreateOutcome.UNKNOWN:
            prompt = sha256(self._body).hexdigest()[:12]
            logger.warning("nobody knows whether a create started an agent (body sha256 %s...): %s", prompt, error)
        if self._hooks:
            self._hooks.emit(CreateFailed(self._project_id, outcome, error))


_CREATE_WAIT: Final = tenacity.wait_exponential(multiplier=0.1, max=10) + tenacity.wait_random(0, 0.1)
"""0.1 s, doubled at each try up to 10 s, and up to 0.1 s of jitter."""


def create_attempts(clock: Callable[[], float], deadline: float, max_retry_after: float) -> tenacity.AsyncRetrying:
    """Return the engine that repeats one create until the loop time `deadline`, and only if no agent was started.

    It repeats creates that were not sent (except after a bad certificate or a refusal by the proxy), and 429s and
    5xx refusals whose Retry-After is within `max_retry_after` and the time left. The last error is raised unchanged.
    """
    refused = (RateLimitedError, ServerError)  # a create raises ServerError only for a status of create_refusals

    def retry_after(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        return (error.retry_after or 0.0) if isinstance(error, refused) else 0.0

    def worth_repeating(error: BaseException) -> bool:
        if isinstance(error, refused):
            return (error.retry_after or 0.0) <= max_retry_after
        return isinstance(error, NotSentError) and error.reason not in {"certificate", "proxy", "withheld"}

    return tenacity.AsyncRetrying(
        wait=lambda state: max(retry_after(state), _CREATE_WAIT(state)),
        retry=tenacity.retry_if_exception(worth_repeating),
        stop=lambda state: clock() + state.upcoming_sleep >= deadline,
        reraise=True,
    )
