"""A foreign origin: a server that nobody should send anything to."""

import json
from types import TracebackType
from typing import Self

from agentjobs_async.testing._answers import Message
from agentjobs_async.testing._listener import Exchange, Listener
from agentjobs_async.testing.records import ReceivedRequest

__all__ = ["ForeignOrigin"]

_DOCUMENT = {"id": "job_foreign", "status": "completed", "prLink": "https://foreign.example/pull/1"}


class ForeignOrigin:
    """A server that counts what it gets, and answers everything with a forged job.

    Args:
        host: The address to listen on; its port is a free one.
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
        """Its address, without a slash at the end."""
        return self._listener.url

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """What arrived, in order."""
        return tuple(self._requests)

    @property
    def connections(self) -> int:
        """How many connections were accepted."""
        return self._listener.accepted

    async def _respond(self, exchange: Exchange) -> bool:
        self._requests.append(exchange.received)
        body = json.dumps(_DOCUMENT).encode()
        headers = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
        await exchange.send(Message(200, headers, body).to_bytes())
        return True
