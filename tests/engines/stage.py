"""Workers of the queue, and what tests wait for."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final
from uuid import uuid4

from psycopg.errors import LockNotAvailable

from agentjobs_async.batch import Journal, State
from agentjobs_async.testing import Emulator
from tests import forked
from tests.cli.stage import environment
from tests.engines import process
from tests.postgresql import execute
from tests.until import until

SOON: Final[dict[str, Any]] = {"stalled_after": process.NEVER, "polling": 0.2}
"""Settings of a worker in the test's own process."""


async def ended(journal: Journal) -> bool:
    """Return whether no item is left to do."""
    counts = await journal.counts()
    return not counts[State.PLANNED] + counts[State.SENDING] + counts[State.ACTIVE]


class Client:
    """A process that uses a database.

    Args:
        location: The database.
        work: What it does, called with a number to set to that of its worker in the queue, and with `arguments`.
        arguments: The others.
        env: Its environment.
        complaints: What it writes its errors to.
    """

    def __init__(
        self,
        location: str,
        work: Callable[..., object],
        *arguments: object,
        env: Mapping[str, str] = {},
        complaints: IO[str] | None = None,
    ) -> None:
        self._location = location
        self._name = f"client {uuid4().hex}"
        self._number = forked.shared_number()
        nothing = os.open(os.devnull, os.O_RDWR)
        self.process = forked.Forked(
            work,
            self._number,
            *arguments,
            env=environment({**env, "PGAPPNAME": self._name}),
            streams=(nothing, nothing, nothing if complaints is None else complaints.fileno()),
        )
        os.close(nothing)
        self._owner = f"owner LIKE '%:{self.process.pid}:%'"

    @property
    def is_registered(self) -> bool:
        """Whether it has come so far as to be known to the queue."""
        return self._number.value > 0

    @property
    def is_stopped(self) -> bool:
        """Whether its process was stopped, and does not go on yet."""
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    async def is_known(self) -> bool:
        """Return whether it has given a sign of life since it counted as dead."""
        return execute(self._location, f"SELECT 1 FROM agentjobs_owners WHERE {self._owner}") != []  # noqa: S608 - our own number

    async def ended(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        await until(lambda: self.process.poll() is not None)
        return self.process.wait()

    async def killed(self) -> None:
        """Kill it, and record that it has given no sign of life for long."""
        self.process.kill()
        await self.ended()
        await until(self._is_disconnected)
        await self.record_silence()

    async def record_silence(self) -> None:
        """Record that it has given no sign of life for long; the server ends the transactions in which it stands."""
        await until(self._record_silence)

    async def _record_silence(self) -> bool:
        statements = (
            "SET lock_timeout = '1s'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity"  # noqa: S608 - our own names and numbers
            f" WHERE application_name = '{self._name}' AND state LIKE 'idle in transaction%';"
            f" UPDATE agentjobs_owners SET seen_at = 0 WHERE {self._owner};"
            f" UPDATE procrastinate_workers SET last_heartbeat = 'epoch' WHERE id = {self._number.value}"
        )
        try:  # not on the loop: a journal on it may have locked the row
            await asyncio.to_thread(execute, self._location, statements)
        except LockNotAvailable:  # a transaction of its own has stood still since
            return False
        return True

    async def _is_disconnected(self) -> bool:
        found = f"SELECT 1 FROM pg_stat_activity WHERE application_name = '{self._name}'"  # noqa: S608 - our own name
        return execute(self._location, found) == []


class Worker(Client):
    """A worker in a process of its own.

    Args:
        emulator: The service.
        location: The database.
        complaints: What it writes its errors to.
        point: Where it sends itself a signal.
        number: The number of that signal.
    """

    def __init__(
        self, emulator: Emulator, location: str, complaints: IO[str], point: str = "", number: int = 0
    ) -> None:
        arguments = (emulator.base_url, emulator.api_key, location, point, number)
        super().__init__(location, process.run, *arguments, complaints=complaints)
