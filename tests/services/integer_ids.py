"""A service whose jobs have integers as ids, and a list of pull requests."""

from typing import Final

from aiohttp import web

from tests.services.agents import Agent, Agents

KEY: Final = "tok_27f0"
_WORDS: Final = {"queued": "ACTIVE", "working": "ACTIVE", "done": "COMPLETE", "broken": "ERROR", "cancelled": "ERROR"}
_KNOWN: Final = {"prompt", "model", "images"}
_RUNS: Final = "/v1/organizations/{organization}/agent/run"


def application(agents: Agents) -> web.Application:
    """Return the service."""
    handlers, served = _Handlers(agents), web.Application()
    served.router.add_post(_RUNS, handlers.create)
    served.router.add_get(_RUNS + r"/{number:\d+}", handlers.read)
    return served


class _Handlers:
    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def create(self, request: web.Request) -> web.Response:
        _check(request)
        body = await request.json()
        if not isinstance(body, dict) or not isinstance(body.get("prompt"), str):
            raise _refusal(web.HTTPUnprocessableEntity, "prompt: a string is required")
        if body.keys() - _KNOWN:
            raise _refusal(web.HTTPUnprocessableEntity, "extra fields are not permitted")
        return self._shown(self._agents.start(body["prompt"], model=body.get("model", "small")))

    async def read(self, request: web.Request) -> web.Response:
        _check(request)
        agent = self._agents.find(request.match_info["number"])
        if agent is None:
            raise _refusal(web.HTTPNotFound, "no such run")
        return self._shown(agent)

    def _shown(self, agent: Agent) -> web.Response:
        stage = self._agents.stage(agent)
        requests = [{"id": 5, "title": agent.prompt, "url": agent.link}] if stage == "done" else []
        return web.json_response(
            {
                "id": agent.number,
                "organization_id": 40,
                "status": _WORDS[stage],
                "created_at": "2026-01-01 12:00:00+00:00",
                "model": agent.settings["model"],
                "repository": {"id": 9, "full_name": "acme/docs"},
                "result": None,
                "pull_requests": requests,
            }
        )


def _check(request: web.Request) -> None:
    if request.headers.get("Authorization") != f"token {KEY}":
        raise _refusal(web.HTTPUnauthorized, "invalid token")
    if request.match_info["organization"] != "docs":
        raise _refusal(web.HTTPForbidden, "not a member of the organization")


def _refusal(kind: type[web.HTTPException], text: str) -> web.HTTPException:
    document = f'{{"message": "{text}", "status_code": {kind.status_code}}}'
    return kind(text=document, content_type="application/json")
