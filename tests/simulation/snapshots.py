"""What is noted outside of all programs: the journals that processes leave, and what the package warns of."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from unittest.mock import patch

from agentjobs_async import JournalError
from agentjobs_async.batch import Journal
from tests.simulation.ledger import Ledger, Snapshot
from tests.simulation.processes import Process
from tests.simulation.world import World


def snapshot_taker(world: World, ledger: Ledger, location: Path) -> Callable[[Process], None]:
    """Return what notes which ids are in a journal once a process of its program has ended, in the world's own loop."""

    async def take(owner: str) -> None:
        try:
            async with Journal.open(location, read_only=True) as journal:
                ids = frozenset([row.job_id async for row in journal.rows(all_tries=True) if row.job_id])
        except JournalError as error:
            world.violate(f"Journal: what {owner} has left can't be read: {error}")
        else:
            ledger.snapshots.append(Snapshot(owner, ids))

    def ended(process: Process) -> None:
        if process.end != "killed" and location.exists():
            world.loop.create_task(take(process.name), context=Context())

    return ended


@contextmanager
def noted_warnings(world: World, ledger: Ledger) -> Iterator[None]:
    """Note the warnings of the package, and let no log be written."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name.startswith("agentjobs_async"):
                owner = world.current.name if world.current else ""
                ledger.logs.append((owner, record.levelno, record.getMessage()))

    disabled = logging.root.manager.disable
    with patch.object(logging.root, "handlers", [Notes(logging.WARNING)]):
        logging.disable(logging.INFO)
        try:
            yield
        finally:
            logging.disable(disabled)
