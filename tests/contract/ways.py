"""Ways to wait: the sweep takes the waiting function as a parameter, and every way keeps the same promises."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol

from agentjobs_async import (
    AgentJob,
    AgentJobsSession,
    Hook,
    JobRef,
    JobTracker,
    OnUpdate,
    PollBudget,
    PollPolicy,
    wait_for_job,
)
from agentjobs_async.testing import Emulator, JobScript, ReceivedRequest
from tests.contract.tables import ONE_OF_EACH

REF: Final = JobRef("docs", "job_1")
"""A job that no emulator has."""
ENDLESS: Final = JobScript(duration=float("inf"))


class Wait(Protocol):
    """What every way has in common."""

    def __call__(
        self, job: AgentJob | JobRef, /, *, timeout: float | None = ..., on_update: OnUpdate | None = ...
    ) -> Coroutine[Any, Any, AgentJob]: ...


class Server(Protocol):
    """The emulator, or a scripted server."""

    def session(self, **settings: Any) -> AgentJobsSession: ...


Waiting = Callable[..., AbstractAsyncContextManager[tuple[AgentJobsSession, Wait]]]
"""Called with a server and settings: opens a session for it, and a way to wait on that session."""


@asynccontextmanager
async def _free(
    server: Server, *, policy: PollPolicy | None = None, hooks: Sequence[Hook] = (), **settings: Any
) -> AsyncIterator[tuple[AgentJobsSession, Wait]]:
    async with server.session(**{"project_id": "docs"} | settings, policy=policy, hooks=hooks) as session:
        yield session, partial(wait_for_job, get_job=session.get_job, policy=policy)


@asynccontextmanager
async def _session(server: Server, **settings: Any) -> AsyncIterator[tuple[AgentJobsSession, Wait]]:
    async with server.session(**{"project_id": "docs"} | settings) as session:
        yield session, session.wait_for_job


@asynccontextmanager
async def _tracker(
    server: Server,
    *,
    policy: PollPolicy | None = None,
    budget: PollBudget | None = None,
    hooks: Sequence[Hook] = (),
    **settings: Any,
) -> AsyncIterator[tuple[AgentJobsSession, Wait]]:
    async with (
        server.session(**{"project_id": "docs"} | settings, policy=policy, budget=budget, hooks=hooks) as session,
        JobTracker(session.get_job, policy=policy, budget=budget, hooks=hooks) as tracker,
    ):
        yield session, tracker.wait_for_job


WAYS: Final[dict[str, Waiting]] = {"free": _free, "session": _session, "tracker": _tracker}
SESSION: Final[Waiting] = _session


def gets(emulator: Emulator, job: AgentJob | None = None) -> list[ReceivedRequest]:
    """Return the reads that arrived: all, or those of one job."""
    reads = [request for request in emulator.requests if request.method == "GET"]
    return reads if job is None else [request for request in reads if request.job_id == job.id]


def met_by(waiting: Waiting, faults: Iterable[str]) -> list[str]:
    """Return the faults that a way has to meet: bytes mean the same to every way, so the session alone meets all."""
    return [fault for fault in faults if waiting is SESSION or fault in ONE_OF_EACH]


@asynccontextmanager
async def started(
    emulator: Emulator, plan: str, waiting: Waiting = SESSION, **settings: Any
) -> AsyncIterator[tuple[Wait, AgentJob]]:
    """Open a way to wait on a session of its own, and give it with a job whose reads meet a plan."""
    async with waiting(emulator, **settings) as (session, wait):
        created = await session.create_job("Fix it")
        await emulator.inject(plan, job_id=created.id)
        yield wait, created
