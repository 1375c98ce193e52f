"""Serve agent jobs with Litestar. A key of a user is one job, however often it is sent.

The journal keeps the job of each key. `user_key` makes a key of a user and the user's own key: no other user has it.

pip install 'agentjobs-async[batch]' litestar uvicorn
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
uvicorn --app-dir docs/recipes litestar_app:app

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

from litestar import Litestar, Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import ClientException, NotAuthorizedException, NotFoundException
from litestar.params import FromPath, RawBody
from litestar.response import Stream

from agentjobs_async import AgentJobsError, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs, user_key
from agentjobs_async.web import BodyLimit, drain_on_signal, http_answer, sse_events

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    async with (
        AgentJobsSession(project_id=os.environ["AGENTJOBS_PROJECT_ID"]) as session,
        drain_on_signal(session),  # at SIGTERM, ends waits and streams, for which the server waits
        Journal.open(os.environ.get("JOURNAL", "jobs.db")) as journal,
        DurableJobs(session, journal) as jobs,  # sends the planned jobs, and follows each one to its end
    ):
        app.state.jobs = jobs
        yield


def answer_error(request: Request, error: AgentJobsError) -> Response:
    answer = http_answer(error, log=log, request_id=request.headers.get("X-Request-ID"))
    return Response(answer.body, status_code=answer.status, headers=answer.headers)


def signed_in(request: Request) -> str:
    """Return the user. PUT YOUR OWN AUTHENTICATION HERE: this trusts a header, which only your proxy may set."""
    user = request.headers.get("X-User")
    if not user:
        raise NotAuthorizedException("Sign in first.")
    return user


@post("/jobs", status_code=202)
async def create(request: Request, state: State, body: RawBody) -> dict[str, Any]:
    """Plan a job, which is sent soon, or return the one that the user's key has already."""
    user = signed_in(request)
    key = request.headers.get("Idempotency-Key", "")
    if not re.fullmatch("[A-Za-z0-9_-]{1,100}", key):  # fit for the path /jobs/KEY
        raise ClientException("Send an Idempotency-Key of up to 100 letters, digits, _ and -.")
    prompt = body.decode(errors="surrogateescape")  # a 400 from submit, if it is not UTF-8
    full_key = user_key(user, key)  # which no other user can have
    entry = await state.jobs.submit(full_key, prompt, user=user, most_open=20, wait_for_create=False)
    return entry.to_dict(user=user)  # what the user may see


@get("/jobs")
async def last_jobs(request: Request, state: State) -> list[dict[str, Any]]:
    user = signed_in(request)
    entries = await state.jobs.of_user(user)
    return [entry.to_dict(user=user) for entry in entries]


@get("/jobs/{key:str}")
async def wait(request: Request, state: State, key: FromPath[str]) -> dict[str, Any]:
    """Return a job once it has ended. After 25 s, `answer_error` answers 202: the client asks again."""
    user = signed_in(request)
    entry = await state.jobs.wait(user_key(user, key), timeout=25)
    return entry.to_dict(user=user)


@get("/jobs/{key:str}/events")
async def events(request: Request, state: State, key: FromPath[str]) -> Stream:
    user = signed_in(request)
    full_key = user_key(user, key)
    if await state.jobs.get(full_key) is None:
        raise NotFoundException("You have no such job.")
    last_event_id = request.headers.get("Last-Event-ID")
    frames = sse_events(state.jobs, full_key, user=user, last_event_id=last_event_id)
    return Stream(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


@get("/healthz")
async def healthz(state: State) -> dict[str, Any]:
    return state.jobs.stats().to_dict()


app = Litestar(
    [create, last_jobs, wait, events, healthz],
    lifespan=[lifespan],
    middleware=[BodyLimit],  # 413 above 64 KiB, 408 after 25 s
    exception_handlers={AgentJobsError: answer_error},
)
