"""`agentjobs` for shells of the tests: each call is a fork of the process that has imported the command line."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.forked import Forked, run_module

_CLIENT: Final = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"0"], [0, 1, 2])
    server.sendall(json.dumps([os.getcwd(), dict(os.environ), *sys.argv[1:]]).encode())
    server.shutdown(socket.SHUT_WR)
    said = server.makefile()
    pid = int(said.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    sys.exit(int(said.readline()))
"""
_MOST_CALLS: Final = 8
"""At the same time."""


@contextmanager
def installed(folder: Path) -> Iterator[Path]:
    """Make `agentjobs` in a folder, and serve its calls within the block; give its path."""
    script, address = folder / "agentjobs", folder / "socket"
    folder.mkdir(exist_ok=True)
    script.write_text(_CLIENT.format(python=sys.executable, address=str(address)), encoding="utf-8")
    script.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening, ThreadPoolExecutor(_MOST_CALLS) as threads:
        address.unlink(missing_ok=True)
        listening.bind(str(address))
        listening.listen()
        accepting = threads.submit(_accept, listening, threads)
        try:
            yield script
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.result()


def _accept(listening: socket.socket, threads: ThreadPoolExecutor) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:  # the block is over
            return
        threads.submit(_call, connection)


def _call(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as asking:
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        cwd, env, *arguments = json.loads(asking.read())
        process = Forked(_run, cwd, *arguments, env=env, streams=(streams[0], streams[1], streams[2]))
        for stream in streams:
            os.close(stream)
        connection.sendall(b"%d\n" % process.pid)
        code = process.wait()
        connection.sendall(b"%d\n" % (code if code >= 0 else 128 - code))


def _run(cwd: str, *arguments: str) -> None:
    os.chdir(cwd)
    run_module("agentjobs_async", *arguments)
