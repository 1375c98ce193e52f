"""The session: creates jobs, reads them and waits for them, at one service, with one key, in one event loop."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from ssl import SSLContext
from typing import Any, Final, NoReturn, Self
from uuid import uuid4

from agentjobs_async._dialect.dialect import Dialect
from agentjobs_async._extra import checked_extra
from agentjobs_async._http.create import CreateRequest, OnCancel, checked_idempotency_key, checked_on_cancel
from agentjobs_async._http.credentials import Credentials, KeyOf, checked_own_headers
from agentjobs_async._http.proxy import ProxySetting
from agentjobs_async._http.responses import ResponseDecoder
from agentjobs_async._http.service import Service
from agentjobs_async._http.settings import (
    checked_address,
    checked_key,
    default_project,
    missing_settings,
    project_of_call,
)
from agentjobs_async._http.transport import HttpTimeouts, Transport, checked_user_agent
from agentjobs_async._loop.cancel_scope import wait_until_left
from agentjobs_async._loop.loop_binding import running_loop
from agentjobs_async._loop.tasks import run_to_end
from agentjobs_async._polling.reading import GetJob, GetJobReader, OnUpdate, job_or_raise, job_or_ref
from agentjobs_async._polling.waits import Waits
from agentjobs_async._validation import (
    checked_bare_id,
    checked_flag,
    checked_instance,
    checked_label,
    checked_prompt,
    checked_seconds,
    checked_timeout,
)
from agentjobs_async.errors import AgentJobsError, CreateOutcome, InvalidInputError, SessionClosedError
from agentjobs_async.models import AgentJob, JobRef
from agentjobs_async.policy import PollBudget, PollPolicy
from agentjobs_async.telemetry.left_jobs import report_left
from agentjobs_async.telemetry.observers import Hook, checked_observer, hooks_of

__all__ = ["AgentJobsSession"]

EMULATOR: Final = "emulator"
"""The service of the sessions of every emulator: none of its jobs is real, or known anywhere else."""

_MAX_CREATE_SECONDS: Final = 120.0  # a server that has not answered a create by then hardly ever will
_NO_HEADERS: Final[Mapping[str, str]] = {}
_CLOSED: Final = "the session was closed meanwhile"


class AgentJobsSession(Waits[AgentJob | JobRef | str]):
    """Creates background agent jobs, reads them and waits for them, over HTTP.

    Use it as `async with`, or call `aclose()`. Constructing does no I/O and needs no running loop; the first await
    binds the session to its loop.

    Methods that take a `job` accept an `AgentJob`, a `JobRef`, or the id of a job of the session's project. Two kinds
    of ids are refused: one with `~.`, which may be a token (pass `JobRef.from_token(text)` or `JobRef(project_id,
    text)`), and one with white space, which may be a prompt (pass it to `create_job`).

    Args:
        base_url: Address of the service: https, or plain http to loopback. `None` reads `AGENTJOBS_BASE_URL`.
        api_key: The secret: visible ASCII. `None` reads `AGENTJOBS_API_KEY`. It is sent to `base_url` only. For a key
            that changes, pass a plain or async callable without arguments that returns it. It is called before the
            first request, and again when the service refuses the key with 401: once for all calls under way, which are
            repeated if it returns another key. It runs in an empty context.
        project_id: The project of calls that name none. `None` reads `AGENTJOBS_PROJECT_ID`; it may be unset.
        dialect: What differs from the usual service: paths, the names of fields and words, where the key goes; `None`
            for the usual one.
        headers: More header fields of every request, by their names. Fields that frame a request are refused. Values of
            8 characters or more are masked as the key is; ids are not.
        get_job: An async callable that reads jobs in place of the dialect's `get_path`. It takes a `JobRef` and returns
            an `AgentJob`, or the service's document as a mapping. `timeouts.request` does not apply to it. The method
            `get_job` calls it in the caller's context; waits, which share their polls, call it in an empty context.
        policy: When a wait polls again, and which faults end it; `None` for the defaults.
        budget: What all polls of this session may use together; `None` for the defaults. Calls of the method `get_job`
            do not count as polls; at most `budget.in_flight` of them are in flight at once, besides the polls.
        timeouts: How long one exchange may take; `None` for the defaults.
        ssl: Your own TLS context, for private authorities or client certificates; `None` for the system's authorities
            (or those of `SSL_CERT_FILE`, which OpenSSL reads). It is also used for an https proxy.
        proxy: Address of an http(s) proxy; `None` connects directly. An address without a scheme, such as
            `proxy.example.com:3128`, is http. It may have a user and a password, which no text of this session shows.
            `"env"` reads it from the environment now: HTTPS_PROXY, or HTTP_PROXY for a plain http `base_url`; it
            connects directly where NO_PROXY names the host or the host is loopback. SOCKS and ALL_PROXY are refused;
            `.netrc` is never read.
        allow_insecure: Allow plain http to hosts other than loopback: the key is readable on the network then.
        user_agent: The User-Agent header; `None` names this package and its version.
        hooks: Called with each event.

    Raises:
        InvalidInputError: An argument is invalid, or the address or key is missing. The message says what is valid, or
            names all that is missing; it never quotes the key.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | KeyOf | None = None,
        *,
        project_id: str | None = None,
        dialect: Dialect | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        get_job: GetJob | None = None,
        policy: PollPolicy | None = None,
        budget: PollBudget | None = None,
        timeouts: HttpTimeouts | None = None,
        ssl: SSLContext | None = None,
        proxy: str | None = None,
        allow_insecure: bool = False,
        user_agent: str | None = None,
        hooks: Sequence[Hook] = (),
    ) -> None:
        key = missing_settings(base_url=base_url is None, api_key=api_key is None) or checked_key(api_key)
        own = checked_own_headers(headers)
        proxy_setting = ProxySetting(proxy)
        # If this or another argument is refused, a traceback with locals must show no secret.
        del api_key, headers, proxy
        if isinstance(key, InvalidInputError):
            raise key
        if isinstance(own, InvalidInputError):
            raise own
        self._dialect = checked_instance("dialect", dialect, Dialect) or Dialect()
        own.check_names([*self._dialect.own_headers, *([] if user_agent is None else ["User-Agent"])])
        self._base_url = address = checked_address(base_url, allow_insecure=allow_insecure)
        route = proxy_setting.proxy_to(address, allow_insecure=allow_insecure)
        found_hooks = hooks_of(hooks, address.host if get_job is None else None)
        self._credentials = credentials = Credentials(key, own, self._dialect, found_hooks, route.maskers)
        limit = self._dialect.max_document_bytes
        self._transport = Transport(credentials, timeouts, ssl, route, checked_user_agent(user_agent), limit)
        decoder = ResponseDecoder(credentials, self._dialect)
        self._service = Service(address, self._transport, decoder)
        self._project_id = default_project(project_id)
        reader = self._service if get_job is None else GetJobReader(get_job, decoder.documents)
        super().__init__("session", reader, policy, budget, found_hooks)
        self._finishing: set[asyncio.Task[object]] = set()

    @classmethod
    def from_toml(cls, path: str | PathLike[str], **settings: Any) -> Self:
        """Return a session for the service that a service file names, as the command line reads it by `--service`.

        Args:
            path: A TOML file with any of these: `base_url`; `key_env`, the name of the environment variable of the key;
                the settings of a `Dialect`; a table `[headers]`, whose values may be `{env = "NAME"}`. Without
                `base_url` or `key_env`, the usual environment variables are read.
            settings: Those of the class. They override what the file says; `headers` are added to its own.

        Raises:
            InvalidInputError: The file can't be read, is no TOML, or has an unknown or invalid setting; a variable that
                it names is not set; or a setting is invalid, as by the class.
        """
        from agentjobs_async._dialect.service_file import settings_in  # noqa: PLC0415 - few sessions read a file

        found = settings_in(path, settings)
        del settings  # as in the constructor
        if isinstance(found, InvalidInputError):
            raise found
        try:
            return cls(**found)
        finally:
            del found

    async def create_job(
        self,
        prompt: str,
        *,
        project_id: str | None = None,
        timeout: float = _MAX_CREATE_SECONDS,  # noqa: ASYNC109 - public; asyncio.timeout can't tell "not sent" from "unknown"
        retry: bool = True,
        before_send: Callable[[], bool] | None = None,
        label: str | None = None,
        on_cancel: OnCancel = "abandon",
        extra: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> AgentJob:
        """Start at most one agent, whatever the network does, and return its job.

        A create is repeated until `timeout` if it certainly started no agent: no byte of it was sent, or the server
        refused it with 429 or one of the dialect's `create_refusals`. A create whose outcome is unknown is never
        repeated, unless the dialect has an `idempotency_header`. Then it is repeated with the same key, and only a job
        settles it.

        Cancelling this call returns at once, and does not stop an agent that was started. The create is cut, unless
        `on_cancel` is `"finish"`.

        Args:
            prompt: What the agent is to do: text with more than white space. It is sent unchanged.
            project_id: The project; `None` for the session's.
            timeout: Seconds, finite and above 0, within which the create ends, repetitions included.
            retry: Whether to repeat; `False` raises the first error at once, for callers who repeat creates themselves.
            before_send: A plain function that returns whether to send: for callers whose right to send may have
                expired. It is called when the connection is ready, right before the first byte of the request leaves,
                and again at each repetition. If it returns false or raises, nothing is sent, and a `NotSentError` with
                the reason `withheld` is raised.
            label: Your name for this job in events, such as `order-17`: 1 to 512 characters without control characters.
                It is not sent. Waits that are given the returned job take it over.
            on_cancel: What becomes of the create when this call is cancelled. `"abandon"` cuts it, so that its outcome
                is unknown once its first byte has left. With `"finish"` it continues without the caller, hooks get its
                `JobCreated` or `CreateFailed`, and `drain` waits for it: for handlers whose client may disconnect. A
                warning names the token of a job that its caller no longer gets. If the answer came together with the
                cancellation, a note of the `CancelledError` names it, too, and hooks get a `WaitEnded`.
            extra: More fields of the create's object: JSON of up to 16 KiB. The dialect's `body` says where they go.
            idempotency_key: The key under which the create is sent: 1 to 255 characters of visible ASCII; `None` makes
                a new one. It needs a dialect with an `idempotency_header`. A create with the key of an earlier one gets
                the job of that one, as long as the service remembers the key.

        Raises:
            InvalidInputError: An argument is invalid, or the callable `api_key` returned no key; nothing was sent.
            NotSentError: No connection could be made in time, or the callable `api_key` raised; nothing was sent.
            RateLimitedError, ServerError: The server refused with 429, or one of `create_refusals`, and it is not
                repeated: its Retry-After exceeds `policy.max_retry_after` or the time left, or `retry` is false. No
                agent was started.
            AuthError, NotFoundError, RejectedError: The server refused; no agent was started.
            CreateOutcomeUnknownError: An agent may have been started: the exchange failed after the first byte left, or
                the response was a 408, a 303, or a 5xx that is not one of `create_refusals`, or it had no usable job.
            SessionClosedError: The session is closed, or was closed before the request was sent.
        """
        try:
            finish = checked_on_cancel(on_cancel)
            request = CreateRequest(
                project_of_call(project_id, self._project_id),
                checked_prompt("prompt", prompt),
                timeout=checked_seconds("timeout", timeout),
                retry=checked_flag("retry", retry),
                max_retry_after=self._policy.max_retry_after,
                before_send=before_send,
                label=checked_label(label),
                **self._checked_fields(extra, idempotency_key),
            )
            scheduler = self._scheduler()
        except AgentJobsError as error:
            error.outcome = CreateOutcome.NOT_SENT
            raise
        create = self._service.create(request, self._hooks, self._shutdown)
        job = job_or_raise(await (run_to_end(create, self._finishing, self._on_left) if finish else create))
        scheduler.created(job.ref)
        return job

    def _checked_fields(self, extra: Mapping[str, Any] | None, idempotency_key: str | None) -> dict[str, Any]:
        """Return what a create says beside its prompt."""
        fields: dict[str, Any] = {}
        if extra is not None:
            fields["extra"] = self._checked_extra(extra)
        if self._dialect.idempotency_header is not None:
            fields["idempotency_key"] = checked_idempotency_key(idempotency_key) or uuid4().hex
            fields["idempotency_seconds"] = self._dialect.idempotency_seconds
        elif idempotency_key is not None:
            raise InvalidInputError(
                "idempotency_key needs a dialect with an idempotency_header: other services don't honour a key"
            )
        return fields

    def _checked_extra(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of more fields of a create, which have a place in its body."""
        return checked_extra(extra, fields=self._service.taken_fields)

    async def _digest_of_create(
        self, prompt: str, *, project_id: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> str:
        """Return a digest of address, header name, body and API key: where it has changed, no create is repeated.

        Raises:
            AgentJobsError: As by `create_job`, before anything is sent.
        """
        request = CreateRequest(
            project_of_call(project_id, self._project_id),
            checked_prompt("prompt", prompt),
            timeout=_MAX_CREATE_SECONDS,
            retry=False,
            max_retry_after=0.0,
            **self._checked_fields(extra, None),
        )
        self._scheduler()
        found = await self._service.digest_of(request)
        if isinstance(found, AgentJobsError):
            found.outcome = CreateOutcome.NOT_SENT
            raise found
        return found

    @property
    def _key_changes(self) -> int:
        """How often a callable `api_key` has replaced the key."""
        return self._credentials.changes

    def _on_left(self, result: AgentJob | Exception, cut: asyncio.CancelledError) -> None:
        """Log a job whose create went on without its caller; hooks have got its `JobCreated`."""
        if isinstance(result, AgentJob):
            report_left(result, cut)

    async def get_job(self, job: AgentJob | JobRef | str) -> AgentJob:
        """Read a job once.

        The request is repeated in one case only: it went out on a connection that an earlier request had used, and that
        broke before a byte of the response, most often since the server had closed it. It is then sent once more, on a
        fresh connection and within the same time.

        Raises:
            InvalidInputError: `job` is not a job, ref or id. Or it is an id that may be a token or a prompt, or the
                session has no project for it. Or your own `get_job` returned neither an `AgentJob` nor a mapping, or a
                job of another ref.
            AuthError, NotFoundError, RateLimitedError, RejectedError, ServerError: The server refused or failed.
            NotSentError, TransportError: The exchange failed, or took longer than `timeouts.request`.
            ProtocolError: The response does not show this job.
            SessionClosedError: The session is closed, or was closed during the call.
            Exception: What your own `get_job` raised, unchanged.
        """
        target = self._target(job)
        self._enter()
        return await self._read_once(target)

    async def run_job(
        self,
        prompt: str,
        *,
        project_id: str | None = None,
        timeout: float | None = 1800.0,  # noqa: ASYNC109 - a public signature; it spans the create and the wait
        on_update: OnUpdate | None = None,
        label: str | None = None,
        on_cancel: OnCancel = "abandon",
        extra: Mapping[str, Any] | None = None,
    ) -> AgentJob:
        """Create a job and wait for it, within `timeout` seconds together; the create takes at most 120 s of them.

        Args:
            prompt: As in `create_job`.
            project_id: As in `create_job`.
            timeout: Seconds, finite and above 0; `None` sets no limit to the wait.
            on_update: As in `wait_for_job`. Its first call, with the created job, is the time to store `job.ref`.
            label: As in `create_job`.
            on_cancel: As in `create_job`. Once the job is created, cancelling ends the wait; a warning and a note of
                the `CancelledError` name the job's token. If the session is closed meanwhile, a warning names it.
            extra: As in `create_job`.

        Raises:
            AgentJobsError: As by `create_job` and `wait_for_job`; `outcome` is `None` if the wait raised it.
        """
        running_loop("the session")
        checked_timeout(timeout)
        if on_update is not None:
            checked_observer("on_update", on_update)
        create = {"project_id": project_id, "label": label, "on_cancel": on_cancel, "extra": extra}
        work = self._create_and_wait(prompt, timeout, on_update, create)
        return await self._hooks.run(project_id or self._project_id, label, work)

    async def _create_and_wait(
        self, prompt: str, seconds: float | None, on_update: OnUpdate | None, create: dict[str, Any]
    ) -> AgentJob:
        clock = asyncio.get_running_loop().time
        began = clock()
        job = await self.create_job(prompt, timeout=min(seconds or _MAX_CREATE_SECONDS, _MAX_CREATE_SECONDS), **create)
        left = None if seconds is None else max(seconds - (clock() - began), 0.001)
        try:
            return await self.wait_for_job(job, timeout=left, on_update=on_update)
        except (asyncio.CancelledError, SessionClosedError) as error:
            report_left(job, error)
            raise

    def recording(self) -> AbstractContextManager[object]:
        """Return a block in which you create jobs and record them, for example in your database.

        `drain` waits for the end of each block, until 10 s after its grace. It logs the tokens of jobs whose blocks
        were not left by then, or were left by an error during the draining, and returns these jobs.

        Enter and leave the block in one task, and never call `drain` in it.
        """
        return self._shutdown.recording()

    @property
    def project_id(self) -> str | None:
        """The default project; `None` without one."""
        return self._project_id

    @property
    def dialect(self) -> Dialect:
        """The dialect of the service."""
        return self._dialect

    @property
    def service(self) -> str:
        """The service as a journal records it: its address and both path templates, the same for each spelling.

        It is `emulator` for the session of an `Emulator`.
        """
        return self._service.identity

    def mask(self, text: str) -> str:
        """Return `text` with the key, secret headers and a proxy's password replaced by `***`, encoded forms too.

        Use it for text that you store or show. If the key changes, the last 16 keys are masked, and those of calls
        under way.
        """
        return self._credentials.mask(text)

    async def aclose(self) -> None:
        """Interrupt all calls and close all connections. Idempotent. The jobs continue remotely.

        Interrupted calls raise a `SessionClosedError`; a create whose first byte has left raises a
        `CreateOutcomeUnknownError`.

        Raises:
            SessionClosedError: The session is bound to another loop or to the process that forked this one.
        """
        if not self._binding.close():
            return
        error, ending = SessionClosedError(_CLOSED), self._shutdown
        for group in (ending.waits, ending.creates):
            group.interrupt(error)
        try:
            await self._end_waits(error)
            await wait_until_left(lambda: ending.waits or ending.creates or self._finishing)
            await self._credentials.aclose()
        finally:
            await self._transport.aclose()

    def __del__(self) -> None:
        if hasattr(self, "_hooks") and self._transport.is_open and (loop := self._binding.unclosed(self)) is not None:
            self._transport.abandon(loop)

    def __repr__(self) -> str:
        if not hasattr(self, "_hooks"):  # set last; a traceback may show a session whose argument was refused
            return "<AgentJobsSession, not made>"
        state = "closed" if self._binding.closed else "open"
        address = self._credentials.mask_keys(str(self._base_url))  # a gateway may want the key in it
        return f"<AgentJobsSession {address} project_id={self._project_id!r} {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session holds sockets and a key: it is never pickled or copied; pickle job.ref instead")

    def _enter(self) -> asyncio.AbstractEventLoop:
        loop = super()._enter()
        self._transport.open()
        return loop

    def _target(self, job: object) -> AgentJob | JobRef:
        if isinstance(job, str):
            return JobRef(project_of_call(None, self._project_id), checked_bare_id(job))
        return job_or_ref(job, "an AgentJob, a JobRef or a job id")
