"""A service with five words for statuses and an envelope around each document, which honours idempotency keys."""

from typing import Any, Final

from aiohttp import web

from tests.services.agents import Agent, Agents

KEY: Final = "sk-51a9c3"
_WORDS: Final = {
    "queued": "queued",
    "working": "running",
    "done": "succeeded",
    "broken": "errored",
    "cancelled": "cancelled",
}


def application(agents: Agents) -> web.Application:
    """Return the service."""
    handlers, served = _Handlers(agents), web.Application()
    served.router.add_post("/api/runs", handlers.create)
    served.router.add_get("/api/runs/{id}", handlers.read)
    return served


class _Handlers:
    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._remembered: dict[str, tuple[Any, Agent]] = {}
        """The body and the agent of each create, by its idempotency key."""

    async def create(self, request: web.Request) -> web.Response:
        workspace, key = request.query.get("workspace"), request.headers.get("Idempotency-Key")
        if not _is_known(request):
            return _problem(401, "unknown key")
        if not workspace or not key:
            return _problem(400, "a workspace and an idempotency key are required")
        body = await request.json()
        if key in self._remembered:
            sent, agent = self._remembered[key]
            return self._shown(agent, 200) if sent == body else _problem(422, "the key was used with another body")
        match body:
            case {"kind": "code", "input": {"instructions": str(prompt)} as task}:
                branch, priority = task.get("branch", "main"), body.get("priority")
                agent = self._agents.start(prompt, workspace=workspace, branch=branch, priority=priority)
                self._remembered[key] = (body, agent)
                return self._shown(agent, 202)
        return _problem(400, "invalid body")

    async def read(self, request: web.Request) -> web.Response:
        if not _is_known(request):
            return _problem(401, "unknown key")
        agent = self._agents.find(request.match_info["id"].rpartition("/")[2])
        return _problem(404, "no such run") if agent is None else self._shown(agent, 200)

    def _shown(self, agent: Agent, status: int) -> web.Response:
        stage = self._agents.stage(agent)
        result = {"pull_request": {"url": agent.link, "state": "open"}} if stage == "done" else None
        data = {
            "run_id": f"{agent.settings['workspace']}/{agent.number}",
            "state": _WORDS[stage],
            "engine": "large-2",
            "branch": agent.settings["branch"],
            "queued_at": "2026-01-01T12:00:00.000Z",
            "result": result,
        }
        return web.json_response({"data": data, "errors": []}, status=status)


def _problem(status: int, title: str) -> web.Response:
    return web.json_response({"data": None, "errors": [{"title": title}]}, status=status)


def _is_known(request: web.Request) -> bool:
    return request.headers.get("Authorization") == f"Key {KEY}"
