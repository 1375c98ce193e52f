"""One create: it is repeated only while no agent was started, and ends as exactly one of the four outcomes."""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final, Literal

import tenacity
from attrs import field, frozen
from yarl import URL

from agentjobs_async._http.progress import Progress
from agentjobs_async._http.responses import ResponseDecoder, prompt_body
from agentjobs_async._http.transport import Transport
from agentjobs_async._loop.backoff import Backoff
from agentjobs_async._loop.cancel_scope import CancelScope
from agentjobs_async._loop.late_cancel import LateCancel
from agentjobs_async._loop.shutdown import Shutdown
from agentjobs_async._text import limit
from agentjobs_async._validation import validator
from agentjobs_async.errors import (
    AgentJobsError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    InvalidInputError,
    NotSentError,
    RateLimitedError,
    ServerError,
    log_text,
)
from agentjobs_async.models import AgentJob, JobRef, with_label
from agentjobs_async.telemetry.left_jobs import report_left
from agentjobs_async.telemetry.no_hooks import Hooks
from agentjobs_async.telemetry.observers import checked_observer, logger

OnCancel = Literal["abandon", "finish"]
"""What becomes of a create whose caller is cancelled."""

Result = AgentJob | AgentJobsError
_CANCELLED: Final = "the caller of the create was cancelled"
_SHOWN_DIGITS: Final = 12  # of a prompt's hash in the log: enough to find it among all prompts of a project


def checked_on_cancel(value: object) -> bool:
    """Return whether a create continues when its caller is cancelled.

    Raises:
        InvalidInputError: `value` is neither `"abandon"` nor `"finish"`.
    """
    if value not in ("abandon", "finish"):
        raise InvalidInputError(f'on_cancel must be "abandon" or "finish", not {value!r:.100}')
    return value == "finish"


@frozen
class CreateRequest:
    """The checked arguments of one `create_job`.

    Attributes:
        project_id: The project.
        prompt: What the agent is to do.
        timeout: Seconds within which the create ends, repetitions included.
        retry: Whether a create that started nothing is repeated.
        max_retry_after: The longest Retry-After, in seconds, that a repetition waits for.
        before_send: Called right before the first byte of each try; returns whether it may be sent. `None` always may.
        label: The caller's name for the job, for its events; `None` for none.
    """

    project_id: str
    prompt: str
    timeout: float
    retry: bool
    max_retry_after: float
    before_send: Callable[[], bool] | None = field(default=None, validator=validator(checked_observer, optional=True))
    label: str | None = None

    @property
    def prompt_sha256(self) -> str:
        """The SHA-256 of the prompt in UTF-8, as hexadecimal digits: it names the create where the prompt must not."""
        return sha256(self.prompt.encode()).hexdigest()


class Create:
    """One create, over all of its tries.

    No error is raised here: a frame that a traceback holds must never hold a response or the key.
    """

    def __init__(
        self, request: CreateRequest, url: URL, transport: Transport, decoder: ResponseDecoder, hooks: Hooks
    ) -> None:
        self._request = request
        self._url = url
        self._body = prompt_body(request.prompt)
        self._transport = transport
        self._decoder = decoder
        self._hooks = hooks
        self._progress = Progress(request.project_id, decoder, request.before_send)
        self._clock = asyncio.get_running_loop().time
        self._started = 0.0
        self._created: AgentJob | None = None  # from the answer on: a cancellation may keep it from the caller

    async def run(self, shutdown: Shutdown[JobRef]) -> Result:
        """Return the job, or the error with its outcome. Until then its scope is among the creates of `shutdown`."""
        self._started = self._clock()
        self._hooks.create_started(self._request.project_id, str(self._url.host), self._request.label)
        deadline = self._started + self._request.timeout
        scope = CancelScope(deadline, shutdown.creates)
        result: Result | None = None
        try:
            with scope:
                result = await self._run_tries(deadline, shutdown)
        except asyncio.CancelledError as error:
            if self._created is not None:
                left = self._report_created(self._created, shutdown)
                report_left(left, error)
                self._hooks.left(left, error)
                raise
            outcome = self._progress.outcome
            if outcome is CreateOutcome.UNKNOWN:  # the TimeoutError of an `asyncio.timeout` shows it as its cause
                error.add_note(str(self._unknown(_CANCELLED)))
            self._report(outcome, error)
            raise
        if result is None:
            result = self._created or self._interrupted(scope)
        if isinstance(result, AgentJobsError):
            self._report(result.outcome or CreateOutcome.UNKNOWN, result)
            return result
        return self._report_created(result, shutdown)

    def _report_created(self, created: AgentJob, shutdown: Shutdown[JobRef]) -> AgentJob:
        """Return the job with its label; report it to hooks, and to the block that is to record it."""
        shutdown.created(created.ref)
        job = with_label(created, self._request.label)
        self._hooks.created(job, self._clock() - self._started, self._progress.tries)
        return job

    async def _run_tries(self, deadline: float, shutdown: Shutdown[JobRef]) -> Result:
        """Return the result of the last try. Most creates need only one, which costs less than an engine of retries."""
        longest = self._request.max_retry_after
        result = await self._try()
        if not self._request.retry or not may_repeat(result, longest):
            return result
        pause = Pause(shutdown)
        async for attempt in create_attempts(self._clock, deadline, longest, self._report_retry, pause):
            # Without `with attempt`, which would swallow a cancellation.
            if pause.error is not None:  # the session ended: what would be sent now is not waited for
                result = pause.error
                result.outcome = self._progress.outcome
            elif attempt.retry_state.attempt_number > 1:  # the first one was made above
                result = await self._try()
            attempt.retry_state.set_result(result)
        return result

    async def _try(self) -> Result:
        """Return the result of one try. A cancellation leaves an answer that comes with it the time to be read."""
        return await LateCancel(self._exchange(), lambda: self._progress.awaits_answer)

    async def _exchange(self) -> Result:
        response = await self._transport.create(self._url, self._body, self._progress)
        if isinstance(response, NotSentError):
            response.outcome = CreateOutcome.NOT_SENT
            result: Result = response
        elif isinstance(response, AgentJobsError):
            result = self._unknown(response.message)
        else:
            result = self._decoder.create(response, self._request.project_id, self._progress.sent_at)
        if not isinstance(result, CreateOutcomeUnknownError):
            self._progress.decided(result if isinstance(result, AgentJobsError) else None)
        self._created = result if isinstance(result, AgentJob) else None
        return result

    def _interrupted(self, scope: CancelScope) -> AgentJobsError:
        """Return the error of a create that was cut, by its deadline or by the closing session."""
        outcome, within = self._progress.outcome, limit(self._request.timeout)
        reason = scope.reason if isinstance(scope.reason, AgentJobsError) else None
        if outcome is CreateOutcome.UNKNOWN:
            return self._unknown(reason.message if reason is not None else f"no usable answer within {within}")
        late = NotSentError(f"nothing was sent: no connection within {within}", "timeout")
        error = reason or self._progress.refusal or late
        error.outcome = outcome
        return error

    def _unknown(self, detail: str) -> CreateOutcomeUnknownError:
        status = self._progress.status
        return CreateOutcomeUnknownError(
            detail,
            "request" if status is None else "response",
            status,
            project_id=self._request.project_id,
            sent_at=self._progress.sent_at,
        )

    def _report(self, outcome: CreateOutcome, error: BaseException) -> None:
        request = self._request
        if outcome is CreateOutcome.UNKNOWN:
            digits = request.prompt_sha256[:_SHOWN_DIGITS]
            reason = log_text(error) if isinstance(error, AgentJobsError) else _CANCELLED
            logger.warning("the outcome of a create is unknown (sha256 of its prompt: %s...): %s", digits, reason)
        elapsed, tries = self._clock() - self._started, self._progress.tries
        self._hooks.create_failed(
            request.project_id, outcome, error, elapsed, tries, request.prompt_sha256, request.label
        )

    def _report_retry(self, state: tenacity.RetryCallState) -> None:
        request, error = self._request, self._progress.refusal
        if error is not None:
            tries, delay = self._progress.tries, state.upcoming_sleep
            self._hooks.create_retried(request.project_id, error, tries, delay, request.prompt_sha256, request.label)


