"""Processes: each from one start of its program to its end, and who starts a program again."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import define, field

from agentjobs_async import JournalError

if TYPE_CHECKING:
    from tests.simulation.loop import Loop
    from tests.simulation.world import Fault, World

_DOWNTIME: Final = 60.0  # s, before a program is started again whose journal has failed, or that has stopped
_LOCKED_DOWNTIME: Final = 5.0  # s, before one is started again whose journal has another owner
_MOST_STARTS: Final = 200


class StoppedError(Exception):
    """A program has stopped before its work was done, as it was asked to."""


@define(eq=False)
class Process:
    """A program from one start to its end.

    Attributes:
        starts: Which start of its program it is, from 1.
        cancelled_at: When each task was cancelled, of those that a fault has cancelled.
        cancellable: The tasks that a caller may cancel at any time.
        end: How it has ended: its main function has returned or raised an error, it was ended by a signal, or killed.
        ended_at: When; infinite while it runs.
        interrupted_at: When its main function was cancelled by a SIGINT.
    """

    world: "World"
    supervisor: "Supervisor"
    starts: int
    loop: "Loop"
    cancelled_at: dict[asyncio.Task[Any], float] = field(factory=dict)
    cancellable: dict[asyncio.Task[Any], None] = field(factory=dict)
    end: Literal["", "returned", "error", "signal", "killed"] = ""
    ended_at: float = inf
    interrupted_at: float = inf
    _task: asyncio.Task[None] = field(init=False)

    @property
    def name(self) -> str:
        """Its program and its start, such as `p0.1`."""
        return self.loop.name

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run the main function, as `asyncio.run` does."""
        self.loop.process = self
        self.loop.signal_handlers[signal.SIGINT] = lambda *_: self._interrupt()
        self._task = self.loop.create_task(main, context=Context())
        self._task.add_done_callback(self._main_ended)

    def apply(self, fault: "Fault") -> None:
        """Be killed, receive a signal, or have a task cancelled."""
        if self.end:
            return
        if fault.what == "kill":
            self.exit("killed", fault.amount)
        elif fault.what.startswith("SIG"):
            self._handle(signal.Signals[fault.what])
        elif self.cancellable:
            tasks = list(self.cancellable)
            task = tasks[int(fault.amount) % len(tasks)]
            self.world.note(f"cancels one of {len(tasks)} tasks")
            self.cancelled_at.setdefault(task, self.world.now)
            task.cancel()

    def receive(self, number: int) -> None:
        """Receive a signal: between two callbacks of its loop, as Python does."""
        self.world.note(f"{self.name} receives signal {number}")
        if not self.end:
            self.loop.call_first(self._handle, number)

    def _handle(self, number: int) -> None:
        handler = self.loop.signal_handlers.get(number, signal.SIG_DFL)
        if handler is signal.SIG_DFL:
            self.exit("killed")  # nothing of the package was asked
        elif callable(handler):
            handler(number, None)
        if (callback := self.loop.signal_callbacks.get(number)) is not None:
            self.loop.call_soon(*callback)

    def _interrupt(self) -> None:
        """Cancel the main function at the first SIGINT, and end at the second one."""
        if self.interrupted_at < inf:
            self.exit("killed")
        else:
            self.interrupted_at = self.world.now
            self._task.cancel()

    def exit(self, end: Literal["signal", "killed"], downtime: float = _DOWNTIME) -> None:
        """End at once: nothing more is called, what was not committed is gone, locks are free."""
        if not self.end:
            self.world.note(f"{self.name} ends: {end}")
            self.end, self.ended_at = end, self.world.now
            self.world.kills += 1
            self.loop.kill()
            self.supervisor.ended(self)
            self.supervisor.start_later(self, downtime)

    def _main_ended(self, task: asyncio.Task[None]) -> None:
        if self.end:
            return
        error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.world.note("ended" if error is None else f"ended with {type(error).__name__}: {error}")
        self.end, self.ended_at = "returned" if error is None else "error", self.world.now
        self.supervisor.ended(self)
        match error:
            case None:
                self.supervisor.finished(None)
            case JournalError(reason="locked"):
                self.supervisor.start_later(self, _LOCKED_DOWNTIME)
            case JournalError():
                self.loop.kill()
                self.supervisor.start_later(self, _DOWNTIME)
            case StoppedError():
                self.supervisor.start_later(self, _DOWNTIME)
            case asyncio.CancelledError() if self.interrupted_at < inf:
                self.supervisor.start_later(self, _DOWNTIME)
            case _:
                self.supervisor.finished(error)


@define(eq=False)
class Supervisor:
    """Starts a program, and starts it again whenever it ends before its work is done.

    Attributes:
        processes: All that it has started.
        error: With which the program has ended for good, if any.
    """

    _world: "World"
    name: str
    _main: Callable[[Process], Coroutine[Any, Any, None]]
    _on_end: Callable[[Process], None]
    processes: list[Process] = field(factory=list)
    error: BaseException | None = None
    _pending: int = 0  # starts that are due later
    _replaced: set[Process] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self._start()

    @property
    def is_over(self) -> bool:
        """Whether nothing of the program runs, or will be started."""
        return self.error is not None or not (self._pending or any(not one.end for one in self.processes))

    def replace(self, process: Process, seconds: float) -> None:
        """Start the program once more so many seconds later, whether or not this process has left by then."""
        if not process.end and process not in self._replaced:
            self.start_later(process, seconds)
            self._replaced.add(process)

    def start_later(self, process: Process, seconds: float) -> None:
        """Start the program again, unless the one that replaces this process was started, or will be."""
        if process in self._replaced:
            return
        if len(self.processes) > _MOST_STARTS:
            self.error = RuntimeError(f"{self.name} was started {len(self.processes)} times")
            return
        self._pending += 1
        self._world.down_until = max(self._world.down_until, self._world.now + seconds)
        self._world.loop.call_later(seconds, self._restart, context=Context())

    def ended(self, process: Process) -> None:
        """Pass on that a process has ended."""
        self._on_end(process)

    def finished(self, error: BaseException | None) -> None:
        """Note that a process has ended, and that its work is done or has failed."""
        self.error = self.error or error

    def left_behind(self) -> list[str]:
        """Return what processes that have ended, and were not killed, have left in their loops."""
        return [what for one in self.processes if one.loop in self._world.loops for what in one.loop.left_behind()]

    def _restart(self) -> None:
        self._pending -= 1
        self._start()

    def _start(self) -> None:
        starts = len(self.processes) + 1
        loop = self._world.add_loop(f"{self.name}.{starts}")
        loop.skew = self.processes[-1].loop.skew if self.processes else 0.0
        process = Process(self._world, self, starts, loop)
        self.processes.append(process)
        self._world.processes.append(process)
        process.run(self._main(process))
