"""Serve jobs, in Starlette: TOKEN_SECRET=at-least-16-bytes uvicorn --app-dir docs/recipes starlette_app:app."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from agentjobs_async import AgentJobsError, AgentJobsSession, PollPolicy
from agentjobs_async.web import SignedTokens, drain_on_signal, http_answer, sse_events

TOKENS = SignedTokens(os.environ["TOKEN_SECRET"])  # the same in all processes, and after a restart
USER = "anyone who has the token"  # or the id of your user, whose tokens are then of no use to others
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="-")  # a poll, which requests share, has none


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, AgentJobsSession]]:
    hooks = [lambda event: logging.getLogger("uvicorn.error").info("request %s: %s", REQUEST_ID.get(), event)]
    async with AgentJobsSession(policy=PollPolicy(not_found_grace=9), hooks=hooks) as session, drain_on_signal(session):
        yield {"session": session}


def begin(request: Request) -> AgentJobsSession:
    REQUEST_ID.set(request.headers.get("X-Request-ID", "-"))
    return request.state.session


async def answer(_request: Request, error: Exception) -> JSONResponse:
    meaning = http_answer(error)
    return JSONResponse(meaning.body, meaning.status, meaning.headers)


async def create(request: Request) -> JSONResponse:
    prompt = (await request.body()).decode(errors="replace")
    job = await begin(request).create_job(prompt, on_cancel="finish")  # though the client may leave
    return JSONResponse({"token": TOKENS.issue(job.ref, user=USER)}, 202)


async def wait(request: Request) -> JSONResponse:
    ref = TOKENS.read(request.path_params["token"], user=USER)
    return JSONResponse((await begin(request).wait_for_job(ref, timeout=25)).to_dict())


async def stream(request: Request) -> StreamingResponse:
    ref = TOKENS.read(request.path_params["token"], user=USER)
    frames = sse_events(begin(request), ref, last_event_id=request.headers.get("Last-Event-ID"))
    return StreamingResponse(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


routes = [Route("/jobs", create, methods=["POST"]), Route("/jobs/{token}", wait), Route("/jobs/{token}/events", stream)]
app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={AgentJobsError: answer})
