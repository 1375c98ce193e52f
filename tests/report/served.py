"""A live page on a real server, and what asks it."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Self

from aiohttp import ClientResponse, ClientSession
from attrs import define

from agentjobs_async.batch import Journal
from agentjobs_async.report import board, board_token
from agentjobs_async.report.serving import running


async def status_of(request: AbstractAsyncContextManager[ClientResponse]) -> int:
    """Return the status of a response, and close it: one that is dropped before its body has come warns."""
    async with request as response:
        return response.status


@define
class Served:
    """A board that is served.

    Attributes:
        address: The address of the page, without the token.
        token: The token.
        client: Asks it.
    """

    address: str
    token: str
    client: ClientSession

    @property
    def port(self) -> int:
        return int(self.address.rstrip("/").rpartition(":")[2])

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def act(
        self,
        action: str,
        *numbers: int,
        state: str = "failed",
        tries: int = 1,
        journal: str = "",
        headers: Any = None,
        **rest: Any,
    ) -> tuple[int, Any]:
        """Send an action for rows in a state, of a try, with the token unless headers are given.

        Return status and answer.
        """
        headers = self.bearer if headers is None else headers
        journal = journal or (await self.lines(self.bearer))[0]["identity"]
        body = {"action": action, "journal": journal, "rows": {state: [[number, tries] for number in numbers]}, **rest}
        async with self.client.post(f"{self.address}actions", json=body, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.ok else text

    async def lines(self, headers: Any = None) -> list[dict[str, Any]]:
        """Return the lines of the document."""
        async with self.client.get(f"{self.address}rows", headers=headers) as response:
            assert response.status == 200
            return [json.loads(line) for line in (await response.text()).splitlines()]

    async def position(self) -> str:
        return str((await self.lines())[-1]["position"])

    @asynccontextmanager
    async def stream(self, position: str) -> "AsyncIterator[Stream]":
        """Open the stream of what follows a position."""
        headers = {"Last-Event-ID": position}
        async with self.client.get(f"{self.address}events", headers=headers) as response:
            assert response.status == 200
            yield Stream(response)


class Stream:
    """The events of a stream, without its status."""

    def __init__(self, response: ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> dict[str, str]:
        """Return the fields of the next event that is no status."""
        while (event := await self._event()).get("event") == "status":
            pass
        return event

    async def _event(self) -> dict[str, str]:
        event: dict[str, str] = {}
        async for line in self._response.content:
            if not line.strip() and event:
                return event
            name, _, value = line.decode().strip("\r\n").partition(": ")
            if name:  # else a ping
                event[name] = value
        raise StopAsyncIteration

    async def status(self) -> dict[str, Any]:
        """Return the next status."""
        while (event := await self._event()).get("event") != "status":
            pass
        document: dict[str, Any] = json.loads(event["data"])
        return document

    async def block(self) -> dict[str, Any]:
        """Return the next rows that have changed."""
        document: dict[str, Any] = json.loads((await anext(self))["data"])
        return document


@asynccontextmanager
async def served(journal: Journal | Path, **options: Any) -> AsyncIterator[Served]:
    """Serve the page of an open journal, or of a file that is opened to be read."""
    if isinstance(journal, Path):
        async with Journal.open(journal, read_only=True) as opened, served(opened, **options) as found:
            yield found
        return
    app = board(journal, **options)
    async with running(app, 0) as port, ClientSession() as client:
        yield Served(f"http://127.0.0.1:{port}/", board_token(app), client)
