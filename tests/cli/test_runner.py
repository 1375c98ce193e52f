import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from agentjobs_async import AgentJob, JobPolled, JobRef, PollFailed, PollPolicy, TransportError
from agentjobs_async.cli.outcomes import Outcome, Result
from agentjobs_async.cli.process import Interruption
from agentjobs_async.cli.runner import Runner, SilenceHook, TroubleHook
from agentjobs_async.testing import Emulator, JobScript

REF = JobRef("docs", "job_1")
JOB = AgentJob("job_1", "docs", "active")


class Told:
    """A report that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def running(self, total: int) -> Any:
        self.calls.append(("running", total))
        return nullcontext()

    def created(self, number: int, prompt: str, job: AgentJob) -> None:
        self.calls.append(("created", (number, prompt, job.status)))

    def changed(self, number: int, job: AgentJob) -> None:
        self.calls.append(("changed", (number, job.status)))

    def troubled(self, ref: JobRef, error: Exception) -> None:
        self.calls.append(("troubled", (ref, error)))

    def ended(self, result: Result) -> None:
        self.calls.append(("ended", (result.number, result.outcome)))

    def summed_up(self, results: Sequence[Result], exit_code: int) -> None:
        raise NotImplementedError


async def test_run() -> None:
    """A run reports the creation, each status and the end of every prompt, and gives the results in their order."""
    told = Told()
    async with Emulator(script=JobScript(duration=0)) as emulator, emulator.session(project_id="docs") as session:
        results = await Runner(session, told, Interruption(), 60).run(["a", "b"], 1)
    assert [result.outcome for result in results] == [Outcome.COMPLETED] * 2
    assert told.calls == [
        ("running", 2),
        ("created", (1, "a", "active")),
        ("changed", (1, "completed")),
        ("ended", (1, Outcome.COMPLETED)),
        ("created", (2, "b", "active")),
        ("changed", (2, "completed")),
        ("ended", (2, Outcome.COMPLETED)),
    ]


async def test_other_changes() -> None:
    """A change of anything but the status is not reported."""
    told, policy = Told(), PollPolicy(wait=lambda _: 0)
    async with Emulator(script=JobScript(duration=0)) as emulator, emulator.session(policy=policy) as session:
        job = await session.create_job("a", project_id="docs")
        await emulator.inject("document status=active on=get then document status=active model=another on=get")
        await Runner(session, told, Interruption(), 60).wait([job.ref])
    assert told.calls == [
        ("running", 1),
        ("changed", (1, "active")),
        ("changed", (1, "completed")),
        ("ended", (1, Outcome.COMPLETED)),
    ]


async def test_bug_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised for one prompt, the others go on."""
    async with Emulator(script=JobScript(duration=0)) as emulator, emulator.session(project_id="docs") as session:
        run_job = session.run_job

        async def faulty(prompt: str, **options: Any) -> AgentJob:
            if prompt == "a":
                raise RuntimeError("bug")
            return await run_job(prompt, **options)

        monkeypatch.setattr(type(session), "run_job", staticmethod(faulty))
        results = await Runner(session, Told(), Interruption(), 60).run(["a", "b"], 20)
    assert [result.outcome for result in results] == [Outcome.UNKNOWN, Outcome.COMPLETED]


async def test_refused_later() -> None:
    """A key that was good before is not given up at the first refusal."""
    async with Emulator(script=JobScript(duration=0)) as emulator, emulator.session(project_id="docs") as session:
        await emulator.inject("403", prompt="b")
        results = await Runner(session, Told(), Interruption(), 60).run(["a", "b", "c"], 1)
    assert [result.outcome for result in results] == [Outcome.COMPLETED, Outcome.REJECTED, Outcome.COMPLETED]


def test_trouble_hook() -> None:
    """Trouble is told at the second failure in a row, and again only after a good answer."""
    told, error = Told(), TransportError("cut")
    hook = TroubleHook(told)
    hook(PollFailed(REF, asyncio.CancelledError(), 1))
    hook(PollFailed(REF, error, 1))
    hook(JobPolled(JOB, 2))
    assert told.calls == []
    for poll in range(3):
        hook(PollFailed(REF, error, poll))
    hook(JobPolled(JOB, 6))
    hook(PollFailed(REF, error, 7))
    hook(PollFailed(REF, error, 8))
    assert told.calls == [("troubled", (REF, error))] * 2


@pytest.mark.looptime
async def test_silence_hook() -> None:
    """Silence is told once, unless something happened before."""
    calls: list[str] = []
    SilenceHook(lambda: calls.append("silent"))
    SilenceHook(lambda: calls.append("heard"))(JobPolled(JOB, 1))
    await asyncio.sleep(60)
    assert calls == ["silent"]
