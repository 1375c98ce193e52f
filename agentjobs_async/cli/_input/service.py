"""Which service a command talks to: the one that the options name, or an emulator in this process."""

import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import click
from attrs import frozen

from agentjobs_async import AgentJobsSession, Dialect, InvalidInputError, JobRef, PollPolicy
from agentjobs_async._dialect.service_file import ServiceFile, read_service_file
from agentjobs_async._text import BETWEEN_IDS, one_line
from agentjobs_async._validation import checked_bare_id
from agentjobs_async.batch._service import settle_service
from agentjobs_async.cli._input.key_file import KeyFile
from agentjobs_async.cli._output.outcomes import ExitCode
from agentjobs_async.cli.hooks import KeyNotices

if TYPE_CHECKING:
    from agentjobs_async.batch import Journal

DEFAULT_TIMEOUT: Final = 1800.0
"""The seconds that each job may take by default."""
EMULATED_PROJECT: Final = "demo"
NO_PROJECT: Final = "there is no project: give --project ID or set AGENTJOBS_PROJECT_ID"
"""Why prompts that name no project can't be planned."""

Notice = Callable[[str], None]

_NO_PROXY: Final = "none"  # the value of --proxy that connects directly
_SPEED: Final = 60.0  # jobs of 1 to 5 minutes take 1 to 5 seconds
_POLL_DELAY_SECONDS: Final = 0.2  # the emulator is on the same machine


class ServiceFileError(click.ClickException):
    """A service file can't be read, or is invalid: the message names it, and the setting."""

    exit_code = ExitCode.USAGE


def described_in(service_file: str) -> ServiceFile:
    """Return what a service file says.

    Raises:
        ServiceFileError: It can't be read, or is invalid. The setting is named as in the file, not as an option.
    """
    try:
        return read_service_file(service_file)
    except InvalidInputError as error:
        defect = error.message
    raise ServiceFileError(defect)


@frozen
class Service:
    """A service as the options and the environment name it.

    Attributes:
        base_url: Its address; `None` when neither an option, the service file nor the environment names one.
        project_id: The project of prompts and bare job ids; `None` as with `base_url`.
        key_file: Where the key is; `None` reads it from the variable that the service file names, else from
            AGENTJOBS_API_KEY.
        allow_insecure: Allows plain http to other hosts than loopback.
        emulated: An emulator in this process is the service; the other settings but the project are not used.
        proxy: The session's setting: an address without a password, `env` for the environment's proxy, or `None`.
        ca_file: Where further trusted authorities are; `None` trusts the system's alone.
        service_file: The path of the service file; `None` for the usual service.
        described: What the service file says; `None` for the usual service.
    """

    base_url: str | None = None
    project_id: str | None = None
    key_file: str | None = None
    allow_insecure: bool = False
    emulated: bool = False
    proxy: str | None = "env"
    ca_file: str | None = None
    service_file: str | None = None
    described: ServiceFile | None = None

    @classmethod
    def of(
        cls,
        *,
        base_url: str | None,
        project_id: str | None,
        key_file: str | None,
        allow_insecure: bool,
        emulated: bool = False,
        proxy: str | None = None,
        ca_file: str | None = None,
        service_file: str | None = None,
    ) -> Self:
        """Return the service that options name; what they leave out is in the service file, or the environment.

        Raises:
            InvalidInputError: The emulator is asked for, and an option of a service, or a service file, as well.
            ServiceFileError: The service file can't be read, or is invalid.
        """
        if emulated and (allow_insecure or any(given is not None for given in (base_url, key_file, proxy, ca_file))):
            raise InvalidInputError("--emulator brings its own address and key: leave the options of a service out")
        if emulated and service_file is not None:
            raise InvalidInputError("--emulator is the usual service: leave --service out")
        described = None if service_file is None else described_in(service_file)
        if base_url is None and described is not None:
            base_url = described.base_url
        if base_url is None:
            base_url = os.environ.get("AGENTJOBS_BASE_URL") or None
        if project_id is None:
            project_id = os.environ.get("AGENTJOBS_PROJECT_ID") or None
        route = {None: "env", _NO_PROXY: None}.get(proxy, proxy)
        return cls(base_url, project_id, key_file, allow_insecure, emulated, route, ca_file, service_file, described)

    @property
    def default_project(self) -> str | None:
        """The project of items that name none; an emulator has one of its own."""
        return self.project_id or (EMULATED_PROJECT if self.emulated else None)

    @asynccontextmanager
    async def session(self, notice: Notice, **settings: Any) -> AsyncIterator[AgentJobsSession]:
        """Open a session; `settings` are further ones of `AgentJobsSession`. `notice` shows that there is an emulator.

        Raises:
            InvalidInputError: A setting is missing or invalid.
        """
        if self.emulated:
            async with _emulated_session(self.default_project, notice, settings) as session:
                yield session
            return
        address = self._address()
        key_file = None if self.key_file is None else KeyFile(self.key_file)
        if key_file is not None:
            settings["hooks"] = [*settings.get("hooks", ()), KeyNotices(key_file, notice)]
        async with self._configured(address, key_file, settings) as session:
            if key_file is not None and (warning := key_file.warning()) is not None:
                notice(warning)
            yield session

    def creating(self) -> Self:
        """Return this service, checked to have what a create needs beside the key: an address and a project.

        Raises:
            InvalidInputError: It lacks one of them.
        """
        if not self.emulated:
            self._address()
            if self.project_id is None:
                raise InvalidInputError(NO_PROJECT)
        return self

    def ref(self, text: str) -> JobRef:
        """Read a job's token, or a bare id of this service's project.

        Raises:
            InvalidInputError: It is neither, or it is an id and there is no project.
        """
        if BETWEEN_IDS in text:
            return JobRef.from_token(text)
        if self.project_id is None:
            raise InvalidInputError(
                f"{one_line(text, 200)} is a bare job id: write project~.job, give --project, or set"
                " AGENTJOBS_PROJECT_ID"
            )
        return JobRef(self.project_id, checked_bare_id(text))

    def options(self) -> list[str]:
        """Return the options that lead another command to the same service; an emulator's jobs end with it."""
        if self.emulated:
            return ["--emulator"]
        options = [] if self.service_file is None else ["--service", self.service_file]
        options += [] if self.base_url is None or self._is_in_file else ["--base-url", self.base_url]
        options += [] if self.key_file is None else ["--key-file", self.key_file]
        options += [] if self.proxy == "env" else ["--proxy", self.proxy or _NO_PROXY]
        options += [] if self.ca_file is None else ["--ca-file", self.ca_file]
        return options + ["--allow-insecure"] * self.allow_insecure

    def wait_options(self, timeout: float | None, *, as_json: bool) -> list[str] | None:
        """Return the options with which `agentjobs wait` waits as long; `None` for an emulator of this command.

        Args:
            timeout: The seconds for each job; `None` waits for ever.
            as_json: Whether it writes JSON.
        """
        if self.emulated:
            return None
        seconds = "none" if timeout is None else repr(timeout).removesuffix(".0")
        limit = [] if timeout == DEFAULT_TIMEOUT else ["--timeout", seconds]
        return [*self.options(), *limit, *["--json"] * as_json]

    @property
    def _is_in_file(self) -> bool:
        """Whether the address is that of the service file."""
        return self.described is not None and self.described.base_url == self.base_url

    def _address(self) -> str:
        if self.base_url is None:
            raise InvalidInputError(
                "there is no service address: give --service FILE or --base-url URL, or set AGENTJOBS_BASE_URL;"
                " or try it without a service: agentjobs run --emulator PROMPT"
            )
        return self.base_url

    def _configured(self, address: str, key_file: KeyFile | None, settings: dict[str, Any]) -> AgentJobsSession:
        described = self.described or ServiceFile(Dialect())
        settings = {
            **settings,
            "dialect": described.dialect,
            "project_id": self.project_id,
            "allow_insecure": self.allow_insecure,
            "proxy": self.proxy,
            "ssl": None if self.ca_file is None else _trusting(self.ca_file),
        }
        try:
            # Held in `settings` alone, and dropped: no frame of an error may show the key, or a header from a variable.
            settings["headers"] = described.values_of_headers()
            settings["api_key"] = _key_of(described) if key_file is None else key_file.setting(address)
            return AgentJobsSession(address, **settings)
        finally:
            del settings


