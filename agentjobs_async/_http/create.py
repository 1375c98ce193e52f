"""One create: it is repeated only while no agent was started, and ends as exactly one of the four outcomes."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Literal

import tenacity
from attrs import field, frozen
from yarl import URL

from agentjobs_async._errors import caused_by, may_be_under_way, refuses_key
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.credentials import MOST_KEYS
from agentjobs_async._http.progress import Progress
from agentjobs_async._http.responses import ResponseDecoder
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
    ResponseError,
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
_IDEMPOTENCY_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
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


def checked_idempotency_key(value: object) -> str | None:
    """Return `value`, an idempotency key, or `None`.

    Raises:
        InvalidInputError: It is not a string of 1 to 255 characters of visible ASCII without spaces.
    """
    if value is None or (isinstance(value, str) and _IDEMPOTENCY_KEY.fullmatch(value)):
        return value
    raise InvalidInputError("idempotency_key must be a string of 1 to 255 characters of visible ASCII, without spaces")


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
        extra: More fields of the create's body.
        idempotency_key: The key under which it is sent; `None` where the service honours none.
        idempotency_seconds: How long the service remembers that key.
    """

    project_id: str
    prompt: str
    timeout: float
    retry: bool
    max_retry_after: float
    before_send: Callable[[], bool] | None = field(default=None, validator=validator(checked_observer, optional=True))
    label: str | None = None
    extra: Mapping[str, Any] = field(factory=dict)
    idempotency_key: str | None = None
    idempotency_seconds: float = 0.0

    @property
    def prompt_sha256(self) -> str:
        """The SHA-256 of the prompt in UTF-8, as hexadecimal digits: it names the create where the prompt must not."""
        return sha256(self.prompt.encode()).hexdigest()


@frozen
class Message:
    """What a create sends, the same bytes at each try.

    Attributes:
        url: Where to.
        body: The body, JSON in UTF-8.
        idempotency_header: The header of its idempotency key; `None` where the service honours none.
    """

    url: URL
    body: bytes = field(repr=False)
    idempotency_header: str | None = None

    def digest(self, key: ApiKey) -> str:
        """Return a digest by which a repetition of this message under the same API key is known."""
        head = f"POST {self.url}\n{self.idempotency_header}\n\n"
        return key.digest_of(head.encode() + self.body)


