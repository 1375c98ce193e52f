"""Serve jobs, in aiohttp.web: TOKEN_SECRETS=at-least-16-bytes PORT=8000 python docs/recipes/aiohttp_web.py."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import typedefs, web
from web_jobs import MOST_BYTES, SECONDS, RequestError, answer_to, health, opened, ref_of, submit, user_of

from agentjobs_async import AgentJobsError, AgentJobsSession
from agentjobs_async.durable import DurableJobs
from agentjobs_async.web import sse_events

SESSION, JOBS = web.AppKey("session", AgentJobsSession), web.AppKey("jobs", DurableJobs)


async def lifespan(app: web.Application) -> AsyncIterator[None]:
    async with opened() as (app[SESSION], app[JOBS]):
        yield


@web.middleware
async def answered(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (AgentJobsError, RequestError) as error:
        meaning = answer_to(error, request.headers)
        return web.json_response(meaning.body, status=meaning.status, headers=meaning.headers)
    except TimeoutError:  # the body is too slow
        raise web.HTTPRequestTimeout from None


async def create(request: web.Request) -> web.Response:
    async with asyncio.timeout(SECONDS):
        prompt = (await request.read()).decode(errors="surrogateescape")  # refused where it is not UTF-8
    token = await submit(request.app[JOBS], user_of(request.headers), request.headers.get("Idempotency-Key"), prompt)
    return web.json_response({"token": token}, status=202)


async def wait(request: web.Request) -> web.Response:
    ref = ref_of(user_of(request.headers), request.match_info["token"])
    return web.json_response((await request.app[SESSION].wait_for_job(ref, timeout=SECONDS)).to_dict())


async def stream(request: web.Request) -> web.StreamResponse:
    ref = ref_of(user_of(request.headers), request.match_info["token"])
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    with suppress(ConnectionResetError):  # the client has left
        async for frame in sse_events(request.app[SESSION], ref, last_event_id=request.headers.get("Last-Event-ID")):
            await response.write(frame)
    return response


async def healthz(request: web.Request) -> web.Response:
    return web.json_response(health(request.app[JOBS]))


app = web.Application(middlewares=[answered], client_max_size=MOST_BYTES)
app.cleanup_ctx.append(lifespan)
app.add_routes(
    [
        web.post("/jobs", create),
        web.get("/jobs/{token}", wait),
        web.get("/jobs/{token}/events", stream),
        web.get("/healthz", healthz),
    ]
)


async def main() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # not by run_app, which a second signal would end amid a create
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(os.environ["PORT"])).start()
    print("Running on http://{}:{}".format(*runner.addresses[0]), flush=True)
    await stopped.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
