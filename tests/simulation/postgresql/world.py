"""A world: a database, the service, and processes that are killed, stopped and started as a plan decides."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from attrs import evolve

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import Journal, JournalRow, State
from tests.forked import Forked
from tests.simulation.postgresql.database import cut, recorded, rows_of
from tests.simulation.postgresql.plan import WRONG, Action, Moment, Plan, Program, Trouble
from tests.simulation.postgresql.program import Start, run
from tests.simulation.postgresql.records import Happened, Records, Report
from tests.simulation.postgresql.service import agents_of, misbehave, requests_of, service_of

_LOOK_SECONDS: Final = 0.02
_BEGIN_SECONDS: Final = 60.0  # for the first start of all programs, on a machine that is busy
_LEAVE_SECONDS: Final = 60.0  # of which a program itself may use some 15
_QUIET_SECONDS: Final = 60.0  # after the last start, without any progress: a busy machine is no broken promise
_END_SECONDS: Final = 200.0  # from the last start, until every row has ended and every end was told
_REST_SECONDS: Final = 0.3  # between two looks at the database
_STALL_SECONDS: Final = 0.3
_CREATES_WARNED: Final = re.compile("outcome of a create is unknown|creates became unknown|held back|are refused")
"""Warnings that tell what became of creates: they are no trouble that explains it."""


class Child:
    """A program, and its process at present."""

    def __init__(self, start: Start, happened: list[Happened]) -> None:
        self._start = start
        self._happened = happened
        self._process: Forked | None = None
        self.exits: dict[str, float] = {}
        self._is_befallen = False

    @property
    def sender(self) -> str:
        return self._start.sender

    @property
    def is_running(self) -> bool:
        """Whether its process runs; of one that has ended, the time is kept."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self.exits.setdefault(self.sender, time.monotonic())
        return False

    def start(self, *, is_calm: bool = False) -> None:
        self._start = evolve(self._start, number=self._start.number + 1, is_calm=is_calm)
        with (
            (self._start.reports.parent / f"{self.sender}.log").open("w") as log,
            Path(os.devnull).open("r+") as nothing,
        ):
            streams = (nothing.fileno(), log.fileno(), log.fileno())
            environment = {**os.environ, "PGAPPNAME": self._start.program.name}
            self._process = Forked(run, self._start, env=environment, streams=streams)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    async def ended(self, seconds: float) -> bool:
        """Wait until the process has ended; return whether it has."""
        until = time.monotonic() + seconds
        while self.is_running and time.monotonic() < until:  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(_LOOK_SECONDS)
        return not self.is_running

    async def befall(self, trouble: Trouble) -> None:
        """Let a trouble come, and pass."""
        if not self.is_running or self._is_befallen:
            return
        began, sender = time.monotonic(), self.sender
        self._is_befallen = True
        match trouble.what:
            case "cut":
                await asyncio.to_thread(cut, self._start.location, self._start.program.name)
            case "stop":
                self.send(signal.SIGSTOP)
                await asyncio.sleep(trouble.seconds)
                self.send(signal.SIGCONT)
            case kind:
                self.send(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
                if await self.ended(_LEAVE_SECONDS):
                    await asyncio.sleep(trouble.seconds)
                    self.start()
        self._is_befallen = False
        self._happened.append(Happened(began, time.monotonic(), sender, trouble.what))


def prepare() -> None:
    """Start what the processes are forked from, which takes a busy machine seconds: no world is to wait for it."""
    with Path(os.devnull).open("r+") as nothing:
        streams = (nothing.fileno(),) * 3
        _ = Forked(print, env=dict(os.environ), streams=streams).wait()


class World:
    """Runs a plan once.

    Args:
        plan: What a seed has decided.
        location: A database with a journal whose changes are recorded.
        folder: For the files of the processes.
    """

    def __init__(self, plan: Plan, location: str, folder: Path) -> None:
        self._plan = plan
        self._location = location
        self._reports = folder / "reports"
        self._happened: list[Happened] = []
        self._stuck: list[str] = []

    async def run(self) -> Records:
        """Run the world to its end, and return what was recorded."""
        async with Journal.open(self._location) as journal:
            await journal.set_limits(self._plan.limits)
        watching = asyncio.create_task(self._note_stalls())
        async with service_of(self._plan) as self._service:
            await misbehave(self._service, self._plan)
            with self._children() as children:
                await self._live(children)
                records = self._records(children)
        watching.cancel()
        return records

    @contextmanager
    def _children(self) -> Iterator[dict[str, Child]]:
        found = {program.name: Child(self._first(program), self._happened) for program in self._plan.programs}
        try:
            yield found
        finally:
            for child in found.values():
                child.send(signal.SIGKILL)

    def _first(self, program: Program) -> Start:
        timeout = self._plan.owner_timeout
        return Start(
            program, 0, is_calm=False, base_url=self._service.base_url, location=self._location,
            owner_timeout=timeout, reports=self._reports,
        )  # fmt: skip

    async def _live(self, children: dict[str, Child]) -> None:
        for child in children.values():
            child.start()
        await self._entered(len(children))
        self._begun = time.monotonic()
        befalling = [self._befall(children[one.program], one) for one in self._plan.troubles]
        acting = [self._act(one) for one in self._plan.actions]
        await asyncio.gather(asyncio.sleep(self._plan.lasts), *befalling, *acting)
        await self._leave(children)
        if self._plan.settles:
            for row in await self._rows(State.UNKNOWN):
                await self._resolve(row.key, send_again=False)
        for child in children.values():
            child.start(is_calm=True)
        await self._finish()
        await self._leave(children)

    async def _leave(self, children: dict[str, Child]) -> None:
        """Ask all programs to end, and wait for it."""
        for child in children.values():
            if child.is_running:
                self._happened.append(Happened(time.monotonic(), time.monotonic(), child.sender, "terminate"))
            child.send(signal.SIGTERM)
        for child in children.values():
            if not await child.ended(_LEAVE_SECONDS):
                self._stuck.append(f"{child.sender} did not end within {_LEAVE_SECONDS:g} s after SIGTERM")
                child.send(signal.SIGKILL)
                await child.ended(_LEAVE_SECONDS)

    async def _entered(self, count: int) -> None:
        """Wait until so many programs work."""
        until = time.monotonic() + _BEGIN_SECONDS
        while len({one.sender for one in self._said("enters")}) < count and time.monotonic() < until:  # noqa: ASYNC110 - as above
            await asyncio.sleep(_LOOK_SECONDS)

    async def _finish(self) -> None:
        """Wait until all is done; note where nothing moves any more."""
        before, moved, until = None, time.monotonic(), time.monotonic() + _END_SECONDS
        while not await asyncio.to_thread(self._is_over):
            now = (
                [(row.key, row.state) for row in await asyncio.to_thread(rows_of, self._location)],
                len(self._said("told")),
            )
            moved = moved if now == before else time.monotonic()
            before = now
            if time.monotonic() > min(until, moved + _QUIET_SECONDS):
                self._stuck.append("after the last start not all was done, though there was time for it")
                return
            await asyncio.sleep(_REST_SECONDS)

    def _is_over(self) -> bool:
        """Return whether every row has ended, and every end that is to be told was told by a call that has returned."""
        told = {(one.about["key"], one.about["state"]) for one in self._said("told") if not one.about["raises"]}
        rows = rows_of(self._location)
        return self._plan.keys <= {row.key for row in rows} and all(
            not row.state.is_open and (not row.is_followed or (row.key, row.state) in told)
            for row in rows
            if not row.is_unfollowed
        )

    async def _due(self, moment: Moment) -> None:
        count = moment.requests
        while time.monotonic() < self._begun + moment.seconds:
            if count is not None and len(self._service.requests) >= count:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _befall(self, child: Child, trouble: Trouble) -> None:
        await self._due(trouble.moment)
        await child.befall(trouble)

    async def _act(self, action: Action) -> None:
        """Do what a person does, who needs no short timeout: nothing is claimed, and no owner counts as dead sooner."""
        await self._due(action.moment)
        allowed = {
            "abandon": (State.PLANNED, State.ACTIVE, State.UNKNOWN),
            "retry": (State.FAILED, State.ARCHIVED, State.REJECTED, State.ABANDONED),
        }.get(action.what, (State.UNKNOWN,))
        rows = await self._rows(*allowed)
        if not rows:
            return
        key = rows[int(action.choice * len(rows))].key
        with suppress(InvalidInputError):  # it has moved meanwhile
            if action.what == "resolve wrongly":
                async with Journal.open(self._location) as journal:
                    await journal.resolve(key, job_id=f"{WRONG}{key}")
                return
            if action.what in {"resolve", "send again"}:
                await self._resolve(key, send_again=action.what == "send again")
                return
            async with Journal.open(self._location) as journal:
                _ = await (journal.abandon(key) if action.what == "abandon" else journal.retry(key))

    async def _rows(self, *states: State) -> list[JournalRow]:
        async with Journal.open(self._location, read_only=True) as journal:
            return [row for row in await journal.rows() if row.state in states]

    async def _resolve(self, key: str, *, send_again: bool) -> None:
        """Settle an unknown row by the job that the service has for it, if there is one, else by a new create."""
        async with Journal.open(self._location) as journal:
            rows = await journal.rows(all_tries=True)
            row = [row for row in rows if row.key == key][-1]
            known = {one.job_id for one in rows}
            left = [
                job.job_id for job in agents_of(self._service) if job.prompt == row.prompt and job.job_id not in known
            ]
            if left:
                await journal.resolve(key, job_id=left[-1])
            elif send_again:
                await journal.resolve(key, send_again=True)

    def _said(self, what: str) -> list[Report]:
        return [report for report in _reports(self._reports) if report.what == what]

    async def _note_stalls(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(_LOOK_SECONDS)
            if (now := time.monotonic()) - before > _STALL_SECONDS:
                self._happened.append(Happened(before, now, None, "service stall"))

    def _records(self, children: dict[str, Child]) -> Records:
        found = recorded(self._location)
        reports = _reports(self._reports)
        said = tuple(
            Happened(one.at, one.at + one.about.get("seconds", 0.0), one.sender, one.what)
            for one in reports
            if one.what == "stalled" or (one.what == "warned" and not _CREATES_WARNED.search(one.about["text"]))
        )
        return Records(
            self._plan,
            requests_of(self._service),
            agents_of(self._service),
            found.changes,
            tuple(sorted(reports, key=lambda one: one.at)),
            (*self._happened, *said),
            found.beats,
            {sender: at for child in children.values() for sender, at in child.exits.items()},
            tuple(self._stuck),
            found.text + self._reports.read_text(),
            found.tries,
        )


def _reports(path: Path) -> list[Report]:
    return [Report(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
