"""A session that notes how it is left, and what is still under way on it when it was."""

import asyncio
from math import inf
from typing import Any, Final

from agentjobs_async import AgentJob, AgentJobsSession, JobRef
from tests.simulation.activities import OWN_LOOPS
from tests.simulation.ledger import Ledger, Left, Submission
from tests.simulation.world import World

_ITERATIONS: Final = 2  # of the loop, within which the callers of what has ended are told


class NotedSession(AgentJobsSession):
    """A session whose draining and closing are noted, but for the closing at the end of its block."""

    _world: World
    _ledger: Ledger
    _sender: str

    def note_in(self, ledger: Ledger, world: World, sender: str) -> None:
        """Note in a ledger how it is left."""
        self._ledger, self._world, self._sender = ledger, world, sender
        self._drainers: set[object] = set()
        self._is_at_its_end = False
        self.is_left = asyncio.Event()  # a call that leaves it has returned

    @property
    def is_leaving(self) -> bool:
        """Whether it is being left, or was, before the end of its block."""
        return self._sender in self._ledger.left

    async def create_job(self, prompt: str, **options: Any) -> AgentJob:
        if not self.is_leaving:
            now = self._world.now, self._world.events
            self._ledger.begun.setdefault(self._sender, []).append(now)
        return await super().create_job(prompt, **options)

    async def drain(self, grace: float = 10.0) -> tuple[JobRef, ...]:
        left, task = self._begin(grace), asyncio.current_task()
        self._drainers.add(task)
        try:
            refs = await super().drain(grace)
        except asyncio.CancelledError:
            if self._drainers == {task} and not self.is_left.is_set():
                self._note_until(left, inf)  # creates under way continue until it is closed
            raise
        finally:
            self._drainers.discard(task)
        left.unrecorded |= {ref.job_id for ref in refs}
        if not self.is_left.is_set():
            left.drained = self._world.now
        self._end(left)
        return refs

    async def aclose(self) -> None:
        if asyncio.current_task() in self._drainers or (self._is_at_its_end and not self.is_leaving):
            await super().aclose()
            return
        left = self._begin(0.0)
        await super().aclose()
        self._end(left)

    async def __aexit__(self, *raised: object) -> None:
        self._is_at_its_end = True
        await super().__aexit__(*raised)

    def _begin(self, grace: float) -> Left:
        now = self._world.now
        left = self._ledger.left.setdefault(self._sender, Left(now, now + grace))
        self._note_until(left, min(left.until, now + grace))
        return left

    def _note_until(self, left: Left, until: float) -> None:
        left.until = until
        self._ledger.closed[self._sender] = left.begun, until

    def _end(self, left: Left) -> None:
        if not self.is_left.is_set():
            left.ended = self._world.now
            self.is_left.set()
            self._check(_ITERATIONS)

    def _check(self, iterations: int) -> None:
        """Report what is under way some iterations of the loop later."""
        if iterations:
            asyncio.get_running_loop().call_soon(self._check, iterations - 1)
            return
        ledger = self._ledger
        for call in (*ledger.creates, *ledger.waits, *ledger.calls):
            way = getattr(call, "way", "")
            is_own = way in OWN_LOOPS or isinstance(call, Submission)
            is_busy = way == "updates" and self._world.has_busy_readers
            if call.sender == self._sender and call.ended > self._world.now and not (is_own or is_busy):
                self._world.violate(f"P17: {call} is under way on a session that was left")
