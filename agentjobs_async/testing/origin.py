"""A foreign origin: a server to which a client must send nothing."""

import json
from types import TracebackType
from typing import Self

from agentjobs_async.testing._answers import Message
from agentjobs_async.testing._listener import Exchange, Listener
from agentjobs_async.testing.records import ReceivedRequest

__all__ = ["ForeignOrigin"]

_DOCUMENT = {"id": "job_foreign", "status": "completed", "prLink": "https://foreign.example/pull/1"}


class ForeignOrigin:
    """A server that records each request, and answers it with a forged job.

    Args:
        host: The address to listen on; the port is a free one.
    """

    def __init__(self, *, host: str = "127.0.0.1") -> None:
        self._listener = Listener(self._respond, host, 0)
        self._requests: list[ReceivedRequest] = []

    async def __aenter__(self) -> Self:
        await self._listener.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.close()

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return self._listener.url

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """The requests that arrived, in order."""
        return tuple(self._requests)

    @property
    def connections(self) -> int:
        """The number of connections accepted."""
        return self._listener.accepted

    async def _respond(self, exchange: Exchange) -> bool:
        self._requests.append(exchange.received)
        body = json.dumps(_DOCUMENT).encode()
        headers = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
        await exchange.send(Message(200, headers, body).to(exchange.received.method).to_bytes())
        return True
