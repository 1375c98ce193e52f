"""A runner that crashes between any two steps, and goes on."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentjobs_async import AgentJob, AgentJobsError
from agentjobs_async.batch import Journal, State, _create_failures
from agentjobs_async.batch._store.writer import Database
from tests.batch.stage import FakeSession, items, not_sent, rejected, rows_of, run, unknown

pytestmark = pytest.mark.slow

ITEMS = 12
GATE = 3
FAULTS: dict[str, Callable[[], AgentJobsError]] = {"rejected": rejected, "not sent": not_sent, "unknown": unknown}


class CrashError(Exception):
    """What everything raises that would have an effect after the crash."""


class Machine(FakeSession):
    """The service, and the process that is to crash after so many of its steps: nothing has an effect after that."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_left: float = float("inf")

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise CrashError

    async def _create(self, prompt: str, project_id: str | None) -> AgentJob:
        self.step()
        job = await super()._create(prompt, project_id)
        self.step()
        return job


class CrashingDatabase(Database):
    """Crashes before or after a commit."""

    machine: Machine

    async def _committed(self, lane: Any, orders: Any) -> Any:
        self.machine.step()
        result = await super()._committed(lane, orders)
        self.machine.step()
        return result


class Crashes(RuleBasedStateMachine):
    """Runs one batch again and again, each run to its end or to a crash."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.path = self.directory / "run.db"
        self.machine = Machine()
        self.crashes = 0
        self.faults = 0
        self.pause, _create_failures._FIRST_PAUSE_SECONDS = _create_failures._FIRST_PAUSE_SECONDS, 0.0  # type: ignore[misc]  # no test sleeps

    def teardown(self) -> None:
        if not hasattr(self, "directory"):
            return
        self.go(float("inf"))
        self.check_all()
        assert not {row.state for row in asyncio.run(rows_of(self.path))} & {
            State.PLANNED,
            State.SENDING,
            State.ACTIVE,
        }
        _create_failures._FIRST_PAUSE_SECONDS = self.pause  # type: ignore[misc]  # no test sleeps
        shutil.rmtree(self.directory)

    def go(self, steps: float) -> None:
        self.machine.steps_left = steps
        try:
            asyncio.run(self.batch())
        except (CrashError, AgentJobsError):
            assert self.machine.steps_left < 0
        if self.machine.steps_left < 0:
            self.crashes += 1
        self.machine.steps_left = float("inf")

    async def batch(self) -> None:
        CrashingDatabase.machine = self.machine
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("agentjobs_async.batch._store.opened.Database", CrashingDatabase)
            patch.setattr("agentjobs_async.batch._throttle._FIRST_PROBE_SECONDS", 0.0)  # no test sleeps
            async with Journal.open(self.path) as journal:
                await run(self.machine, items(ITEMS), journal, max_active=5, max_sending=GATE, unknown_for=0)

    @rule(steps=st.integers(0, 80))
    def crash(self, steps: int) -> None:
        self.go(steps)

    @rule(prompt=st.integers(0, ITEMS - 1), fault=st.sampled_from(sorted(FAULTS)), started=st.booleans())
    def fault(self, prompt: int, fault: str, started: bool) -> None:  # noqa: FBT001 - hypothesis gives it
        name = f"p{prompt}"
        if not self.machine.agents[name] and not self.machine.answers.get(name):
            self.machine.answers[name] = [FAULTS[fault]()]
            self.faults += fault == "unknown"
            if fault == "unknown" and started:
                self.machine.agents[name] += 1

    @precondition(lambda self: self.crashes or self.faults)
    @rule()
    def resolve(self) -> None:
        """Look into the service and settle what is unknown."""

        async def settle() -> None:
            async with Journal.open(self.path) as journal:
                for row in await journal.unknown():
                    ids = [job_id for job_id, prompt in self.machine.prompts.items() if prompt == row.prompt]
                    if ids:
                        await journal.resolve(row.key, job_id=ids[0])
                    elif not self.machine.agents[row.prompt]:
                        await journal.resolve(row.key, send_again=True)

        asyncio.run(settle())

    @invariant()
    def check_all(self) -> None:
        """No prompt has two agents; each agent's job is in its row, or the row is unknown; no row has another's job."""
        if not hasattr(self, "directory") or not self.path.exists():
            return
        rows = asyncio.run(rows_of(self.path))
        assert max(self.machine.agents.values(), default=0) <= 1
        assert all(self.machine.prompts[row.job_id] == row.prompt for row in rows if row.job_id)
        unsettled = {row.prompt for row in rows if row.state in {State.UNKNOWN, State.SENDING}}
        known = {row.prompt for row in rows if row.job_id}
        assert {
            prompt
            for prompt, number in self.machine.agents.items()
            if number and prompt in {sent for _, sent in self.machine.sent}
        } <= unsettled | known
        assert len(unsettled) <= GATE * self.crashes + self.faults


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(
    max_examples=20, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
)
