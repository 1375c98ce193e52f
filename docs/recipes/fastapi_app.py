"""Serve agent jobs with FastAPI. A key of a user is one job, however often it is sent.

The journal keeps the job of each key. `user_key` makes a key of a user and the user's own key: no other user has it.

pip install 'agentjobs-async[batch]' fastapi uvicorn
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
uvicorn --app-dir docs/recipes fastapi_app:app

curl localhost:8000/jobs -H 'X-User: ann' -H 'Idempotency-Key: links-1' --json '{"prompt": "Fix the links"}'
curl localhost:8000/jobs/links-1 -H 'X-User: ann'

The jobs are kept in the file jobs.db, or in the journal that JOURNAL names.
"""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse

from agentjobs_async import AgentJobsError, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs, user_key
from agentjobs_async.web import BodyLimit, drain_on_signal, http_answer, sse_events

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    async with (
        AgentJobsSession(project_id=os.environ["AGENTJOBS_PROJECT_ID"]) as session,
        drain_on_signal(session),  # at SIGTERM, ends waits and streams, for which the server waits
        Journal.open(os.environ.get("JOURNAL", "jobs.db")) as journal,
        DurableJobs(session, journal) as jobs,  # sends the planned jobs, and follows each one to its end
    ):
        yield {"jobs": jobs}


app = FastAPI(lifespan=lifespan)
app.add_middleware(BodyLimit)  # 413 above 64 KiB, 408 after 25 s


@app.exception_handler(AgentJobsError)
async def answer_error(request: Request, error: AgentJobsError) -> JSONResponse:
    answer = http_answer(error, log=log, request_id=request.headers.get("X-Request-ID"))
    return JSONResponse(answer.body, answer.status, answer.headers)


async def signed_in(x_user: Annotated[str, Header()] = "") -> str:
    """Return the user. PUT YOUR OWN AUTHENTICATION HERE: this trusts a header, which only your proxy may set."""
    if not x_user:
        raise HTTPException(401, "Sign in first.")
    return x_user


async def durable_jobs(request: Request) -> DurableJobs:
    jobs: DurableJobs = request.state.jobs
    return jobs


User = Annotated[str, Depends(signed_in)]
Jobs = Annotated[DurableJobs, Depends(durable_jobs)]
Prompt = Annotated[str, Body(embed=True)]
NewKey = Annotated[str, Header(alias="Idempotency-Key", pattern="^[A-Za-z0-9_-]{1,100}$")]  # fit for the path /jobs/KEY


@app.post("/jobs", status_code=202)
async def create(jobs: Jobs, user: User, key: NewKey, prompt: Prompt) -> dict[str, Any]:
    """Plan a job, which is sent soon, or return the one that the user's key has already."""
    full_key = user_key(user, key)  # which no other user can have
    entry = await jobs.submit(full_key, prompt, user=user, most_open=20, wait_for_create=False)
    return entry.to_dict(user=user)  # what the user may see


@app.get("/jobs")
async def last_jobs(jobs: Jobs, user: User) -> list[dict[str, Any]]:
    return [entry.to_dict(user=user) for entry in await jobs.of_user(user)]


@app.get("/jobs/{key}")
async def wait(jobs: Jobs, user: User, key: str) -> dict[str, Any]:
    """Return a job once it has ended. After 25 s, `answer_error` answers 202: the client asks again."""
    entry = await jobs.wait(user_key(user, key), timeout=25)
    return entry.to_dict(user=user)


@app.get("/jobs/{key}/events")
async def events(
    jobs: Jobs, user: User, key: str, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    full_key = user_key(user, key)
    if await jobs.get(full_key) is None:
        raise HTTPException(404, "You have no such job.")
    frames = sse_events(jobs, full_key, user=user, last_event_id=last_event_id)
    return StreamingResponse(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@app.get("/healthz")
async def healthz(jobs: Jobs) -> dict[str, Any]:
    return jobs.stats().to_dict()
