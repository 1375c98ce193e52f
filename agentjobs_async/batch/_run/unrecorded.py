"""Jobs that were created and that the journal may not have yet: no id is dropped, however a run is left."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from agentjobs_async import JobRef, JournalError

_NOTICE_SECONDS: Final = 0.05  # of a commit that has just ended; cancelling leaves within 0.1 s

_logger: Final = logging.getLogger("agentjobs_async.batch")


class Unrecorded:
    """The jobs of a run from the create's answer until the journal has their ids, by the keys of their items."""

    def __init__(self) -> None:
        self._refs: dict[str, JobRef] = {}
        self._logged: set[str] = set()
        self._raised: set[str] = set()
        self._recording: set[asyncio.Task[None]] = set()

    def start(self, key: str, ref: JobRef, recording: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start `recording`, which records the id, and return its task, which no caller may cancel.

        It raises a `JournalError` where the id could not be recorded: it is in the log.
        """
        self._refs[key] = ref
        task = asyncio.get_running_loop().create_task(recording)
        self._recording.add(task)
        task.add_done_callback(lambda done: self._done(key, done))
        return task

    def __len__(self) -> int:
        """Return how many ids could not be recorded; those that are being recorded now are not among them."""
        return len(self._logged)

    def ref_of(self, key: str) -> JobRef | None:
        """Return the job of an item whose id could not be recorded; `None` if there is none."""
        return self._refs[key] if key in self._logged else None

    def forget(self, key: str) -> None:
        """Discard an item whose id was recorded after all."""
        del self._refs[key]
        self._logged.discard(key)

    def error(self, fault: JournalError | None) -> JournalError:
        """Return an error that names all ids that could not be recorded, after the message of `fault`."""
        message = "journal: the run was left before it had these jobs" if fault is None else fault.message
        reason = "io" if fault is None else fault.reason
        refs = {key: self._refs[key] for key in self._refs if key in self._logged}
        return JournalError(f"{message}; {_listed(refs)}", reason, tuple(refs.values()))

    def unraised(self, fault: JournalError | None) -> JournalError | None:
        """Return `error(fault)`, for a caller that gets it now; `None` when callers have got all of these ids."""
        if self._raised >= self._logged:
            return None
        error = self.error(fault)
        self.note_raised(error)
        return error

    def note_raised(self, error: JournalError) -> None:
        """Note that a caller gets the ids that an error names."""
        self._raised |= {key for key, ref in self._refs.items() if ref in error.unrecorded}

    async def close(self) -> None:
        """Cancel what is still being recorded, and log every id that is left and not in the log. Call it last."""
        try:
            if self._recording:  # a commit that has just ended is noticed within some iterations of the loop
                await asyncio.wait(self._recording, timeout=_NOTICE_SECONDS)
        finally:
            # Also when this call is cancelled: no id may vanish.
            left = set(self._recording)
            for task in left:
                task.cancel()
            self._log("journal: the run was left before it had these jobs", self._refs)
        if left:
            await asyncio.wait(left)

    def _done(self, key: str, task: asyncio.Task[None]) -> None:
        self._recording.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            del self._refs[key]
        else:
            self._log(str(error), {key: self._refs[key]})

    def _log(self, message: str, refs: Mapping[str, JobRef]) -> None:
        new = {key: ref for key, ref in refs.items() if key not in self._logged}
        self._logged |= new.keys()
        if new:
            _logger.critical("%s; %s", message, _listed(new))


def _listed(refs: Mapping[str, JobRef]) -> str:
    jobs = ", ".join(f"the job of {key!r:.200} is {ref.to_token()}" for key, ref in refs.items())
    return f"{jobs}: keep it, and resolve it later"
