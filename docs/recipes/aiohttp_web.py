"""Serve agent jobs with aiohttp.web. A key of a user is one job, however often it is sent.

The journal keeps the job of each key. `user_key` makes a key of a user and the user's own key: no other user has it.

pip install 'agentjobs-async[batch]'
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
python docs/recipes/aiohttp_web.py

curl localhost:8000/jobs -H 'X-User: ann' -H 'Idempotency-Key: links-1' --data 'Fix the links'
curl localhost:8000/jobs/links-1 -H 'X-User: ann'

The jobs are kept in the file jobs.db, or in the journal that JOURNAL names.
"""

import asyncio
import logging
import os
import re

from aiohttp import typedefs, web
from aiohttp.http import HttpProcessingError

from agentjobs_async import AgentJobsError, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs, user_key
from agentjobs_async.web import drain_on_signal, http_answer, sse_events

JOBS = web.AppKey("jobs", DurableJobs)
log = logging.getLogger(__name__)


@web.middleware
async def answer_errors(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except AgentJobsError as error:
        answer = http_answer(error, log=log, request_id=request.headers.get("X-Request-ID"))
        return web.json_response(answer.body, status=answer.status, headers=answer.headers)


def signed_in(request: web.Request) -> str:
    """Return the user. PUT YOUR OWN AUTHENTICATION HERE: this trusts a header, which only your proxy may set."""
    user = request.headers.get("X-User")
    if not user:
        raise web.HTTPUnauthorized(text="Sign in first.")
    return user


async def read_prompt(request: web.Request) -> str:
    try:
        async with asyncio.timeout(25):
            body = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except web.RequestPayloadError:  # the body is malformed
        raise web.HTTPBadRequest from None
    return body.decode(errors="surrogateescape")  # a 400 from submit, if it is not UTF-8


async def create(request: web.Request) -> web.Response:
    """Plan a job, which is sent soon, or return the one that the user's key has already."""
    user = signed_in(request)
    key = request.headers.get("Idempotency-Key", "")
    if not re.fullmatch("[A-Za-z0-9_-]{1,100}", key):  # fit for the path /jobs/KEY
        raise web.HTTPBadRequest(text="Send an Idempotency-Key of up to 100 letters, digits, _ and -.")
    prompt = await read_prompt(request)
    jobs = request.app[JOBS]
    full_key = user_key(user, key)  # which no other user can have
    entry = await jobs.submit(full_key, prompt, user=user, most_open=20, wait_for_create=False)
    return web.json_response(entry.to_dict(user=user), status=202)  # what the user may see


async def last_jobs(request: web.Request) -> web.Response:
    user = signed_in(request)
    entries = await request.app[JOBS].of_user(user)
    return web.json_response([entry.to_dict(user=user) for entry in entries])


async def wait(request: web.Request) -> web.Response:
    """Return a job once it has ended. After 25 s, `answer_errors` answers 202: the client asks again."""
    user = signed_in(request)
    entry = await request.app[JOBS].wait(user_key(user, request.match_info["key"]), timeout=25)
    return web.json_response(entry.to_dict(user=user))


async def events(request: web.Request) -> web.StreamResponse:
    jobs = request.app[JOBS]
    user = signed_in(request)
    full_key = user_key(user, request.match_info["key"])
    if await jobs.get(full_key) is None:
        raise web.HTTPNotFound(text="You have no such job.")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    last_event_id = request.headers.get("Last-Event-ID")
    async for frame in sse_events(jobs, full_key, user=user, last_event_id=last_event_id):
        await response.write(frame)
    return response


async def healthz(request: web.Request) -> web.Response:
    return web.json_response(request.app[JOBS].stats().to_dict())


def application(jobs: DurableJobs) -> web.Application:
    app = web.Application(middlewares=[answer_errors], client_max_size=65_536)
    app[JOBS] = jobs
    app.add_routes(
        [
            web.post("/jobs", create),
            web.get("/jobs", last_jobs),
            web.get("/jobs/{key}", wait),
            web.get("/jobs/{key}/events", events),
            web.get("/healthz", healthz),
        ]
    )
    return app


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Keep malformed requests out of aiohttp's log: each is answered by a 400, and would be logged with a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


async def main() -> None:
    async with (
        AgentJobsSession(project_id=os.environ["AGENTJOBS_PROJECT_ID"]) as session,
        # The first SIGTERM ends waits and streams, and sets the event; a second one changes nothing. (At a second one,
        # web.run_app would cut creates off, whose jobs would then be unknown.)
        drain_on_signal(session, pass_on=False) as stopped,
        Journal.open(os.environ.get("JOURNAL", "jobs.db")) as journal,
        DurableJobs(session, journal) as jobs,  # sends the planned jobs, and follows each one to its end
    ):
        # A handler ends when its client leaves. No body is unpacked, since a small one could become huge.
        runner = web.AppRunner(application(jobs), handler_cancellation=True, auto_decompress=False)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", int(os.environ.get("PORT", "8000")))
        await site.start()
        print("Running on http://{}:{}".format(*runner.addresses[0]), flush=True)
        await stopped.wait()
        await runner.cleanup()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("aiohttp.server").addFilter(is_worth_logging)
    asyncio.run(main())
