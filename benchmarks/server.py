"""A server in a process of its own; its responses are nearly prepared bytes, so that it is no bottleneck.

`GET .../job/ID` returns the job ID: active until the poll whose number the server was started with, then completed.
`POST` returns a new job.
"""

import asyncio
import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_DOCUMENT = {
    "id": "%b",
    "status": "%b",
    "source": {"repository": "https://code.example/acme/docs", "ref": "main"},
    "model": "some-model-4",
    "prLink": "https://code.example/acme/docs/pull/42",
    "createdAt": "2026-01-05T12:00:00.000Z",
    "archivedAt": None,
}
_BODY = json.dumps(_DOCUMENT).encode()
_NUMBERS = itertools.count(1)


def _answer(job_id: bytes, status: bytes) -> bytes:
    body = _BODY % (job_id, status)
    return _HEAD % len(body) + body


class _Connection(asyncio.Protocol):
    """One connection; requests are never pipelined."""

    def __init__(self, polls: int, polled: Counter[bytes]) -> None:
        self._polls = polls
        self._polled = polled
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._is_whole():
            self._transport.write(self._response())  # type: ignore[attr-defined]  # the transport of a TCP server
            self._received = b""

    def _is_whole(self) -> bool:
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or head.startswith(b"GET"):
            return bool(separator)
        if b"chunked" in head:
            return body.endswith(b"0\r\n\r\n")
        return body.endswith(b"}")

    def _response(self) -> bytes:
        method, target, _ = self._received.split(b" ", 2)
        if method == b"POST":
            return _answer(b"job_%d" % next(_NUMBERS), b"active")
        job_id = target.rpartition(b"/")[2]
        self._polled[job_id] += 1
        return _answer(job_id, b"active" if self._polled[job_id] < self._polls else b"completed")


@contextmanager
def server(polls: int = sys.maxsize) -> Iterator[str]:
    """Run the server in a process of its own while the block lasts; return its address."""
    command = [sys.executable, __file__, str(polls)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - this very script
        assert process.stdout is not None  # noqa: S101 - a pipe, as above
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


async def _serve(polls: int) -> None:
    polled: Counter[bytes] = Counter()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(polls, polled), "127.0.0.1", 0, backlog=4_096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
