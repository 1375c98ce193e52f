"""A service that differs from the usual one in every respect that a dialect knows, on a thread."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from aiohttp import web
from attrs import frozen

from agentjobs_async.testing._threads import entered_in_thread
from tests.until import until

TOML = """\
base_url = "{base_url}"
key_env = "TASKS_API_KEY"
create_path = "/tasks?team={{project_id}}"
get_path = "/tasks/{{job_id}}"
key_header = "X-Api-Key"
key_format = "{{key}}"
integer_ids = true

[body]
input = "{{prompt}}"
branch = "{{extra.branch}}"

[fields]
id = "task.id"
status = "task.state"
pr_link = "task.links.0.href"

[statuses]
running = "active"
succeeded = "completed"

[headers]
X-Team = "docs"
X-Gateway-Token = {{ env = "GATEWAY_TOKEN" }}
"""
"""A service file of it, with a place for its address."""

KEY = "tasks-key-0001"
GATEWAY_TOKEN = "gateway-token-0001"
SECRETS = {"TASKS_API_KEY": KEY, "GATEWAY_TOKEN": GATEWAY_TOKEN}
"""The environment that its service file needs."""


@frozen
class Request:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class AnotherService:
    """The service. Its jobs are running until it is told to end them.

    Attributes:
        base_url: Its address, once it listens.
        requests: What arrived, in order.
    """

    def __init__(self) -> None:
        self.base_url = ""
        self.requests: list[Request] = []
        self._key = KEY
        self._is_over = False
        self._jobs = 0

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/api/tasks", self._answer)
        application.router.add_get("/api/tasks/{number}", self._answer)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.base_url = f"http://{host}:{port}/api"
        return self

    async def __aexit__(self, *_details: object) -> None:
        await self._runner.cleanup()

    def change_key(self, key: str) -> None:
        """Refuse every other key from now on."""
        self._key = key

    def end_jobs(self) -> None:
        """Let all jobs have ended."""
        self._is_over = True

    def wait_for_reads(self, more: int) -> None:
        """Wait until so many more reads have arrived."""
        wanted = self.reads() + more
        asyncio.run(until(lambda: self.reads() >= wanted))

    def creates(self) -> list[Any]:
        """Return the bodies of the creates."""
        return [request.body for request in self.requests if request.method == "POST"]

    def reads(self) -> int:
        """Return the number of reads."""
        return sum(request.method == "GET" for request in self.requests)

    async def _answer(self, request: web.Request) -> web.Response:
        """Answer a request."""
        body = await request.json() if request.can_read_body else None
        self.requests.append(Request(request.method, request.path_qs, dict(request.headers), body))
        if request.headers.get("X-Api-Key") != self._key:
            return web.json_response({"error": "who are you?"}, status=401)
        if request.method == "POST":
            self._jobs += 1
            return web.json_response({"task": {"id": self._jobs, "state": "running"}}, status=201)
        task = {"id": int(request.match_info["number"]), "state": "succeeded" if self._is_over else "running"}
        return web.json_response({"task": task | {"links": [{"href": "https://code.example/pull/1"}]}})


@contextmanager
def another_service() -> Iterator[AnotherService]:
    """Run the service on a thread within the block."""
    with entered_in_thread(AnotherService()) as service:
        yield service
