"""Time and turns of a world in which the package alone is real; a seed decides all the rest.

All loops share one clock, which moves only when none of them has anything to do.
"""

import random
import sys
from asyncio import events
from collections import Counter, defaultdict
from collections.abc import Callable
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from tests.simulation.loop import Loop

if TYPE_CHECKING:
    from tests.simulation.processes import Process

EPOCH: Final = 1_800_000_000.0  # the wall clock, in seconds, when a world begins
SIGNALS: Final = ("SIGTERM", "SIGINT")
_MOST_EVENTS: Final = 1_000_000  # of one world while its time stands still
_MOST_EVENTS_PER_SECOND: Final = 500  # of its time besides: runs that wait for each other look each second
_LONGEST_SILENCE: Final = 5 * 3600.0  # s between two connections; an outage takes 2 h, a rate 1 h


class ViolationError(Exception):
    """A promise was broken."""


@frozen
class Fault:
    """One thing that goes wrong.

    Attributes:
        where: What is counted: `connection`, `lookup`, `create`, `job`, `poll`, `answer`, `commit`, `call`, `event`,
            `key` (a callable is asked), `repeat` (a create comes again under its key); or `time`.
        at: Which of them it befalls, from 1; for `time`, seconds since the world began.
        what: What happens.
        amount: Seconds; bytes for what cuts a connection; which task a `cancel` takes; not 0 where a refused create
            starts an agent nevertheless.
        text: The direction of a connection's fault, the Retry-After of an answer, the kind of an outage.
    """

    where: str
    at: int
    what: str
    amount: float = 0.0
    text: str = ""


class World:
    """One clock, the processes that live by it, and the faults that befall them.

    Attributes:
        now: Seconds since it began.
        trace: What happened, one line each.
        happened: When each of the faults that took effect did so, the last time.
    """

    def __init__(self, seed: int, faults: tuple[Fault, ...]) -> None:
        self.now = 0.0
        self.seed = seed
        self.trace: list[str] = []
        self.happened: dict[Fault, float] = {}
        self.events = 0
        self.made = 0  # tasks and futures
        self.kills = 0
        self.down_until = 0.0  # when the last program that is down is started again
        self.slept = 0.0  # s, by the work in a thread that runs at present
        self.lookup_fails = False
        self.outages: list[tuple[float, float, str]] = []  # from when, until when, of which kind
        self.new_keys: list[float] = []  # when the service begins to refuse the keys that each new version replaces
        self.random = random.Random(f"{seed} order")
        self.violations: list[str] = []
        self.network: Any = None  # makes the connections: `Network`
        self.loops: list[Loop] = []
        self.processes: list[Process] = []
        self.dead: list[Loop] = []  # never resumed, and not collected before the end: their `finally` must not run
        self.current: Any = None  # the loop whose turn it is
        self.loop = self.add_loop("service")  # the service's and the world's own; it has no faults
        self._counts: Counter[str] = Counter()
        self._planned: dict[tuple[str, int], list[Fault]] = defaultdict(list)
        for fault in faults:
            self._planned[fault.where, fault.at].append(fault)
            if fault.where == "time":
                self.loop.call_at(fault.at, self._begin, fault)

    def _begin(self, fault: Fault) -> None:
        self.note_fault(fault)
        if fault.what == "outage":
            self.outages.append((self.now, self.now + fault.amount, fault.text))
        elif fault.what == "new key":
            self.new_keys.append(self.now + fault.amount)
        for loop in self.loops[1:]:
            if fault.what == "clock":
                loop.skew += fault.amount
            elif fault.what == "stall":
                loop.blocked_until = self.now + fault.amount

    def next(self, where: str) -> list[Fault]:
        """Count one more of `where`, and return the faults that befall it."""
        self._counts[where] += 1
        found = self._planned.get((where, self._counts[where]), [])
        for fault in found:
            self.note_fault(fault)
            if fault.what in {"kill", "cancel", *SIGNALS} and self.current not in {None, self.loop}:
                self.current.call_first(self.current.process.apply, fault)
        return found

    def note_fault(self, fault: Fault) -> None:
        """Note that a fault takes effect."""
        self.happened[fault] = self.now
        self.note(f"! {fault.where} {fault.at}: {fault.what} {fault.amount:g} {fault.text}")

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now:.6f} {self.current.name if self.current else '-'}: {line}")

    def violate(self, words: str) -> None:
        """Record a broken promise: the world ends with it."""
        self.note(words)
        self.violations.append(words)

    def outage(self) -> str | None:
        """Return of which kind the outage is that lasts at present."""
        return next((kind for since, until, kind in self.outages if since <= self.now < until), None)

    def wall(self) -> float:
        """Return the wall clock of the process whose turn it is."""
        return EPOCH + self.now + self.slept + (self.current.skew if self.current else 0.0)

    def clock(self) -> float:
        """Return what a monotonic clock shows."""
        return self.now + self.slept

    def sleep(self, seconds: float) -> None:
        """Let the work in a thread that runs at present take longer."""
        self.slept += seconds

    def add_loop(self, name: str) -> Loop:
        """Return the loop of a new process."""
        loop = Loop(self, name)
        self.loops.append(loop)
        return loop

    def run(self, is_over: Callable[[], bool]) -> None:
        """Let everything happen, one callback of one loop at a time, until `is_over`."""
        hooks = sys.get_asyncgen_hooks()
        try:
            while not is_over():
                self._turn(self._next_loop())
        finally:
            self.current = None
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def run_for(self, seconds: float) -> None:
        """Let everything happen for so many seconds."""
        over: list[bool] = []
        self.loop.call_later(seconds, over.append, True, context=Context())
        self.run(lambda: bool(over))

    def stalled(self, since: float, until: float) -> bool:
        """Return whether the programs stood still at any time between two moments."""
        stalls = [fault for fault in self.happened if fault.what == "stall"]
        return any(fault.at <= until and fault.at + fault.amount >= since for fault in stalls)

    @property
    def has_busy_readers(self) -> bool:
        """Whether what a program does with a state of a job has hung, or swallowed its cancellation."""
        return any(fault.what in {"hang", "swallow"} for fault in self.happened)

    def _next_loop(self) -> Loop:
        ready = [loop for loop in self.loops if loop._ready and loop.blocked_until <= self.now]
        if not ready:
            when = min(max(loop.due(), loop.blocked_until) for loop in self.loops)
            if when == inf:
                raise ViolationError("World: everything waits for ever")
            self.now = max(self.now, when)
            for loop in self.loops:
                loop.move_due()
            return self._next_loop()
        return ready[0] if len(ready) == 1 else self.random.choice(ready)

    def _turn(self, loop: Loop) -> None:
        self.events += 1
        most = _MOST_EVENTS + _MOST_EVENTS_PER_SECOND * self.now
        if self.events > most or self.now - max(self.network.last, self.down_until) > _LONGEST_SILENCE:
            raise ViolationError(f"World: {self.events} events; nothing was sent since {self.network.last:g}")
        if self.current is not loop:
            self.current = loop
            events._set_running_loop(loop)
            sys.set_asyncgen_hooks(finalizer=loop._asyncgen_finalizer_hook)
        handle = loop._ready.popleft()
        if not handle._cancelled:
            handle._run()
            if loop is not self.loop:
                self.next("event")