def _key_of(described: ServiceFile) -> str:
    key = described.key() or os.environ.get("AGENTJOBS_API_KEY")
    if key:
        return key
    raise InvalidInputError(
        "there is no API key: set AGENTJOBS_API_KEY or give --key-file FILE (never as an argument:"
        " others on this machine can read those)"
    )


@asynccontextmanager
async def _emulated_session(
    project_id: str | None, notice: Notice, settings: dict[str, Any]
) -> AsyncIterator[AgentJobsSession]:
    """Start an emulator, show that by `notice`, and open a session for it; both end with the block."""
    from agentjobs_async.testing import Emulator, RandomScripts  # noqa: PLC0415 - a web server, only where it is asked for

    policy = PollPolicy(wait=lambda _: _POLL_DELAY_SECONDS)
    async with Emulator(script=RandomScripts(), speed=_SPEED) as emulator:
        notice(f"Emulator at {emulator.base_url}: no real agents; jobs run {_SPEED:g} times as fast.")
        async with emulator.session(project_id=project_id, policy=policy, **settings) as session:
            yield session


async def check_service(session: AgentJobsSession, journal: "Journal", notice: Notice, *, other_service: bool) -> None:
    """Refuse the session of another service than the journal's; show a warning where its port differs.

    Raises:
        InvalidInputError: The journal belongs to another service, and `other_service` does not say that this is meant.
    """
    warning = await settle_service(session, journal._opened, journal.store, other_service=other_service)
    if warning is not None:
        notice(f"{warning[:1].upper()}{warning[1:]}.")


def proxy_of(text: str) -> str:
    """Return the value of `--proxy`, which shows no password: the session checks the rest of it.

    Raises:
        InvalidInputError: It has a user or a password.
    """
    if "@" in text:
        raise InvalidInputError(
            "it has a user or a password, and others on this machine can read arguments: put the address into the"
            " environment variable HTTPS_PROXY (HTTP_PROXY for a plain http service) instead"
        )
    return text


def _trusting(ca_file: str) -> ssl.SSLContext:
    """Return TLS settings that trust the authorities of a file beside the system's."""
    name = one_line(ca_file)
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=ca_file)
    except ssl.SSLError:
        defect = f"--ca-file: {name} has no certificate in PEM form, which begins with -----BEGIN CERTIFICATE-----"
    except OSError as error:
        defect = f"--ca-file: {name} can't be read: {error.strerror}"
    else:
        return context
    raise InvalidInputError(defect)
