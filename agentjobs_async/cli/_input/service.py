"""Which service a command talks to: the one that the options name, or an emulator in this process."""

import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import frozen

from agentjobs_async import AgentJobsSession, InvalidInputError, JobRef, PollPolicy
from agentjobs_async._text import BETWEEN_IDS, one_line
from agentjobs_async._validation import checked_bare_id
from agentjobs_async.batch._service import settle_service

if TYPE_CHECKING:
    from agentjobs_async.batch import Journal

DEFAULT_TIMEOUT: Final = 1800.0
"""The seconds that each job may take by default."""
EMULATED_PROJECT: Final = "demo"
NO_PROJECT: Final = "there is no project: give --project ID or set AGENTJOBS_PROJECT_ID"
"""Why prompts that name no project can't be planned."""

Notice = Callable[[str], None]

_SPEED: Final = 60.0  # jobs of 1 to 5 minutes take 1 to 5 seconds
_POLL_DELAY_SECONDS: Final = 0.2  # the emulator is on the same machine
_LONGEST_KEY_FILE: Final = 65_536  # bytes: the file may be a device without end
_READABLE_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


@frozen
class Service:
    """A service as the options and the environment name it.

    Attributes:
        base_url: Its address; `None` when neither an option nor the environment names one.
        project_id: The project of prompts and bare job ids; `None` as with `base_url`.
        key_file: Where the key is; `None` reads it from AGENTJOBS_API_KEY.
        allow_insecure: Allows plain http to other hosts than loopback.
        emulated: An emulator in this process is the service; the other settings but the project are not used.
    """

    base_url: str | None = None
    project_id: str | None = None
    key_file: str | None = None
    allow_insecure: bool = False
    emulated: bool = False

    @classmethod
    def of(
        cls,
        *,
        base_url: str | None,
        project_id: str | None,
        key_file: str | None,
        allow_insecure: bool,
        emulated: bool = False,
    ) -> Self:
        """Return the service that options name; what they leave out is read from the environment.

        Raises:
            InvalidInputError: The emulator is asked for, and the address or the key of a service as well.
        """
        if emulated and (base_url is not None or key_file is not None or allow_insecure):
            raise InvalidInputError("--emulator brings its own address and key: leave the options of a service out")
        base_url = base_url if base_url is not None else os.environ.get("AGENTJOBS_BASE_URL") or None
        project_id = project_id if project_id is not None else os.environ.get("AGENTJOBS_PROJECT_ID") or None
        return cls(base_url, project_id, key_file, allow_insecure, emulated)

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
        async with self._configured(settings) as session:
            if self.key_file is not None:
                _warn_of_readers(self.key_file, notice)
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
        options = [] if self.base_url is None else ["--base-url", self.base_url]
        options += [] if self.key_file is None else ["--key-file", self.key_file]
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

    def _address(self) -> str:
        if self.base_url is None:
            raise InvalidInputError(
                "there is no service address: give --base-url URL or set AGENTJOBS_BASE_URL;"
                " or try it without a service: agentjobs run --emulator PROMPT"
            )
        return self.base_url

    def _configured(self, settings: dict[str, Any]) -> AgentJobsSession:
        base_url = self._address()
        key = os.environ.get("AGENTJOBS_API_KEY") if self.key_file is None else _key_in(self.key_file)
        if not key:
            raise InvalidInputError(
                "there is no API key: set AGENTJOBS_API_KEY or give --key-file FILE (never as an argument:"
                " others on this machine can read those)"
            )
        return AgentJobsSession(
            base_url, key, project_id=self.project_id, allow_insecure=self.allow_insecure, **settings
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


def _warn_of_readers(file: str, notice: Notice) -> None:
    with suppress(OSError):  # a file that can't be looked at can't be read either, and that is said where it is read
        mode = Path(file).stat().st_mode
        if os.name == "posix" and mode & _READABLE_BY_OTHERS:
            notice(f"--key-file: others can read {one_line(file)} (mode {stat.S_IMODE(mode):04o}): use chmod 600 on it")


def _key_in(file: str) -> str:
    """Read a key from a file, without the white space around it. No error quotes what is in the file."""
    name = one_line(file)
    try:
        with Path(file).open("rb") as stream:
            text = stream.read(_LONGEST_KEY_FILE).decode().strip()
    except OSError as error:
        defect = f"--key-file: {name} can't be read: {error.strerror}"
    except UnicodeDecodeError:
        defect = f"--key-file: {name} is no text file"
    else:
        if text:
            return text
        defect = f"--key-file: {name} is empty"
    raise InvalidInputError(defect)
