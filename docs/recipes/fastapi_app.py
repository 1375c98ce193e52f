"""Serve jobs, in FastAPI.

TOKEN_SECRET=at-least-16-bytes uvicorn --app-dir docs/recipes fastapi_app:app
"""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, PollPolicy
from agentjobs_async.web import SignedTokens, drain_on_signal, http_answer, sse_events

TOKENS = SignedTokens(os.environ["TOKEN_SECRET"])  # the same in all processes, and after a restart
USER = "anyone who has the token"  # or the id of your user, whose tokens are then of no use to others
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="-")  # a poll, which requests share, has none


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, AgentJobsSession]]:
    hooks = [lambda event: logging.getLogger("uvicorn.error").info("request %s: %s", REQUEST_ID.get(), event)]
    async with AgentJobsSession(policy=PollPolicy(not_found_grace=9), hooks=hooks) as session, drain_on_signal(session):
        yield {"session": session}


async def set_request_id(x_request_id: Annotated[str, Header()] = "-") -> None:
    REQUEST_ID.set(x_request_id)


app = FastAPI(lifespan=lifespan, dependencies=[Depends(set_request_id)])


@app.exception_handler(AgentJobsError)
async def answer(_request: Request, error: AgentJobsError) -> JSONResponse:
    meaning = http_answer(error)
    return JSONResponse(meaning.body, meaning.status, meaning.headers)


@app.post("/jobs", status_code=202)
async def create(request: Request, prompt: Annotated[str, Body(embed=True)]) -> dict[str, str]:
    job = await request.state.session.create_job(prompt, on_cancel="finish")  # though the client may leave
    return {"token": TOKENS.issue(job.ref, user=USER)}


@app.get("/jobs/{token}")
async def wait(request: Request, token: str) -> AgentJob:
    return await request.state.session.wait_for_job(TOKENS.read(token, user=USER), timeout=25)


@app.get("/jobs/{token}/events", response_class=StreamingResponse)
async def stream(request: Request, token: str, last_event_id: Annotated[str, Header()] = "") -> StreamingResponse:
    frames = sse_events(request.state.session, TOKENS.read(token, user=USER), last_event_id=last_event_id)
    return StreamingResponse(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
