"""The emulator: the service as a real HTTP server on loopback."""

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import attrs

from agentjobs_async import InvalidInputError
from agentjobs_async._deferred import deferred
from agentjobs_async._validation import checked_count, checked_instance, checked_name, checked_seconds
from agentjobs_async.testing._create_body import CreateBody
from agentjobs_async.testing._dialect import UNNAMED_PROJECT, served_dialect
from agentjobs_async.testing._faults.delivery import pause
from agentjobs_async.testing._faults.fault import Fault, FaultPlan
from agentjobs_async.testing._faults.kinds import kind_of
from agentjobs_async.testing._faults.plans import Plans, RunningPlan, Subject
from agentjobs_async.testing._faults.responses import apply_fault, placeholders
from agentjobs_async.testing._listener import Exchange, Listener
from agentjobs_async.testing._messages import Answer, Message, ReceivedRequest
from agentjobs_async.testing._scripts import JobScript, ScriptOf, ScriptTable
from agentjobs_async.testing._service import EmulatedService, RateLimit, StartedJob
from agentjobs_async.testing._threads import entered_in_thread

if TYPE_CHECKING:
    from agentjobs_async import AgentJobsSession, Dialect, PollPolicy
else:
    AgentJobsSession = deferred("agentjobs_async", "AgentJobsSession")
    Dialect = deferred("agentjobs_async", "Dialect")

T = TypeVar("T")

_LOGGER = logging.getLogger("agentjobs_async.testing")
_LONGEST_LINE = 1_000  # characters: a target, or a fault with its text, may be of any length
DEFAULT_API_KEY = "emk_5f1d3a7c9b2e4860"
_GOOD = Fault("ok")
_LAST_PORT = 65_535  # TCP's 16 bits
_SHORTEST_DELAY_SECONDS = 0.01  # faster polls would keep busy the loop on which the emulator runs, too