class Pause:
    """The time between two tries; it ends early when the session ends.

    Attributes:
        error: The error with which the session ended; `None` before that.
    """

    def __init__(self, shutdown: Shutdown[JobRef]) -> None:
        self._shutdown = shutdown
        self.error: AgentJobsError | None = None

    async def __call__(self, seconds: float) -> None:
        """Wait for `seconds`, or until the session ends."""
        with CancelScope(None, self._shutdown.waits) as scope:
            await asyncio.sleep(seconds)
        if isinstance(scope.reason, AgentJobsError):
            self.error = scope.reason


_REFUSED: Final = (RateLimitedError, ServerError)  # a ServerError of a create has a status of create_refusals
_LASTING_REASONS: Final = frozenset({"certificate", "proxy", "withheld"})  # of a NotSentError that would come again
_JITTER: Final = tenacity.wait_random(0, 0.1)  # seconds
_RECONNECT: Final = tenacity.wait_exponential(multiplier=0.1, max=10) + _JITTER
"""0.1 s, doubled at each try up to 10 s, and up to 0.1 s of jitter."""


def may_repeat(result: object, max_retry_after: float) -> bool:
    """Return whether `result` proves that no agent was started, and a repetition may end otherwise.

    That is a create that was not sent, except after a certificate that either side refused, or a refusal by the proxy
    or by `before_send`; and a 429 or a 5xx of `create_refusals` whose Retry-After is at most `max_retry_after` seconds.
    """
    if isinstance(result, _REFUSED):
        return _retry_after(result) <= max_retry_after
    return isinstance(result, NotSentError) and result.reason not in _LASTING_REASONS


def create_attempts(
    clock: Callable[[], float],
    deadline: float,
    max_retry_after: float,
    before_sleep: Callable[[tenacity.RetryCallState], None] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tenacity.AsyncRetrying:
    """Return an engine of attempts; it ends when a result may not be repeated, or no attempt could start in time.

    Where the server refused a create without a Retry-After above 0, the pauses are those of a `Backoff`.

    Args:
        clock: Returns the loop time.
        deadline: Loop time before which the next attempt must start.
        max_retry_after: As in `may_repeat`.
        before_sleep: Called before each pause, whose seconds are the `upcoming_sleep` of its argument.
        sleep: Waits for the seconds of a pause.
    """
    backoff = Backoff()

    def wait(state: tenacity.RetryCallState) -> float:
        result, now = _result(state), clock()
        if isinstance(result, _REFUSED) and not result.retry_after:
            return backoff.refused(now, now) - now + _JITTER(state)
        return max(_retry_after(result), _RECONNECT(state))

    return tenacity.AsyncRetrying(
        sleep=sleep,
        wait=wait,
        retry=tenacity.retry_if_result(lambda result: may_repeat(result, max_retry_after)),
        stop=lambda state: clock() + state.upcoming_sleep >= deadline,
        before_sleep=before_sleep,
        retry_error_callback=_result,
    )


def _result(state: tenacity.RetryCallState) -> object:
    return None if state.outcome is None else state.outcome.result()


def _retry_after(result: object) -> float:
    return (result.retry_after or 0.0) if isinstance(result, _REFUSED) else 0.0
