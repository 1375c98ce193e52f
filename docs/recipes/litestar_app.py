"""Serve jobs, in Litestar: TOKEN_SECRETS=at-least-16-bytes uvicorn --app-dir docs/recipes litestar_app:app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.params import FromPath, JSONBody
from litestar.response import Stream
from web_jobs import SECONDS, RequestError, answer_to, health, limited, opened, ref_of, submit, user_of

from agentjobs_async import AgentJob, AgentJobsError, InvalidInputError
from agentjobs_async.web import sse_events


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    async with opened() as (app.state.session, app.state.jobs):
        yield


def answer(request: Request, error: Exception) -> Response:
    meaning = answer_to(error, request.headers)
    return Response(meaning.body, status_code=meaning.status, headers=meaning.headers)


def refuse(request: Request, _error: Exception) -> Response:
    return answer(request, InvalidInputError("the body is not JSON in UTF-8, or nested too deeply"))


@post("/jobs", status_code=202)
async def create(request: Request, state: State, data: JSONBody[dict[str, str]]) -> dict[str, str]:
    user, key = user_of(request.headers), request.headers.get("Idempotency-Key")
    return {"token": await submit(state.jobs, user, key, data.get("prompt"))}


@get("/jobs/{token:str}")
async def wait(request: Request, state: State, token: FromPath[str]) -> AgentJob:
    return await state.session.wait_for_job(ref_of(user_of(request.headers), token), timeout=SECONDS)


@get("/jobs/{token:str}/events")
async def stream(request: Request, state: State, token: FromPath[str]) -> Stream:
    ref = ref_of(user_of(request.headers), token)
    frames = sse_events(state.session, ref, last_event_id=request.headers.get("Last-Event-ID"))
    return Stream(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@get("/healthz")
async def healthz(state: State) -> dict[str, object]:
    return health(state.jobs)


app = Litestar(
    [create, wait, stream, healthz],
    lifespan=[lifespan],
    middleware=[limited],
    exception_handlers={
        AgentJobsError: answer,
        RequestError: answer,
        UnicodeDecodeError: refuse,
        RecursionError: refuse,
    },
)
