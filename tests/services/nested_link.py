"""A service whose prompt and pull request stand within other objects, and which wants a tenant and a version."""

from typing import Any, Final

from aiohttp import web

from tests.services.agents import Agent, Agents

KEY: Final = "ak_0d6e91"
TENANT: Final = "acme-7"
_WORDS: Final = {
    "queued": "CREATING",
    "working": "RUNNING",
    "done": "FINISHED",
    "broken": "ERROR",
    "cancelled": "EXPIRED",
}


def application(agents: Agents) -> web.Application:
    """Return the service."""
    handlers, served = _Handlers(agents), web.Application()
    served.router.add_post("/v0/agents", handlers.create)
    served.router.add_get("/v0/agents/{id}", handlers.read)
    return served


class _Handlers:
    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def create(self, request: web.Request) -> web.Response:
        refused = _refusal(request)
        if refused is not None:
            return refused
        match await request.json():
            case {"prompt": {"text": str(prompt)}, "source": dict(source), "target": {"autoCreatePr": True}}:
                settings = {"repository": "acme/main", "ref": "main"} | source
                return self._shown(self._agents.start(prompt, **settings), 201)
        return _problem(400, "the body is not valid")

    async def read(self, request: web.Request) -> web.Response:
        refused = _refusal(request)
        if refused is not None:
            return refused
        agent = self._agents.find(request.match_info["id"].removeprefix("bg_"))
        return _problem(404, "no such agent") if agent is None else self._shown(agent, 200)

    def _shown(self, agent: Agent, status: int) -> web.Response:
        stage = self._agents.stage(agent)
        target: dict[str, Any] = {"branchName": f"agent/{agent.number}", "autoCreatePr": True}
        if stage == "done":
            target["prUrl"] = agent.link
        document = {
            "id": f"bg_{agent.number}",
            "name": agent.prompt[:20],
            "status": _WORDS[stage],
            "source": agent.settings,
            "target": target,
            "createdAt": "2026-01-01T12:00:00Z",
        }
        return web.json_response(document, status=status)


def _problem(status: int, detail: str) -> web.Response:
    return web.json_response({"error": {"code": status, "detail": detail}}, status=status)


def _refusal(request: web.Request) -> web.Response | None:
    if request.headers.get("X-API-Key") != KEY or "Authorization" in request.headers:
        return _problem(401, "the key belongs into X-API-Key")
    if request.headers.get("X-Tenant") != TENANT:
        return _problem(403, "unknown tenant")
    return None if request.headers.get("Api-Version") == "2" else _problem(400, "unknown version")
