"""Serve agent jobs with Starlette. A key of a user is one job, however often it is sent.

The journal keeps the job of each key. `user_key` makes a key of a user and the user's own key: no other user has it.

pip install 'agentjobs-async[batch]' starlette uvicorn
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
uvicorn --app-dir docs/recipes starlette_app:app

curl localhost:8000/jobs -H 'X-User: ann' -H 'Idempotency-Key: links-1' --data 'Fix the links'
curl localhost:8000/jobs/links-1 -H 'X-User: ann'

The jobs are kept in the file jobs.db, or in the journal that JOURNAL names.
"""

import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from agentjobs_async import AgentJobsError, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs, user_key
from agentjobs_async.web import BodyLimit, drain_on_signal, http_answer, sse_events

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
    async with (
        AgentJobsSession(project_id=os.environ["AGENTJOBS_PROJECT_ID"]) as session,
        drain_on_signal(session),  # at SIGTERM, ends waits and streams, for which the server waits
        Journal.open(os.environ.get("JOURNAL", "jobs.db")) as journal,
        DurableJobs(session, journal) as jobs,  # sends the planned jobs, and follows each one to its end
    ):
        yield {"jobs": jobs}


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    answer = http_answer(error, log=log, request_id=request.headers.get("X-Request-ID"))
    return JSONResponse(answer.body, answer.status, answer.headers)


def signed_in(request: Request) -> str:
    """Return the user. PUT YOUR OWN AUTHENTICATION HERE: this trusts a header, which only your proxy may set."""
    user = request.headers.get("X-User")
    if not user:
        raise HTTPException(401, "Sign in first.")
    return user


async def create(request: Request) -> JSONResponse:
    """Plan a job, which is sent soon, or return the one that the user's key has already."""
    user = signed_in(request)
    key = request.headers.get("Idempotency-Key", "")
    if not re.fullmatch("[A-Za-z0-9_-]{1,100}", key):  # fit for the path /jobs/KEY
        raise HTTPException(400, "Send an Idempotency-Key of up to 100 letters, digits, _ and -.")
    body = await request.body()
    prompt = body.decode(errors="surrogateescape")  # a 400 from submit, if it is not UTF-8
    jobs: DurableJobs = request.state.jobs
    full_key = user_key(user, key)  # which no other user can have
    entry = await jobs.submit(full_key, prompt, user=user, most_open=20, wait_for_create=False)
    return JSONResponse(entry.to_dict(user=user), 202)  # what the user may see


async def last_jobs(request: Request) -> JSONResponse:
    user = signed_in(request)
    entries = await request.state.jobs.of_user(user)
    return JSONResponse([entry.to_dict(user=user) for entry in entries])


async def wait(request: Request) -> JSONResponse:
    """Return a job once it has ended. After 25 s, `answer_error` answers 202: the client asks again."""
    user = signed_in(request)
    entry = await request.state.jobs.wait(user_key(user, request.path_params["key"]), timeout=25)
    return JSONResponse(entry.to_dict(user=user))


async def events(request: Request) -> StreamingResponse:
    user = signed_in(request)
    key = user_key(user, request.path_params["key"])
    if await request.state.jobs.get(key) is None:
        raise HTTPException(404, "You have no such job.")
    last_event_id = request.headers.get("Last-Event-ID")
    frames = sse_events(request.state.jobs, key, user=user, last_event_id=last_event_id)
    return StreamingResponse(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def healthz(request: Request) -> JSONResponse:
    return JSONResponse(request.state.jobs.stats().to_dict())


app = Starlette(
    routes=[
        Route("/jobs", create, methods=["POST"]),
        Route("/jobs", last_jobs),
        Route("/jobs/{key}", wait),
        Route("/jobs/{key}/events", events),
        Route("/healthz", healthz),
    ],
    lifespan=lifespan,
    middleware=[Middleware(BodyLimit)],  # 413 above 64 KiB, 408 after 25 s
    exception_handlers={AgentJobsError: answer_error},
)
