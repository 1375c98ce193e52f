"""Serve jobs, in FastAPI: TOKEN_SECRETS=at-least-16-bytes uvicorn --app-dir docs/recipes fastapi_app:app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from web_jobs import SECONDS, RequestError, answer_to, health, limited, opened, ref_of, submit, user_of

from agentjobs_async import AgentJob, AgentJobsError
from agentjobs_async.web import sse_events


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    async with opened() as (session, jobs):
        yield {"session": session, "jobs": jobs}


async def user(request: Request) -> str:
    return user_of(request.headers)


User = Annotated[str, Depends(user)]
app = FastAPI(lifespan=lifespan)
app.add_middleware(limited)


@app.exception_handler(AgentJobsError)
@app.exception_handler(RequestError)
async def answer(request: Request, error: Exception) -> JSONResponse:
    meaning = answer_to(error, request.headers)
    return JSONResponse(meaning.body, meaning.status, meaning.headers)


@app.post("/jobs", status_code=202)
async def create(
    request: Request, user: User, prompt: Annotated[str, Body(embed=True)], idempotency_key: Annotated[str, Header()]
) -> dict[str, str]:
    return {"token": await submit(request.state.jobs, user, idempotency_key, prompt)}


@app.get("/jobs/{token}")
async def wait(request: Request, user: User, token: str) -> AgentJob:
    return await request.state.session.wait_for_job(ref_of(user, token), timeout=SECONDS)


@app.get("/jobs/{token}/events")
async def stream(
    request: Request, user: User, token: str, last_event_id: Annotated[str, Header()] = ""
) -> StreamingResponse:
    frames = sse_events(request.state.session, ref_of(user, token), last_event_id=last_event_id)
    return StreamingResponse(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@app.get("/healthz")
async def healthz(request: Request) -> dict[str, Any]:
    return health(request.state.jobs)
