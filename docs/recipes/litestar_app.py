"""Serve jobs, in Litestar: TOKEN_SECRET=at-least-16-bytes uvicorn --app-dir docs/recipes litestar_app:app."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody
from litestar.response import Stream

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, PollPolicy
from agentjobs_async.web import SignedTokens, drain_on_signal, http_answer, sse_events

TOKENS = SignedTokens(os.environ["TOKEN_SECRET"])  # the same in all processes, and after a restart
USER = "anyone who has the token"  # or the id of your user, whose tokens are then of no use to others
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="-")  # a poll, which requests share, has none


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    hooks = [lambda event: logging.getLogger("uvicorn.error").info("request %s: %s", REQUEST_ID.get(), event)]
    async with AgentJobsSession(policy=PollPolicy(not_found_grace=9), hooks=hooks) as session, drain_on_signal(session):
        app.state.session = session
        yield


async def set_request_id(request: Request) -> None:
    REQUEST_ID.set(request.headers.get("X-Request-ID", "-"))


def answer(_request: Request, error: AgentJobsError) -> Response:
    meaning = http_answer(error)
    return Response(meaning.body, status_code=meaning.status, headers=meaning.headers)


@post("/jobs", status_code=202)
async def create(state: State, data: JSONBody[dict[str, str]]) -> dict[str, str]:
    job = await state.session.create_job(data.get("prompt"), on_cancel="finish")  # though the client may leave
    return {"token": TOKENS.issue(job.ref, user=USER)}


@get("/jobs/{token:str}")
async def wait(state: State, token: FromPath[str]) -> AgentJob:
    return await state.session.wait_for_job(TOKENS.read(token, user=USER), timeout=25)


@get("/jobs/{token:str}/events")
async def stream(state: State, request: Request, token: FromPath[str]) -> Stream:
    last_event_id = request.headers.get("Last-Event-ID")
    frames = sse_events(state.session, TOKENS.read(token, user=USER), last_event_id=last_event_id)
    return Stream(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


handlers = {AgentJobsError: answer}
app = Litestar([create, wait, stream], lifespan=[lifespan], before_request=set_request_id, exception_handlers=handlers)