class Emulator:
    """The service on a port of this machine; its jobs run on the clock of the running event loop.

    Args:
        host: The address to listen on.
        port: The port; 0 chooses a free one.
        api_key: The key that every request must have.
        script: For the jobs that no call of `script` matches: one script, or a function of project id and prompt.
        rate_limit: The limit of creates and reads; `None` for no limit.
        latency: Seconds between a request and its answer, from 0 on.
        speed: The factor by which jobs run faster than their scripts say, above 0.
        faults: The fault plan for all requests; `Fault` documents its text form.
        dialect: What the service looks like; `None` for the usual one. A create that names its project neither in the
            path nor in the body makes a job of the project "default".

    A body that the dialect could not have made is answered with 400 and what is wrong; members of its top level that
    the dialect does not name are extras. Where a status has several words, the first is used. Where the dialect has an
    `idempotency_header`, the key of a create that started an agent is remembered: the same create is answered with the
    same job, another body with 422, and with 409 while the first is not answered.

    No job has the id of another emulator's job, unless a script sets it; within one, ids sort in the order of creation.
    Each request is logged under `agentjobs_async.testing`, at INFO.

    Raises:
        InvalidInputError: A setting is not valid; the error names it.

    Attributes:
        foreign: Another origin, the target of redirects.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        api_key: str = DEFAULT_API_KEY,
        script: JobScript | ScriptOf = JobScript(),  # noqa: B008 - a frozen value
        rate_limit: RateLimit | None = None,
        latency: float = 0.0,
        speed: float = 1.0,
        faults: FaultPlan | Fault | str = FaultPlan(()),  # noqa: B008 - a frozen value
        dialect: "Dialect | None" = None,
    ) -> None:
        checked_count("port", port, least=0, most=_LAST_PORT)
        checked_instance("rate_limit", rate_limit, RateLimit)
        self._dialect = dialect
        self._served = served_dialect(dialect)
        self.host: str = checked_name("host", host)
        self.foreign: ForeignOrigin = ForeignOrigin(host=host, dialect=dialect)
        self.api_key: str = _checked_key(api_key)
        self._latency = checked_seconds("latency", latency, zero=True)
        self._speed = checked_seconds("speed", speed, unit="times")
        self._scripts = ScriptTable(script)
        self._service = EmulatedService(
            api_key=api_key, script_of=self._scripts, rate_limit=rate_limit, speed=speed, dialect=self._served
        )
        self._listener = Listener(self._respond, host, port, self._served.key_header)
        self._plans = Plans()
        self._plans.add(RunningPlan(_checked_plan(faults)))
        self._requests: list[ReceivedRequest] = []
        self._wall_at_zero: datetime | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._listener.open()
        await self.foreign.__aenter__()
        await self._refuse_when_due()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.close()
        await self.foreign.__aexit__(kind, error, traceback)

    @classmethod
    def in_thread(cls, **settings: Any) -> AbstractContextManager[Self]:
        """Return a block in which an emulator runs on a thread of its own, for clients that block the test's thread.

        Its properties and `script` can be used from the test; `call` runs its coroutines, such as that of `inject`.

        Args:
            settings: As of `Emulator`.
        """
        return entered_in_thread(cls(**settings))

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the emulator's loop from another thread, and return its result when it has ended.

        Raises:
            RuntimeError: This is the thread of the emulator's loop: await the coroutine instead.
        """
        if self._loop is asyncio._get_running_loop():  # noqa: SLF001 - get_running_loop() raises where none runs
            work.close()
            raise RuntimeError("call() is for other threads than the emulator's own; await the coroutine instead")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @property
    def port(self) -> int:
        """The port; 0 until an emulator that chooses a free one runs."""
        return self._listener.port

    @property
    def base_url(self) -> str:
        """The base address of the service."""
        return self._listener.url

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """The requests that arrived, in order."""
        return tuple(self._requests)

    @property
    def jobs(self) -> Mapping[str, StartedJob]:
        """The jobs whose agents were started, by id."""
        return MappingProxyType(self._service.jobs)

    @property
    def agents_started(self) -> Counter[str]:
        """The number of agents started for each prompt, with which a client's claims can be compared."""
        return self._service.started.copy()

    @property
    def connections(self) -> int:
        """The number of connections accepted."""
        return self._listener.accepted

    @property
    def keys_seen(self) -> frozenset[str]:
        """The values of every header that arrived in which a key belongs, by default Authorization."""
        return frozenset(key for request in self._requests if (key := request.headers.get(self._served.key_header)))

    def environment(self, project_id: str = "docs") -> dict[str, str]:
        """Return the environment variables with which `AgentJobsSession()` uses this emulator and this project."""
        return {
            "AGENTJOBS_BASE_URL": self.base_url,
            "AGENTJOBS_API_KEY": self.api_key,
            "AGENTJOBS_PROJECT_ID": project_id,
        }

    def session(self, **settings: Any) -> "AgentJobsSession":
        """Return a session for this emulator, whose policy polls `speed` times as fast as the default one.

        A journal that it serves refuses every session that is not of an emulator. `settings` go to `AgentJobsSession`,
        and override the emulator's address, key, dialect and policy.

        Raises:
            RuntimeError: The emulator does not run yet, so it has no address.
        """
        from agentjobs_async.testing._session import EmulatorSession  # noqa: PLC0415 - it runs without the client

        if self.port == 0:
            raise RuntimeError("the emulator does not run yet: make the session within async with Emulator()")
        own: dict[str, Any] = {"base_url": self.base_url, "api_key": self.api_key}
        if self._dialect is not None:
            own["dialect"] = self._dialect
        if self._speed != 1:
            own["policy"] = _policy(self._speed)
        return EmulatorSession(**own | settings)

    def script(self, script: JobScript, *, prompt: str | None = None, project_id: str | None = None) -> None:
        """Set the script of jobs created from now on; the newest that matches applies, `None` matches any."""
        self._scripts.add(script, project_id, prompt)

    def limit(self, rate_limit: RateLimit | None) -> None:
        """Change the limit of creates and reads from now on; `None` for no limit."""
        self._service.limit(rate_limit)

    async def inject(
        self,
        plan: FaultPlan | Fault | str,
        *,
        prompt: str | None = None,
        project_id: str | None = None,
        job_id: str | None = None,
    ) -> None:
        """Start a fault plan for requests from now on; the first plan that applies to a request holds.

        Args:
            plan: The faults; `Fault` documents their text form.
            prompt: Applies to creates with this prompt and to reads of their jobs; `None` to any.
            project_id: Applies to this project; `None` to any.
            job_id: Applies to reads of this job; `None` to any.

        Raises:
            ValueError: It is no plan.
        """
        self._plans.add(RunningPlan(FaultPlan.of(plan), prompt=prompt, project_id=project_id, job_id=job_id))
        await self._refuse_when_due()

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """Refuse every connection inside the block, and break those that are open."""
        await self._listener.refuse()
        try:
            yield
        finally:
            await self._listener.listen()

    async def _respond(self, exchange: Exchange) -> bool:
        subject, extra = self._subject(exchange.received)
        fault = self._plans.pop(subject)
        request = attrs.evolve(
            exchange.received,
            project_id=subject.project_id,
            job_id=subject.job_id,
            prompt=subject.prompt,
            extra=extra,
            fault=str(fault) if fault else None,
        )
        self._requests.append(request)
        wall = self._wall_at(request.at)
        answer = self._service.answer(request, wall, start_agent=fault is None or fault.starts_agent)
        try:
            await pause(self._latency)
            await self._refuse_when_due(exchange.transport)
            return await self._deliver(exchange, answer, fault, wall)
        finally:
            self._service.answered(request)

    def _wall_at(self, moment: float) -> datetime:
        """Return the wall clock at a loop time; from the first request on it goes as the loop's clock does."""
        if self._wall_at_zero is None:
            # Not on entry: looptime replaces the loop's clock between a test's fixtures and the test.
            self._wall_at_zero = datetime.now(UTC) - timedelta(seconds=moment)
        return self._wall_at_zero + timedelta(seconds=moment)

    async def _deliver(self, exchange: Exchange, answer: Answer, fault: Fault | None, wall: datetime) -> bool:
        # Without a fault no placeholder has a meaning: a client may name a project "{key}".
        words = placeholders(self.api_key, self.base_url, self.foreign.url) if fault else {}
        fault = fault or _GOOD
        message = apply_fault(answer, fault, wall, words, self._served).to(exchange.received.method)
        started = answer.job_id if answer.job_id in self._service.jobs else None  # a refused create has none
        _log_request(exchange.received, started, message.status, fault, self.api_key)
        return await kind_of(fault.kind).deliver(exchange, message, fault.where, fault.amount)

    def _subject(self, request: ReceivedRequest) -> tuple[Subject, Mapping[str, Any]]:
        """Return what a request is about, and the further fields of a create."""
        resource = self._served.resource_of(request.method, request.target)
        if resource is None:
            return Subject(), {}
        operation = {("POST", True): "create", ("GET", False): "get"}.get((request.method, resource.job_id is None))
        about = self._service.jobs.get(resource.job_id or "") or self._served.read_create(request.body)
        if isinstance(about, Answer):
            return Subject(operation=operation, project_id=resource.project_id, job_id=resource.job_id), {}
        subject = Subject(
            operation=operation,
            project_id=resource.project_id or about.project_id or UNNAMED_PROJECT,
            job_id=resource.job_id,
            prompt=about.prompt,
        )
        return subject, about.extra if isinstance(about, CreateBody) else {}

    async def _refuse_when_due(self, spared: asyncio.Transport | None = None) -> None:
        # While one refusal lasts, its own task does the refusals that follow it in the plan.
        fault = None if self._listener.refusing else self._plans.pop_refusal()
        if fault is not None:
            # The response on `spared` is sent once the listener is closed; the refusal itself lasts longer.
            refused = asyncio.Event()
            self._listener.spawn(self._refuse(fault, spared, refused))
            await refused.wait()

    async def _refuse(self, fault: Fault | None, spared: asyncio.Transport | None, refused: asyncio.Event) -> None:
        await self._listener.refuse(spared)
        refused.set()
        while fault is not None:
            await pause(fault.amount)
            fault = self._plans.pop_refusal()
        await self._listener.listen()


