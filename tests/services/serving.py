"""Runs a small service, and names it by its own file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from aiohttp import web
from attrs import field, frozen

from tests.services import integer_ids, nested_link, other_words
from tests.services.agents import Agents

_ADDRESS: Final = "http://127.0.0.1:8080"  # in each file; a test has a free port


@frozen
class SmallService:
    """A service and its file.

    Args:
        name: The name of its module and its file.
        application: Returns its server.
        environment: The variables that its file names.
    """

    name: str
    application: Callable[[Agents], web.Application]
    environment: Mapping[str, str]

    @property
    def file(self) -> Path:
        """Its file."""
        return Path(__file__).with_name(f"{self.name}.toml")


INTEGER_IDS = SmallService("integer_ids", integer_ids.application, {"SERVICE_KEY": integer_ids.KEY})
NESTED_LINK = SmallService(
    "nested_link", nested_link.application, {"SERVICE_KEY": nested_link.KEY, "SERVICE_TENANT": nested_link.TENANT}
)
OTHER_WORDS = SmallService("other_words", other_words.application, {"SERVICE_KEY": other_words.KEY})
SERVICES = (INTEGER_IDS, NESTED_LINK, OTHER_WORDS)


@frozen
class Running:
    """A small service on a free port.

    Args:
        service: The service.
        directory: Where a copy of its file is written, with the port.
    """

    service: SmallService
    directory: Path
    agents: Agents = field(factory=Agents)
    _runners: list[web.AppRunner] = field(factory=list)

    @property
    def file(self) -> Path:
        """Its file, as a user has it."""
        return self.directory / self.service.file.name

    async def __aenter__(self) -> Self:
        runner = web.AppRunner(self.service.application(self.agents), access_log=None, shutdown_timeout=0)
        self._runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port: int = runner.addresses[0][1]
        text = self.service.file.read_text(encoding="utf-8")
        assert _ADDRESS in text
        self.file.write_text(text.replace(_ADDRESS, f"http://127.0.0.1:{port}"), encoding="utf-8")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for runner in self._runners:
            await runner.cleanup()