class Create:
    """One create, over all of its tries.

    No error is raised here: a frame that a traceback holds must never hold a response or the key.
    """

    def __init__(
        self, request: CreateRequest, message: Message, transport: Transport, decoder: ResponseDecoder, hooks: Hooks
    ) -> None:
        self._request = request
        self._message = message
        named = message.idempotency_header if request.idempotency_key is not None else None
        self._headers = {} if named is None else {named: str(request.idempotency_key)}
        self._transport = transport
        self._decoder = decoder
        self._credentials = decoder.credentials
        self._hooks = hooks
        self._progress = Progress(request.project_id, decoder, request.before_send)
        self._clock = asyncio.get_running_loop().time
        self._started = self._first_sent = 0.0
        self._doubt = ""  # what the last try says whose outcome is unknown
        self._doubted_key: ApiKey | None = None
        self._created: AgentJob | None = None  # from the answer on: a cancellation may keep it from the caller

    async def run(self, shutdown: Shutdown[JobRef]) -> Result:
        """Return the job, or the error with its outcome. Until then its scope is among the creates of `shutdown`."""
        self._started = self._clock()
        self._hooks.create_started(self._request.project_id, str(self._message.url.host), self._request.label)
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
            self._report(CreateOutcome(result.outcome or CreateOutcome.UNKNOWN), result)
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
        result = await self._try()
        if self._may_repeat(result):
            pause = Pause(shutdown)
            attempts = create_attempts(self._clock, deadline, self._may_repeat, self._report_retry, pause)
            async for attempt in attempts:
                # Without `with attempt`, which would swallow a cancellation.
                if pause.error is not None:  # the session ended: what would be sent now is not waited for
                    result = pause.error
                    result.outcome = self._progress.outcome
                elif attempt.retry_state.attempt_number > 1:  # the first one was made above
                    result = await self._try()
                attempt.retry_state.set_result(result)
        return self._settled(result)

    def _may_repeat(self, result: object) -> bool:
        request = self._request
        if not request.retry:
            return False
        if not self._progress.in_doubt:
            return may_repeat(result, request.max_retry_after)
        is_possible = self._why_not_again(self._credentials.key, _retry_after(result)) is None
        return is_possible and may_repeat_in_doubt(result, request.max_retry_after)

    def _why_not_again(self, key: ApiKey | None, seconds: float = 0.0) -> str | None:
        """Return why a create in doubt is not sent again under `key`, `seconds` from now; `None` if it may be sent."""
        if key is not self._doubted_key:
            return "the API key has been replaced meanwhile"
        return self._progress.why_too_late(seconds)

    def _settled(self, result: Result) -> Result:
        """Return the result of all tries: once one of them is in doubt, only a job settles the create."""
        if not self._progress.in_doubt or isinstance(result, AgentJob | CreateOutcomeUnknownError):
            return result
        return self._unknown(f"{self._doubt}, and a repetition with the same key ended: {result.message}", result)

    async def _try(self) -> Result:
        """Return the result of one try; of the last one, where the service refuses keys that have been replaced.

        A cancellation leaves an answer that comes with it the time to be read.
        """
        for _ in range(MOST_KEYS):
            key = await self._credentials.current()
            if isinstance(key, AgentJobsError):
                return _not_sent(key)
            if self._progress.in_doubt and (why := self._why_not_again(key)) is not None:
                return _not_sent(NotSentError(f"nothing was sent again: {why}", "withheld"))
            result = await LateCancel(self._exchange(key), lambda: self._progress.awaits_answer)
            if not refuses_key(result) or self._progress.in_doubt:
                return result
            newer = await self._credentials.newer(key)
            if isinstance(newer, AgentJobsError):
                return _not_sent(newer)
            if newer is None or not self._request.retry:
                return result
        return result

    async def _exchange(self, key: ApiKey) -> Result:
        if not self._progress.tries:
            self._first_sent = self._clock()
        message = self._message
        response = await self._transport.create(message.url, message.body, self._progress, key, self._headers)
        if isinstance(response, NotSentError):
            result: Result = _not_sent(response)
        elif isinstance(response, AgentJobsError):
            result = self._unknown(response.message)
        else:
            result = self._decoder.create(response, self._request.project_id, self._progress.sent_at)
        if isinstance(result, CreateOutcomeUnknownError):
            self._note_doubt(result, key)
        else:
            self._progress.decided(result if isinstance(result, AgentJobsError) else None)
        self._created = result if isinstance(result, AgentJob) else None
        return result

    def _note_doubt(self, error: CreateOutcomeUnknownError, key: ApiKey) -> None:
        if self._headers:  # without an idempotency key it is the last try
            self._doubt, self._doubted_key = error.message, key
            self._progress.doubted(self._first_sent + self._request.idempotency_seconds)

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

    def _unknown(self, detail: str, cause: AgentJobsError | None = None) -> CreateOutcomeUnknownError:
        status = self._progress.status
        error = CreateOutcomeUnknownError(
            detail,
            "request" if status is None else "response",
            status,
            project_id=self._request.project_id,
            sent_at=self._progress.sent_at,
        )
        return caused_by(error, cause)

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
        request, error = self._request, _result(state)
        if isinstance(error, AgentJobsError):
            tries, delay = self._progress.tries, state.upcoming_sleep
            self._hooks.create_retried(request.project_id, error, tries, delay, request.prompt_sha256, request.label)


def _not_sent(error: AgentJobsError) -> AgentJobsError:
    """Return `error`, which says from now on that nothing was sent."""
    error.outcome = CreateOutcome.NOT_SENT
    return error


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


def may_repeat_in_doubt(result: object, max_retry_after: float) -> bool:
    """Return whether a create of which one try is in doubt may be sent again, with its idempotency key.

    That is after another try whose outcome is unknown; where nothing was sent, as of `may_repeat`; and after a refusal
    for now: 409, with which services answer while the first try is at work, 425, 429, and a 5xx of `create_refusals`.
    """
    if isinstance(result, CreateOutcomeUnknownError) or may_be_under_way(result):
        return _retry_after(result) <= max_retry_after
    return may_repeat(result, max_retry_after)


def create_attempts(
    clock: Callable[[], float],
    deadline: float,
    may_repeat: Callable[[object], bool],
    before_sleep: Callable[[tenacity.RetryCallState], None] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tenacity.AsyncRetrying:
    """Return an engine of attempts; it ends when a result may not be repeated, or no attempt could start in time.

    Where the server refused a create without a Retry-After above 0, the pauses are those of a `Backoff`.

    Args:
        clock: Returns the loop time.
        deadline: Loop time before which the next attempt must start.
        may_repeat: Returns whether a result may be repeated.
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
        retry=tenacity.retry_if_result(may_repeat),
        stop=lambda state: clock() + state.upcoming_sleep >= deadline,
        before_sleep=before_sleep,
        retry_error_callback=_result,
    )


def _result(state: tenacity.RetryCallState) -> object:
    return None if state.outcome is None else state.outcome.result()


def _retry_after(result: object) -> float:
    return (result.retry_after or 0.0) if isinstance(result, ResponseError | CreateOutcomeUnknownError) else 0.0
