"""How far one create has come, and with that the outcome that it has if it ends now."""

import io
from collections.abc import Callable

from agentjobs_async._http.responses import Response
from agentjobs_async.errors import AgentJobsError, CreateOutcome
from agentjobs_async.models import AgentJob
from agentjobs_async.telemetry.observers import logger

__all__ = ["Progress", "WithheldError"]


class WithheldError(Exception):
    """Raised into aiohttp right before the first byte of a request, when `before_send` forbids it."""


class Progress:
    """The state of one create over all of its tries.

    It outlives the frames of an exchange: the traceback of a cancellation holds it. So it keeps no response, whose
    headers may repeat the key, but only the error that was decoded from one.

    Args:
        decode: Returns the job or the error that a response means, with the key masked.
        before_send: Called right before the first byte of each try; returns whether it may be sent. `None` always may.

    Attributes:
        tries: The number of tries that have started.
        may_have_left: Whether a byte of the try under way may have left this process.
        status: The HTTP status of the try under way; `None` until the head of its response is here.
        refusal: The last error that proves that no agent was started; `None` without one.
    """

    __slots__ = ("_before_send", "_decode", "may_have_left", "refusal", "status", "tries")

    def __init__(
        self, decode: Callable[[Response], AgentJob | AgentJobsError], before_send: Callable[[], bool] | None = None
    ) -> None:
        self._decode = decode
        self._before_send = before_send
        self.tries = 0
        self.may_have_left = False
        self.status: int | None = None
        self.refusal: AgentJobsError | None = None

    @property
    def outcome(self) -> CreateOutcome:
        """The outcome of a create that ends now, without another response."""
        if self.may_have_left:
            return CreateOutcome.UNKNOWN
        refused = self.refusal is not None and self.refusal.outcome is CreateOutcome.REJECTED
        return CreateOutcome.REJECTED if refused else CreateOutcome.NOT_SENT

    def start_try(self) -> None:
        """Start a try: from here on its first byte may leave, until the pool or `check_sending` rules that out."""
        self.tries += 1
        self.may_have_left = True
        self.status = None

    def take_head(self, head: Response) -> None:
        """Record a response of which the body has not been read: the head of a refusal already proves the outcome."""
        self.status = head.status
        if head.is_error:
            result = self._decode(head)
            if isinstance(result, AgentJobsError) and result.outcome is CreateOutcome.REJECTED:
                self.end_try(result)

    def end_try(self, refusal: AgentJobsError | None = None) -> None:
        """End a try whose outcome is certain; `refusal` is the proof that no agent was started."""
        self.may_have_left = False
        self.refusal = refusal or self.refusal

    def request_body(self, content: bytes) -> io.BytesIO:
        """Return what aiohttp reads the request's body from; it sends the headers together with the first of it."""
        return io.BytesIO(content) if self._before_send is None else _CheckedBody(content, self)

    def check_sending(self) -> None:
        """Call `before_send`, right before the first byte of a try.

        Raises:
            WithheldError: It returned false or raised; nothing is sent.
        """
        self.may_have_left = False
        try:
            allowed = self._before_send is None or self._before_send()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001 - a CancelledError would look like a broken connection, and be repeated
            logger.exception("before_send raised, and nothing is sent")
            allowed = False
        if not allowed:
            raise WithheldError
        self.may_have_left = True


class _CheckedBody(io.BytesIO):
    """A body that calls `before_send` at its first read, which aiohttp does right before the request's first byte."""

    def __init__(self, content: bytes, progress: Progress) -> None:
        super().__init__(content)
        self._progress: Progress | None = progress

    def read(self, size: int | None = -1, /) -> bytes:
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.check_sending()
        return super().read(size)
