"""The wire between a journal and its PostgreSQL: silent or torn when a test wants it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from sqlalchemy import make_url

_CHUNK = 65_536


class Wire:
    """A TCP proxy on loopback in front of a database.

    Attributes:
        opened: How many connections were accepted.
    """

    def __init__(self, database: str) -> None:
        self.opened = 0
        self._target = make_url(database)
        self._questions = asyncio.Event()
        self._answers = asyncio.Event()
        self._words: list[bytes] = []
        self.speak()
        self._server: asyncio.Server | None = None
        self._carriers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """The database behind it."""
        rest = {name: value for name, value in self._target.query.items() if name not in {"host", "port"}}
        there = self._target.set(host="127.0.0.1", port=self._port, query=rest)
        return there.render_as_string(hide_password=False)

    def silence(self) -> None:
        """Forward nothing any more, as a cut network or a stopped server; what is sent and opened is still taken."""
        self._questions.clear()
        self._answers.clear()

    def mute_at(self, *words: bytes) -> None:
        """Forward no answers any more once all of these words were asked, in this order; they are carried out."""
        self._words = list(words)

    def speak(self) -> None:
        """Forward again, first what came meanwhile."""
        self._questions.set()
        self._answers.set()

    def sever(self) -> None:
        """Break all connections; new ones are taken."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def tear(self) -> None:
        """Break all connections, and refuse new ones."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        for carrier in self._carriers:
            carrier.cancel()
        if self._carriers:
            await asyncio.wait(self._carriers)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        host = self._target.query.get("host", self._target.host)
        port = self._target.query.get("port", self._target.port) or 5432
        self._writers.add(writer)
        if str(host).startswith("/"):
            there, back = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        else:
            there, back = await asyncio.open_connection(str(host), int(str(port)))
        self._writers.add(back)
        for source, target, flows in ((reader, back, self._questions), (there, writer, self._answers)):
            carrier = asyncio.create_task(self._carry(source, target, flows))
            self._carriers.add(carrier)
            carrier.add_done_callback(self._carriers.discard)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, flows: asyncio.Event) -> None:
        with suppress(OSError):
            while piece := await self._piece(source, is_answer=flows is self._answers):
                await flows.wait()
                if flows is self._questions and self._words and self._words[0] in piece:
                    del self._words[0]
                    if not self._words:
                        self._answers.clear()
                target.write(piece)
                await target.drain()
        target.transport.abort()
        self._writers.discard(target)

    async def _piece(self, source: asyncio.StreamReader, *, is_answer: bool) -> bytes:
        """Return what is forwarded next; nothing at the end."""
        del is_answer
        return await source.read(_CHUNK)


class Pooler(Wire):
    """A wire that forwards no notification, as a pooler in transaction mode does."""

    @property
    def url(self) -> str:
        """The database behind it, without encryption, so that its messages can be told apart."""
        settings = {"sslmode": "disable", "gssencmode": "disable"}
        return make_url(super().url).update_query_dict(settings).render_as_string(hide_password=False)

    async def _piece(self, source: asyncio.StreamReader, *, is_answer: bool) -> bytes:
        """Return the next message of the server that is no NotificationResponse; of the client, what it sends."""
        if not is_answer:
            return await super()._piece(source, is_answer=is_answer)
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await source.readexactly(5)  # its type, and its length without that byte
                body = await source.readexactly(int.from_bytes(head[1:], "big") - 4)
                if not head.startswith(b"A"):
                    return head + body
        return b""


@asynccontextmanager
async def wired(database: str, kind: type[Wire] = Wire) -> AsyncIterator[Wire]:
    """A wire to a database, torn in the end."""
    wire = kind(database)
    await wire.start()
    try:
        yield wire
    finally:
        await wire.tear()
