"""How far one create has come, and with that the outcome that it has if it ends now."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, auto

from agentjobs_async._http.responses import Response, ResponseDecoder
from agentjobs_async.errors import AgentJobsError, CreateOutcome, NotSentError, describe
from agentjobs_async.telemetry.observers import logger


class StoppedError(Exception):
    """Raised into aiohttp in place of the body that it is about to send: no byte leaves."""


class _Step(Enum):
    """How far one try has come. Within a try the steps only go forward, whatever calls back a second time."""

    IDLE = auto()
    """There was no try yet: no byte has left."""
    BEGUN = auto()
    """aiohttp has the request. A byte may have left: what replaces aiohttp's parts may send without connecting."""
    CONNECTING = auto()
    """A connection is being made: no byte has left."""
    CONNECTED = auto()
    """There is a connection. A byte may have left: only aiohttp knows when it sends the headers."""
    SENDING = auto()
    """The body has been asked for, and `before_send` has allowed it. A byte may have left."""
    SENT = auto()
    """All of the body has been handed to aiohttp: what is left is the answer."""
    DECIDED = auto()
    """The outcome is certain: what a byte that has left led to is known."""


class Progress:
    """The state of one create over all of its tries.

    It outlives the frames of an exchange: the traceback of a cancellation holds it. So it keeps no response, whose
    headers may repeat the key, but only the error that was decoded from one.

    Args:
        project_id: The project in which the job is created.
        decoder: Reads the responses, with the key masked.
        before_send: As in `CreateRequest`.

    Attributes:
        tries: The number of tries that have started.
        connections: The number of connections that were made for the try under way: one, unless aiohttp repeats it.
        status: The HTTP status of the try under way; `None` until the head of its response is here.
        refusal: The last error that proves that no agent was started; `None` without one.
        sent_at: When the last try was sent, in UTC; before that, when it started; `None` before the first try.
    """

    __slots__ = (
        *("_before_send", "_decoder", "_project_id", "_step", "_send_before", "connections", "refusal", "sent_at"),
        *("status", "tries"),
    )

    def __init__(
        self, project_id: str, decoder: ResponseDecoder, before_send: Callable[[], bool] | None = None
    ) -> None:
        self._project_id = project_id
        self._decoder = decoder
        self._before_send = before_send
        self._step = _Step.IDLE
        self.tries = self.connections = 0
        self.status: int | None = None
        self.refusal: AgentJobsError | None = None
        self.sent_at: datetime | None = None
        self._send_before: float | None = None

    @property
    def may_have_left(self) -> bool:
        """Whether a byte of the try under way may have left this process, and what came of it is unknown."""
        return self._step not in (_Step.IDLE, _Step.CONNECTING, _Step.DECIDED)

    @property
    def in_doubt(self) -> bool:
        """Whether the outcome of an earlier try is unknown: then only a job settles the create."""
        return self._send_before is not None

    def why_too_late(self, seconds: float = 0.0) -> str | None:
        """Return why no other try is sent `seconds` from now; `None` if one may be sent."""
        if self._send_before is None or asyncio.get_running_loop().time() + seconds < self._send_before:
            return None
        return "the service may have forgotten the idempotency key"

    @property
    def awaits_answer(self) -> bool:
        """Whether all of the try under way was sent, and only its answer is missing."""
        return self._step is _Step.SENT

    @property
    def outcome(self) -> CreateOutcome:
        """The outcome of a create that ends now, without another response."""
        if self.may_have_left or self.in_doubt:
            return CreateOutcome.UNKNOWN
        refused = self.refusal is not None and self.refusal.outcome is CreateOutcome.REJECTED
        return CreateOutcome.REJECTED if refused else CreateOutcome.NOT_SENT

    @property
    def decision(self) -> AgentJobsError | None:
        """The refusal that decided the last try; `None` while that is undecided, and before the first one."""
        return self.refusal if self._step is _Step.DECIDED else None

    def start_try(self) -> None:
        """Start a try."""
        self.tries += 1
        self.connections = 0
        self.status = None
        self.sent_at = datetime.now(UTC)
        self._step = _Step.BEGUN

    def connecting(self) -> None:
        """Record that a connection is being made. Only the first one of a try proves that nothing has left before."""
        if self._step is _Step.BEGUN:
            self._step = _Step.CONNECTING

    def connected(self) -> None:
        """Record that the connection is there."""
        self.connections += 1
        if self._step is _Step.CONNECTING:
            self._step = _Step.CONNECTED

    def sending(self) -> None:
        """Call `before_send`, right before the first byte of a try.

        Raises:
            StoppedError: It returned false or raised; or no try is under way that has not been sent yet.
        """
        if self._step in (_Step.IDLE, _Step.SENDING, _Step.SENT, _Step.DECIDED):
            raise StoppedError("a create is never sent twice")
        if (late := self.why_too_late()) is not None:  # to connect takes time, too
            self.decided(NotSentError(f"nothing was sent: {late}", "withheld"))
            raise StoppedError(late)
        refusal = "before_send did not allow it"
        try:
            allowed = self._before_send is None or self._before_send()
        except (KeyboardInterrupt, SystemExit):
            self.decided(NotSentError("nothing was sent: before_send was interrupted", "withheld"))
            raise
        except BaseException as error:  # noqa: BLE001 - a CancelledError would look like a broken connection, and be repeated
            logger.exception("before_send raised, and nothing is sent")
            allowed, refusal = False, f"before_send raised {describe(error)}"
        if not allowed:
            self.decided(NotSentError(f"nothing was sent: {refusal}", "withheld"))
            raise StoppedError(refusal)
        self.sent_at = datetime.now(UTC)
        self._step = _Step.SENDING

    def sent(self) -> None:
        """Record that all of the body is written."""
        if self._step is _Step.SENDING:
            self._step = _Step.SENT

    def on_head(self, head: Response) -> None:
        """Record a response of which the body has not been read: the head of a refusal already proves the outcome."""
        self.status = head.status
        if head.is_error:
            result = self._decoder.create(head, self._project_id)
            if isinstance(result, AgentJobsError) and result.outcome is CreateOutcome.REJECTED:
                self.decided(result)

    def doubted(self, send_before: float) -> None:
        """End a try whose outcome is unknown; no other one is sent from the loop time `send_before` on."""
        self._send_before = send_before

    def decided(self, refusal: AgentJobsError | None = None) -> None:
        """End a try whose outcome is certain; `refusal` is the proof that no agent was started."""
        self._step = _Step.DECIDED
        self.refusal = refusal or self.refusal
