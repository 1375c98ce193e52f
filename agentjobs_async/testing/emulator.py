"""The emulator: the service as a real HTTP server on loopback."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from agentjobs_async.testing._answers import Answer
from agentjobs_async.testing._delivery import deliver, pause
from agentjobs_async.testing._listener import Exchange, Listener
from agentjobs_async.testing._plans import Plans, RunningPlan, Target
from agentjobs_async.testing._service import Service, locate, read_prompt
from agentjobs_async.testing._spoiling import forge, placeholders, spoil
from agentjobs_async.testing.faults import Fault, FaultPlan
from agentjobs_async.testing.limits import RateLimit
from agentjobs_async.testing.lives import JobLife, LifeOf, LifeScripts
from agentjobs_async.testing.origin import ForeignOrigin
from agentjobs_async.testing.records import ReceivedRequest, StartedJob

if TYPE_CHECKING:
    from agentjobs_async import AgentJobsSession

__all__ = ["Emulator"]

DEFAULT_API_KEY = "emk_5f1d3a7c9b2e4860"
_GOOD = Fault("ok")


class Emulator:
    """The service on a port of this machine, living its jobs on the clock of the running event loop.

    Args:
        host: The address to listen on.
        port: 0 takes a free one.
        api_key: The key that every request has to bear.
        lives: What becomes of a job that no `script` fits: one life for all, or a function of project id and prompt.
        rate_limit: Of the creates of each project; `None` for no limit.
        latency: Seconds between a request and its answer, from 0 on.
        speed: How many times faster than scripted a job lives, above 0.
        faults: The plan of all requests; `Fault` documents its text form.

    Raises:
        ValueError: The latency or the speed is out of bounds, or `faults` is no plan.

    Attributes:
        foreign: Another origin, where redirects lead to.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str = DEFAULT_API_KEY,
        lives: JobLife | LifeOf = JobLife(),  # noqa: B008 - a frozen value
        rate_limit: RateLimit | None = None,
        latency: float = 0.0,
        speed: float = 1.0,
        faults: FaultPlan | Fault | str = FaultPlan(()),  # noqa: B008 - a frozen value
    ) -> None:
        if not (latency >= 0 and speed > 0):
            raise ValueError(f"latency must be at least 0, and speed above 0, not {latency} and {speed}")
        self.host = host
        self.foreign = ForeignOrigin(host=host)
        self.api_key = api_key
        self._latency = latency
        self._lives = LifeScripts(lives)
        self._service = Service(api_key=api_key, life_of=self._lives, rate_limit=rate_limit, speed=speed)
        self._listener = Listener(self._respond, host, port)
        self._plans = Plans()
        self._plans.add(RunningPlan(FaultPlan.of(faults)))
        self._requests: list[ReceivedRequest] = []

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._wall_at_zero = datetime.now(UTC) - timedelta(seconds=self._loop.time())
        await self._listener.open()
        await self.foreign.__aenter__()
        await self._refuse_when_due()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.close()
        await self.foreign.__aexit__(kind, error, traceback)

    @property
    def port(self) -> int:
        """The port; 0 before the emulator runs when any free one was asked for."""
        return self._listener.port

    @property
    def base_url(self) -> str:
        """The base address of the service."""
        return self._listener.url

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """What arrived, in order."""
        return tuple(self._requests)

    @property
    def jobs(self) -> Mapping[str, StartedJob]:
        """The jobs whose agents were started, by id."""
        return MappingProxyType(self._service.jobs)

    @property
    def agents_started(self) -> Counter[str]:
        """How many agents were started for each prompt: the truth that a client's claim is held against."""
        return self._service.started.copy()

    @property
    def connections(self) -> int:
        """How many connections were accepted."""
        return self._listener.accepted

    @property
    def keys_seen(self) -> frozenset[str]:
        """The values of every Authorization header that arrived."""
        return frozenset(key for request in self._requests if (key := request.headers.get("Authorization")))

    def session(self, **settings: Any) -> "AgentJobsSession":
        """Give a session for this emulator; `settings` go to `AgentJobsSession`, above its address and key.

        Raises:
            RuntimeError: The emulator does not run yet, and has no address.
        """
        from agentjobs_async import AgentJobsSession  # noqa: PLC0415 - the emulator stands without the client

        if self.port == 0:
            raise RuntimeError("the emulator does not run yet: make the session within async with Emulator()")
        return AgentJobsSession(**{"base_url": self.base_url, "api_key": self.api_key} | settings)

    def script(self, life: JobLife, *, prompt: str | None = None, project_id: str | None = None) -> None:
        """Script the jobs created from now on; the newest script that fits holds, `None` fits any."""
        self._lives.add(life, project_id, prompt)

    async def inject(
        self,
        plan: FaultPlan | Fault | str,
        *,
        prompt: str | None = None,
        project_id: str | None = None,
        job_id: str | None = None,
    ) -> None:
        """Let a fault plan meet the requests from now on; a request meets the first plan that is for it.

        Args:
            plan: The faults; `Fault` documents their text form.
            prompt: The prompt of the creates, and of the reads of their jobs, that it meets; `None` meets any.
            project_id: The project that it meets; `None` meets any.
            job_id: The job whose reads it meets; `None` meets any.

        Raises:
            ValueError: The text is no plan.
        """
        self._plans.add(RunningPlan(FaultPlan.of(plan), prompt=prompt, project_id=project_id, job_id=job_id))
        await self._refuse_when_due()

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """Refuse every connection, and break those that are open, inside of the block."""
        await self._listener.refuse()
        try:
            yield
        finally:
            await self._listener.listen()

    async def _respond(self, exchange: Exchange) -> bool:
        target = self._target(exchange.received)
        fault = self._plans.take(target)
        request = attrs.evolve(
            exchange.received,
            project_id=target.project_id,
            job_id=target.job_id,
            prompt=target.prompt,
            fault=str(fault) if fault else None,
        )
        self._requests.append(request)
        wall = self._wall_at_zero + timedelta(seconds=request.at)
        answer = self._service.answer(request, wall, start_agent=fault is None or fault.starts_agent)
        await pause(self._latency)
        await self._refuse_when_due(exchange.transport)
        return await self._deliver(exchange, answer, fault, wall)

    async def _deliver(self, exchange: Exchange, answer: Answer, fault: Fault | None, wall: datetime) -> bool:
        if fault is None:
            return await deliver(exchange, spoil(answer, _GOOD, wall, {}), _GOOD)
        words = placeholders(self.api_key, self.base_url, self.foreign.url)
        surplus = forge(answer, fault, wall, words).to_bytes() if fault.kind == "surplus" else b""
        return await deliver(exchange, spoil(answer, fault, wall, words), fault, surplus)

    def _target(self, request: ReceivedRequest) -> Target:
        place = locate(request.target)
        if place is None:
            return Target()
        job = self._service.jobs.get(place.job_id or "")
        prompt = job.prompt if job else read_prompt(request.body)
        operation = {("POST", True): "create", ("GET", False): "get"}.get((request.method, place.job_id is None))
        return Target(
            operation=operation,
            project_id=place.project_id,
            job_id=place.job_id,
            prompt=prompt if isinstance(prompt, str) else None,
        )

    async def _refuse_when_due(self, keep: asyncio.Transport | None = None) -> None:
        fault = None if self._listener.refusing else self._plans.take_refusal()
        if fault is not None:
            refused = asyncio.Event()
            self._listener.spawn(self._refuse(fault, keep, refused))
            await refused.wait()

    async def _refuse(self, fault: Fault | None, keep: asyncio.Transport | None, refused: asyncio.Event) -> None:
        await self._listener.refuse(keep)
        refused.set()
        while fault is not None:
            await pause(fault.number("for", 1.0))
            fault = self._plans.take_refusal()
        await self._listener.listen()
