"""A service that honours idempotency keys, or forgets them, over real HTTP: for repetitions of creates."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from attrs import define, field

from agentjobs_async import AgentJobsSession, Dialect
from tests.scripted import address, loopback_socket

HEADER: Final = "Idempotency-Key"
KEY: Final = "sk-of-a-keyed-service"


@define(eq=False)
class Keyed:
    """The service. Creates whose prompt has scripted answers get those first.

    Attributes:
        honours: Whether a create with a key of before gets the job of that one.
        script: What is done with the next creates of a prompt: `lost` starts the agent and breaks the connection, `cut`
            breaks it without an agent, a number is the status of a refusal, `late` waits for `let_go`, `wait` does so
            before the next one of these, and a pair is a status and its Retry-After.
        agents: How many agents were started, by prompt.
        posts: The prompt, the idempotency key and the API key of each create, in their order.
        reads: How many polls have come.
    """

    honours: bool = True
    keys: set[str] = field(factory=lambda: {KEY})
    script: dict[str, list[Any]] = field(factory=dict)
    agents: Counter[str] = field(factory=Counter)
    posts: list[tuple[str, str | None, str]] = field(factory=list)
    reads: int = 0
    let_go: asyncio.Event = field(factory=asyncio.Event)
    base_url: str = ""
    _jobs: dict[str, str] = field(factory=dict, init=False)
    _posted: asyncio.Condition = field(factory=asyncio.Condition, init=False)

    def session(self, **settings: Any) -> AgentJobsSession:
        """Return a session of it, which is told that it honours keys."""
        dialect = Dialect(idempotency_header=HEADER, idempotency_seconds=settings.pop("seconds", 3600.0))
        usual: dict[str, Any] = {"base_url": self.base_url, "api_key": KEY, "project_id": "docs", "dialect": dialect}
        return AgentJobsSession(**usual | settings)

    async def posted(self, count: int) -> None:
        """Wait until so many creates have come."""
        async with self._posted:
            await self._posted.wait_for(lambda: len(self.posts) >= count)

    def keys_of(self, prompt: str) -> list[str | None]:
        """Return the idempotency keys of the creates of a prompt, in their order."""
        return [key for sent, key, _ in self.posts if sent == prompt]

    async def create(self, request: web.Request) -> web.StreamResponse:
        prompt = json.loads(await request.read())["prompt"]
        key, api_key = request.headers.get(HEADER), request.headers["Authorization"].removeprefix("Bearer ")
        async with self._posted:
            self.posts.append((prompt, key, api_key))
            self._posted.notify_all()
        if api_key not in self.keys:
            return web.json_response({"error": "unknown key"}, status=401)
        steps = self.script.get(prompt)
        step = steps.pop(0) if steps else "ok"
        if step == "wait":
            await self.let_go.wait()
            step = self.script[prompt].pop(0)
        if isinstance(step, int | tuple):
            status, asked = step if isinstance(step, tuple) else (step, None)
            headers = {} if asked is None else {"Retry-After": str(asked)}
            return web.json_response({"error": "refused"}, status=status, headers=headers)
        if step == "cut":
            return self._broken(request)
        job_id = self._started(prompt, key)
        if step == "late":
            await self.let_go.wait()
        return self._broken(request) if step == "lost" else web.json_response({"id": job_id, "status": "active"})

    async def read(self, request: web.Request) -> web.StreamResponse:
        self.reads += 1
        return web.json_response({"id": request.match_info["job"], "status": "completed"})

    def _started(self, prompt: str, key: str | None) -> str:
        if key is not None and self.honours and key in self._jobs:
            return self._jobs[key]
        self.agents[prompt] += 1
        job_id = f"{prompt}-{self.agents[prompt]}"
        self._jobs[key or ""] = job_id
        return job_id

    @staticmethod
    def _broken(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@asynccontextmanager
async def keyed(**settings: Any) -> AsyncIterator[Keyed]:
    """A service on loopback that honours keys."""
    service = Keyed(**settings)
    app = web.Application()
    app.router.add_post("/v2/agent/{project}/job", service.create)
    app.router.add_get("/v2/agent/{project}/job/{job}", service.read)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    sock = loopback_socket()
    await web.SockSite(runner, sock).start()
    service.base_url = address(sock)
    try:
        yield service
    finally:
        service.let_go.set()
        await runner.cleanup()
