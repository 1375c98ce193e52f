"""Serve jobs, in Starlette: TOKEN_SECRETS=at-least-16-bytes uvicorn --app-dir docs/recipes starlette_app:app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from web_jobs import SECONDS, RequestError, answer_to, health, limited, opened, ref_of, submit, user_of

from agentjobs_async import AgentJobsError
from agentjobs_async.web import sse_events


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with opened() as (session, jobs):
        yield {"session": session, "jobs": jobs}


async def answer(request: Request, error: Exception) -> JSONResponse:
    meaning = answer_to(error, request.headers)
    return JSONResponse(meaning.body, meaning.status, meaning.headers)


async def create(request: Request) -> JSONResponse:
    prompt = (await request.body()).decode(errors="surrogateescape")  # refused where it is not UTF-8
    token = await submit(request.state.jobs, user_of(request.headers), request.headers.get("Idempotency-Key"), prompt)
    return JSONResponse({"token": token}, 202)


async def wait(request: Request) -> JSONResponse:
    ref = ref_of(user_of(request.headers), request.path_params["token"])
    return JSONResponse((await request.state.session.wait_for_job(ref, timeout=SECONDS)).to_dict())


async def stream(request: Request) -> StreamingResponse:
    ref = ref_of(user_of(request.headers), request.path_params["token"])
    frames = sse_events(request.state.session, ref, last_event_id=request.headers.get("Last-Event-ID"))
    return StreamingResponse(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def healthz(request: Request) -> JSONResponse:
    return JSONResponse(health(request.state.jobs))


app = Starlette(
    routes=[
        Route("/jobs", create, methods=["POST"]),
        Route("/jobs/{token}", wait),
        Route("/jobs/{token}/events", stream),
        Route("/healthz", healthz),
    ],
    lifespan=lifespan,
    middleware=[Middleware(limited)],
    exception_handlers={AgentJobsError: answer, RequestError: answer},
)
