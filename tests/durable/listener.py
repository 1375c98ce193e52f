"""Callbacks that keep what they are told."""

import asyncio

from agentjobs_async import AgentJob
from agentjobs_async.durable import DurableEntry
from agentjobs_async.testing import Emulator


def shown(ended: AgentJob | Exception) -> str:
    """Return a status, or the name of an error."""
    return str(ended.status) if isinstance(ended, AgentJob) else type(ended).__name__


async def complete(emulator: Emulator, prompt: str = "long") -> None:
    """Let all jobs of a prompt be completed from now on: no job ends before its test wants it to."""
    await emulator.inject("document status=completed forever on=get", prompt=prompt)


class Listener:
    """Keeps what its callbacks are told.

    Attributes:
        failures: How many calls of `on_end` for a key raise an error before one returns.
        called: By key, what `on_end` was called with, those calls that raised included.
    """

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.changes: list[tuple[str, str]] = []
        self.called: list[tuple[str, str]] = []
        self.entries: list[DurableEntry] = []
        self._changed = asyncio.Condition()

    async def on_change(self, entry: DurableEntry, job: AgentJob | Exception) -> None:
        """Keep a change."""
        async with self._changed:
            self.changes.append((entry.key, shown(job)))
            self.entries.append(entry)
            self._changed.notify_all()

    async def on_end(self, entry: DurableEntry, ended: AgentJob | Exception) -> None:
        """Keep an end, or raise."""
        async with self._changed:
            self.called.append((entry.key, shown(ended)))
            self.entries.append(entry)
            self._changed.notify_all()
        if sum(key == entry.key for key, _ in self.called) <= self.failures:
            raise RuntimeError("the chat can't be reached")

    async def ends(self, count: int) -> None:
        """Wait for so many calls of `on_end`."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.called) >= count)

    async def change(self, status: str) -> None:
        """Wait until `on_change` was told of a status."""
        async with self._changed:
            await self._changed.wait_for(lambda: any(status == told for _, told in self.changes))
