"""Serve jobs, in aiohttp.web: TOKEN_SECRET=at-least-16-bytes PORT=8000 python docs/recipes/aiohttp_web.py."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from contextvars import ContextVar

from aiohttp import typedefs, web

from agentjobs_async import AgentJobsError, AgentJobsSession, PollPolicy
from agentjobs_async.web import SignedTokens, http_answer, sse_events

SESSION = web.AppKey("session", AgentJobsSession)
TOKENS = SignedTokens(os.environ["TOKEN_SECRET"])  # the same in all processes, and after a restart
USER = "anyone who has the token"  # or the id of your user, whose tokens are then of no use to others
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="-")  # a poll, which requests share, has none


async def lifespan(app: web.Application) -> AsyncIterator[None]:
    hooks = [lambda event: logging.getLogger(__name__).info("request %s: %s", REQUEST_ID.get(), event)]
    async with AgentJobsSession(policy=PollPolicy(not_found_grace=9), hooks=hooks) as app[SESSION]:
        yield


@web.middleware
async def answer(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    REQUEST_ID.set(request.headers.get("X-Request-ID", "-"))
    try:
        return await handler(request)
    except AgentJobsError as error:
        meaning = http_answer(error)
        return web.json_response(meaning.body, status=meaning.status, headers=meaning.headers)


async def create(request: web.Request) -> web.Response:
    job = await request.app[SESSION].create_job((await request.read()).decode(errors="replace"), on_cancel="finish")
    return web.json_response({"token": TOKENS.issue(job.ref, user=USER)}, status=202)


async def wait(request: web.Request) -> web.Response:
    ref = TOKENS.read(request.match_info["token"], user=USER)
    return web.json_response((await request.app[SESSION].wait_for_job(ref, timeout=25)).to_dict())


async def stream(request: web.Request) -> web.StreamResponse:
    ref = TOKENS.read(request.match_info["token"], user=USER)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    with suppress(ConnectionResetError):  # the client has left
        async for frame in sse_events(request.app[SESSION], ref, last_event_id=request.headers.get("Last-Event-ID")):
            await response.write(frame)
    return response


app = web.Application(middlewares=[answer])
app.cleanup_ctx.append(lifespan)
app.on_shutdown.append(lambda app: app[SESSION].drain())  # before the open requests are waited for
app.add_routes([web.post("/jobs", create), web.get("/jobs/{token}", wait), web.get("/jobs/{token}/events", stream)])
if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    web.run_app(app, host="127.0.0.1", port=int(os.environ["PORT"]), handler_cancellation=True)