def _log_request(request: ReceivedRequest, job_id: str | None, status: int, fault: Fault, api_key: str) -> None:
    """Log a request as one line of bounded length; the key is masked, because a target may contain it."""
    if not _LOGGER.isEnabledFor(logging.INFO):
        return
    changed = fault.kind != "ok" or bool(fault.options)
    job = [] if job_id is None else [job_id]
    line = " ".join([request.method, request.target, f"{status} by {fault}" if changed else str(status), *job])
    shown = "".join(map(_escaped, line.replace(api_key, "***")))
    _LOGGER.info("%s", shown if len(shown) <= _LONGEST_LINE else f"{shown[:_LONGEST_LINE]}…")


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()


def _policy(speed: float) -> "PollPolicy":
    """Return the default policy, `speed` times as fast; a server's Retry-After stays in seconds."""
    from agentjobs_async import PollPolicy  # noqa: PLC0415 - the emulator runs without the client

    usual = PollPolicy()

    def wait(state: Any) -> float:
        return max(_SHORTEST_DELAY_SECONDS, usual.wait(state) / speed)

    return PollPolicy(wait=wait, not_found_grace=usual.not_found_grace / speed, answer_grace=usual.answer_grace / speed)


def _checked_key(key: object) -> str:
    if not (isinstance(key, str) and re.fullmatch("[!-~]+", key)):
        raise InvalidInputError("api_key must be visible ASCII characters without blanks")
    return key


def _checked_plan(faults: object) -> FaultPlan:
    try:
        return FaultPlan.of(faults)
    except ValueError as error:
        defect = f"faults: {error}"
    raise InvalidInputError(defect)


_FOREIGN_LINK = "https://foreign.example/pull/1"


class ForeignOrigin:
    """A server that records each request, and answers it with a forged job.

    Args:
        host: The address to listen on; the port is a free one.
        dialect: What that job looks like, as for the emulator.
    """

    def __init__(self, *, host: str = "127.0.0.1", dialect: "Dialect | None" = None) -> None:
        self._served = served_dialect(dialect)
        self._listener = Listener(self._respond, host, 0, self._served.key_header)
        self._requests: list[ReceivedRequest] = []

    async def __aenter__(self) -> Self:
        await self._listener.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.close()

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return self._listener.url

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """The requests that arrived, in order."""
        return tuple(self._requests)

    @property
    def connections(self) -> int:
        """The number of connections accepted."""
        return self._listener.accepted

    async def _respond(self, exchange: Exchange) -> bool:
        self._requests.append(exchange.received)
        body = json.dumps(self._served.document(self._served.completed("foreign", _FOREIGN_LINK))).encode()
        headers = (("Content-Type", "application/json"), ("Content-Length", str(len(body))))
        await exchange.send(Message(200, headers, body).to(exchange.received.method).to_bytes())
        return True
