"""The session: one service, one key, one event loop. Creates jobs, reads them, waits for them."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from ssl import SSLContext
from types import TracebackType
from typing import Final, NoReturn, Self

from agentjobs_async._address import PathTemplate, checked_base_url, checked_proxy
from agentjobs_async._binding import Binding
from agentjobs_async._checks import checked_count, checked_instance, checked_seconds, checked_timeout
from agentjobs_async._scope import Scope, let_leave
from agentjobs_async._settings import checked_flag, checked_key, checked_user_agent, default_project, setting
from agentjobs_async._transport import Transport
from agentjobs_async._wire import Codec, prompt_body
from agentjobs_async.completion import WaitResult
from agentjobs_async.counters import TrackerStats
from agentjobs_async.creating import Create
from agentjobs_async.decision import Answer
from agentjobs_async.errors import AgentJobsError, CreateOutcome, InvalidInputError, SessionClosedError, about
from agentjobs_async.models import AgentJob, JobRef, Paced, checked_id
from agentjobs_async.policy import HttpTimeouts, PollBudget, PollPolicy
from agentjobs_async.telemetry import Hook, Hooks, checked_observer
from agentjobs_async.tracker import Tracker
from agentjobs_async.waiting import KINDS, GetJob, OnUpdate, Read, checked_policy, no_job, reader

__all__ = ["AgentJobsSession"]

_MEBIBYTE: Final = 1_048_576
_GIBIBYTE: Final = 1_073_741_824
_LONGEST_CREATE: Final = 120.0
_CLOSED: Final = "the session was closed meanwhile"


class AgentJobsSession:
    """Creates background agent jobs, reads them and waits for them, over HTTP.

    Constructing does no I/O and needs no running loop; the first await binds the session to its loop. Use it as
    `async with`, or call `aclose()`.

    Args:
        base_url: Address of the service: https, or plain http to loopback. `None` takes `AGENTJOBS_BASE_URL`.
        api_key: The secret, visible ASCII. `None` takes `AGENTJOBS_API_KEY`. It goes to `base_url` only.
        project_id: The project of calls that name none. `None` takes `AGENTJOBS_PROJECT_ID`, where that is set.
        create_path: Template of the path that creates; may contain `{project_id}`, and carry a query string.
        get_path: Template of the path that reads; must contain `{job_id}`, may contain `{project_id}`.
        get_job: An async callable that reads a job some other way; it gets a `JobRef`, and gives an `AgentJob` or the
            service's document as a mapping. `get_path` and `timeouts.request` don't matter then.
        policy: When a wait asks again, and what it puts up with.
        budget: What all polls of this session may use together; calls of the `get_job` method come on top, as
            many at once.
        timeouts: How long one exchange may take.
        ssl: Your own context, for private authorities or client certificates; `None` is the system's.
        proxy: Address of an http(s) proxy; `None` goes directly. Never taken from the environment.
        max_document_bytes: How long an answer may be, compressed or not, up to 1 GiB; beyond it is a `ProtocolError`.
        allow_insecure: Allows plain http to other hosts than loopback: the key crosses the network readable.
        user_agent: The User-Agent header; `None` names this package.
        hooks: Called with each event.

    Raises:
        InvalidInputError: An argument makes no sense, or an address or key is missing; the message says what would be
            right, and never quotes the key.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        project_id: str | None = None,
        create_path: str = "/v2/agent/{project_id}/job",
        get_path: str = "/v2/agent/{project_id}/job/{job_id}",
        get_job: GetJob | None = None,
        policy: PollPolicy | None = None,
        budget: PollBudget | None = None,
        timeouts: HttpTimeouts | None = None,
        ssl: SSLContext | None = None,
        proxy: str | None = None,
        max_document_bytes: int = _MEBIBYTE,
        allow_insecure: bool = False,
        user_agent: str | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        key = checked_key(api_key)
        del api_key  # no traceback with locals shows it, should it or another argument be refused
        if isinstance(key, InvalidInputError):
            raise key
        insecure = checked_flag("allow_insecure", allow_insecure)
        self._base = setting(
            "base_url", base_url, "AGENTJOBS_BASE_URL", lambda url: checked_base_url(url, allow_insecure=insecure)
        )
        self._project_id = default_project(project_id)
        project, job = "project_id", "job_id"
        self._create_path = PathTemplate("create_path", create_path, self._base, allowed=frozenset({project}))
        self._get_path = PathTemplate(
            "get_path", get_path, self._base, allowed=frozenset({project, job}), required=frozenset({job})
        )
        self._policy = checked_policy(policy)
        self._hooks = Hooks(hooks)
        self._codec = Codec(key, checked_count("max_document_bytes", max_document_bytes, most=_GIBIBYTE))
        self._transport = Transport(
            key,
            timeouts=checked_instance("timeouts", timeouts, HttpTimeouts) or HttpTimeouts(),
            ssl=checked_instance("ssl", ssl, SSLContext),
            proxy=checked_proxy(proxy, self._base, allow_insecure=allow_insecure),
            user_agent=checked_user_agent(user_agent),
            max_document_bytes=self._codec.max_document_bytes,
        )
        self._read: Read = self._read_over_http if get_job is None else reader(get_job)
        self._binding = Binding("session")
        self._scopes: set[Scope] = set()
        limits = checked_instance("budget", budget, PollBudget) or PollBudget()
        self._places = asyncio.Semaphore(limits.in_flight)
        self._tracker = Tracker(self._read, self._target, self._enter, self._policy, limits, self._hooks)

    async def create_job(
        self,
        prompt: str,
        *,
        project_id: str | None = None,
        timeout: float = _LONGEST_CREATE,  # noqa: ASYNC109 - a public signature; it tells what was not sent from what is unknown
        retry: bool = True,
    ) -> AgentJob:
        """Start one agent, at most, whatever the network does, and give its job.

        What was certainly not sent, and what was refused with 429, is tried again until the time is up; anything
        unsure never is. Cancelling leaves at once and does not stop an agent that was started.

        Args:
            prompt: What the agent is to do: text with more than white space. It arrives as it is.
            project_id: `None` takes the session's.
            timeout: Seconds above 0, finite, within which the create ends, repetitions included.
            retry: `False` raises at once what would be tried again, for callers who pace creates themselves.

        Raises:
            InvalidInputError: An argument makes no sense; nothing was sent.
            NotSentError: No connection could be made in time; nothing was sent.
            RateLimitedError: 429, and its Retry-After exceeds `policy.max_retry_after` or the time left, or `retry` is
                false.
            AuthError, NotFoundError, RejectedError: Refused; no agent was started.
            CreateOutcomeUnknownError: An agent may have been started: it broke after the first byte left, or the
                answer was a 5xx, 408, 303, or no usable job.
            SessionClosedError: The session is closed, or is closed before the request is sent.
        """
        try:
            project = self._project(project_id)
            body = prompt_body(prompt)
            seconds = checked_seconds("timeout", timeout)
            again = checked_flag("retry", retry)
            self._enter()
        except AgentJobsError as error:
            error.outcome = CreateOutcome.NOT_SENT
            raise
        create = Create(
            project,
            self._create_path.url(project),
            body,
            timeout=seconds,
            retry=again,
            max_retry_after=self._policy.max_retry_after,
            hooks=self._hooks,
        )
        result = await create.run(self._transport, self._codec, self._scopes)
        if isinstance(result, Exception):
            raise result
        return result

    async def get_job(self, job: AgentJob | JobRef | str) -> AgentJob:
        """Read a job once, without any retry.

        Raises:
            InvalidInputError: `job` is no job, ref or id, or a bare id without a default project.
            AuthError, NotFoundError, RateLimitedError, RejectedError, ServerError: The service refused or failed.
            NotSentError, TransportError: The exchange broke, or took longer than `timeouts.request`.
            ProtocolError: The answer is not this job.
            SessionClosedError: The session is closed, or was meanwhile.
            Exception: What a `get_job` callable of yours raised, unchanged.
        """
        ref = self._target(job)
        ref = ref.ref if isinstance(ref, AgentJob) else ref
        self._enter()
        answer: Answer | None = None
        with Scope(None, self._scopes) as scope:
            async with self._places:
                answer = await self._read(ref)
        if answer is None:
            answer = scope.reason or SessionClosedError(_CLOSED)
        if isinstance(answer, Exception):
            raise about(answer, ref)
        return answer.job if isinstance(answer, Paced) else answer

    async def wait_for_job(
        self,
        job: AgentJob | JobRef | str,
        *,
        timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature; the deadline also paces the last poll
        on_update: OnUpdate | None = None,
    ) -> AgentJob:
        """Give the job once it is completed, archived or failed. `failed` is a result, not an exception.

        Cancelling it leaves at once; the job itself goes on remotely.

        Args:
            job: A bare id is a job of the session's project. An `AgentJob` that has ended comes back without a poll.
            timeout: Seconds above 0; `None` waits for ever.
            on_update: A plain function, called with the job at first sight and at each change (of what is not only in
                `raw`), the last included. What it raises is logged once.

        Raises:
            InvalidInputError: An argument makes no sense, before any poll; or the wait strategy gave an invalid delay.
            WaitTimeoutError: The time ran out.
            ProtocolError: `policy.max_bad_answers` unusable answers in a row.
            NotFoundError: 404 for longer than `policy.not_found_grace`, or 410.
            AuthError, RejectedError, ServerError: An answer after which asking again is no use.
            SessionClosedError: The session is closed, or was meanwhile.
            Exception: What a `get_job` callable of yours raised, unchanged, when `policy.retry` does not accept it.
        """
        return await self._tracker.watch(job, timeout, on_update)

    def watch(self, job: AgentJob | JobRef | str, *, timeout: float | None = 1800.0) -> asyncio.Future[AgentJob]:
        """Give a future of what `wait_for_job` would give or raise, the lightest handle. Cancelling it ends the wait.

        Raises:
            InvalidInputError: An argument makes no sense.
            SessionClosedError: The session is closed, or this is not its event loop.
        """
        return self._tracker.watch(job, timeout)

    def as_completed(
        self,
        jobs: Iterable[AgentJob | JobRef | str] | AsyncIterable[AgentJob | JobRef | str],
        *,
        timeout: float | None = 1800.0,
    ) -> AbstractAsyncContextManager[AsyncIterator[WaitResult]]:
        """Give an async context manager over the results, in the order in which the jobs end; failures are values.

        Args:
            jobs: A list is taken at once; any other iterable, an async one without end too, at most 1,000 ahead of
                the results that were taken. What it raises itself comes out of the iteration. A job given twice gives
                two results.
            timeout: Seconds for each job, from when it is taken; `None` for ever.

        Raises:
            InvalidInputError: An argument makes no sense; a list is checked at once, any other iterable as it is read.
            SessionClosedError: The session is closed, or this is not its event loop.
        """
        return self._tracker.as_completed(jobs, timeout)

    def updates(
        self, job: AgentJob | JobRef | str, *, timeout: float | None = 1800.0
    ) -> AbstractAsyncContextManager[AsyncIterator[AgentJob]]:
        """Give an async context manager over the job's state now, and each change until its end.

        A slow reader gets the newest state. The wait's error comes out of the iteration.

        Raises:
            InvalidInputError: An argument makes no sense.
            SessionClosedError: The session is closed, or this is not its event loop.
        """
        return self._tracker.updates(job, timeout)

    def notify(self, job: AgentJob | JobRef | str) -> None:
        """Say that something happened to the job: it is polled soon, once, however often this is called.

        Nothing happens for a job that nobody waits for.

        Raises:
            InvalidInputError: An argument makes no sense.
            SessionClosedError: The session is closed, or this is not its event loop.
        """
        self._tracker.notify(job)

    def stats(self) -> TrackerStats:
        """Give a snapshot of what the waits of this session are doing.

        Raises:
            SessionClosedError: The session is closed, or this is not its event loop.
        """
        return self._tracker.stats()

    async def run_job(
        self,
        prompt: str,
        *,
        project_id: str | None = None,
        timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature; it spans the create and the wait
        on_update: OnUpdate | None = None,
    ) -> AgentJob:
        """Create a job, then wait for it, all within `timeout` seconds; the create takes 120 s at the most.

        `on_update` sees the job as soon as it is created, so that its ref can be kept.

        Raises:
            AgentJobsError: As `create_job` and `wait_for_job` do; `outcome` tells whether the create raised it.
        """
        checked_timeout(timeout)
        if on_update is not None:
            checked_observer("on_update", on_update)
        clock = asyncio.get_running_loop().time
        started = clock()
        job = await self.create_job(
            prompt, project_id=project_id, timeout=min(timeout or _LONGEST_CREATE, _LONGEST_CREATE)
        )
        left = None if timeout is None else max(timeout - (clock() - started), 0.001)
        return await self.wait_for_job(job, timeout=left, on_update=on_update)

    @property
    def project_id(self) -> str | None:
        """The default project; `None` without one."""
        return self._project_id

    def mask(self, text: str) -> str:
        """Give `text` with the key replaced by `***`, whatever form it has there: for what you write down yourself."""
        return self._codec.key.mask(text)

    async def aclose(self) -> None:
        """Interrupt what is under way, and close all connections. Idempotent; the jobs themselves go on remotely.

        A create under way ends as unknown once its first byte has left; a wait raises `SessionClosedError`.

        Raises:
            SessionClosedError: The session is bound to another loop or to the process that forked this one.
        """
        if not self._binding.close():
            return
        for scope in tuple(self._scopes):
            scope.interrupt(SessionClosedError(_CLOSED))
        try:
            await self._tracker.aclose(SessionClosedError(_CLOSED))
            await let_leave(lambda: self._scopes)
        finally:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        if not hasattr(self, "_scopes"):  # the last that is set: a traceback shows the session of a refused argument
            return "<AgentJobsSession, not made>"
        state = "closed" if self._binding.closed else "open"
        return f"<AgentJobsSession {self._base} project_id={self._project_id!r} {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session holds sockets and a key: it is never pickled or copied; pickle job.ref instead")

    def _enter(self) -> asyncio.AbstractEventLoop:
        loop = self._binding.enter()
        self._transport.open()
        return loop

    def _project(self, given: str | None) -> str:
        if given is not None:
            return checked_id("project_id", given)
        if self._project_id is None:
            raise InvalidInputError(
                "project_id is missing: pass it to the call or to the session, or set AGENTJOBS_PROJECT_ID"
            )
        return self._project_id

    def _target(self, job: object) -> AgentJob | JobRef:
        if isinstance(job, KINDS):
            return job
        if isinstance(job, str):
            return JobRef(self._project(None), job)
        raise no_job(job, "an AgentJob, a JobRef or a job id")

    async def _read_over_http(self, ref: JobRef) -> Answer:
        url = self._get_path.url(ref.project_id, ref.job_id)
        response = await self._transport.read(url)
        return response if isinstance(response, AgentJobsError) else self._codec.polled(response, ref)
