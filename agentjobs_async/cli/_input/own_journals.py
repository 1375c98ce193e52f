"""The journals of runs without --journal: where they are, and when a run removes its journal."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from platformdirs import user_state_path

from agentjobs_async import InvalidInputError, JournalError, batch
from agentjobs_async.batch import State
from agentjobs_async.batch.states import FAILED

if TYPE_CHECKING:
    from agentjobs_async.batch import Journal

_PREFIX: Final = "run-"
_SUFFIX: Final = ".db"
BESIDE: Final = ("", "-wal", "-shm", ".lock")
"""What the names of a journal's files end with, the journal first: without it the others mean nothing."""
_ENDED: Final = frozenset(state for state in State if not state.is_open and state is not State.UNKNOWN)


def directory() -> Path:
    """Return the directory of the journals of runs without `--journal`, within the user's directory for state."""
    return user_state_path("agentjobs", appauthor=False)


def is_own(journal: str) -> bool:
    """Return whether a run without `--journal` made a journal, by its directory and name."""
    path = Path(journal).resolve()
    return path.match(f"{_PREFIX}*{_SUFFIX}") and path.parent == directory().resolve()


def left_journals() -> list[Path]:
    """Return the journals that are left of such runs, the oldest first."""
    with suppress(OSError):
        return sorted(directory().glob(f"{_PREFIX}*{_SUFFIX}"))
    return []


@contextmanager
def new_journal(*, temporary: bool) -> Iterator[str]:
    """Yield the path of a journal that does not exist yet; its name has the time (UTC, µs) and is unique.

    Args:
        temporary: Whether it lies in a directory that is removed with the block: nothing resumes the jobs of an
            emulator that ends with its command.

    Raises:
        InvalidInputError: The directory cannot be made.
    """
    if temporary:
        with TemporaryDirectory(prefix="agentjobs-") as temporary_directory:
            yield str(Path(temporary_directory) / f"run{_SUFFIX}")
        return
    parent = directory()
    name = f"{_PREFIX}{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{secrets.token_hex(3)}{_SUFFIX}"
    defect = None
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        defect = _unusable(f"{parent}: {error.strerror}")
    if defect is not None:
        raise defect
    yield str(parent / name)


@asynccontextmanager
async def open_for_run(journal: str, *, own: bool, max_tries: int | None) -> AsyncIterator["Journal"]:
    """Open the journal of a run, and remove the file after the block if nothing needs it.

    That is a new one in which nothing was planned; and one of a run without `--journal`, if all of its items have
    ended, none would be tried again, and no error leaves the block.

    Args:
        journal: The file or URL.
        own: Whether it is that of a run without `--journal`.
        max_tries: As in `count_of_retried`.

    Raises:
        InvalidInputError: A new one of a run without `--journal` cannot be written.
    """
    is_new = not Path(journal).exists()  # noqa: ASYNC240 - one look at a name
    removable: frozenset[State] = frozenset()
    occurring: set[State] = set(State)
    try:
        async with _opened(journal, explains=own and is_new) as opened:
            try:
                yield opened
                removable = _ENDED if own else removable
            finally:
                if own or (is_new and not opened.is_shared):  # a server that is gone is asked nothing
                    with suppress(JournalError):
                        retried = await count_of_retried(opened, max_tries)
                        found = {state for state, number in (await opened.counts()).items() if number}
                        occurring = found | {State.PLANNED} if retried else found
    finally:
        if occurring <= removable:
            remove(opened.address)  # it is closed by now: Windows does not remove open files


async def count_of_retried(journal: "Journal", max_tries: int | None) -> int:
    """Return how many failed items the same run again would try again: those that had fewer than `max_tries` tries.

    1 stands for a run that tries none again; `None` is no bound.
    """
    if max_tries == 1:
        return 0
    failed = journal.rows(where=batch.Where(states=FAILED))
    return sum([max_tries is None or row.tries < max_tries async for row in failed])


def remove(journal: str) -> None:
    """Remove one of these journals, and the files of SQLite and its owner beside it."""
    for suffix in BESIDE:
        with suppress(OSError):
            Path(f"{journal}{suffix}").unlink(missing_ok=True)


@asynccontextmanager
async def _opened(journal: str, *, explains: bool) -> AsyncIterator["Journal"]:
    async with AsyncExitStack() as stack:
        defect = None
        try:
            opened = await stack.enter_async_context(batch.Journal.open(journal))
        except asyncio.CancelledError:
            if explains:  # a stop before anything was planned leaves no journal
                remove(journal)
            raise
        except JournalError as error:
            if not explains:
                raise
            remove(journal)  # what was made before the fault
            defect = _unusable(error.message)
        if defect is not None:  # raised here, so that its context names no file twice
            raise defect
        yield opened


def _unusable(reason: str) -> InvalidInputError:
    return InvalidInputError(f"this run can't keep its journal ({reason}); say where: --journal FILE")
