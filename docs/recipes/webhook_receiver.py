"""Receive webhooks: each verified one becomes `notify`, one poll at once, so that all other polls can be rare.

WEBHOOK_SECRET=from-the-sender PORT=8000 python docs/recipes/webhook_receiver.py "Document the v2 endpoints"

The sender posts {"project_id": ..., "job_id": ...} to /webhook, with the body's HMAC-SHA256 in hex as X-Signature.
"""

import asyncio
import hmac
import json
import os
import sys
from collections.abc import AsyncIterator

import tenacity
from aiohttp import web

from agentjobs_async import AgentJobsError, AgentJobsSession, JobRef, PollPolicy
from agentjobs_async.web import http_answer

SESSION = web.AppKey("session", AgentJobsSession)
SECRET = os.environ["WEBHOOK_SECRET"].encode()
POLICY = PollPolicy(wait=tenacity.wait_fixed(300))  # s; a webhook may get lost


async def follow(session: AgentJobsSession, prompt: str) -> None:
    try:
        job = await session.run_job(prompt, timeout=None)
        print(job.ref.to_token(), job.status, job.pr_link or "", flush=True)
    except AgentJobsError as error:
        print(error, file=sys.stderr)


async def lifespan(app: web.Application) -> AsyncIterator[None]:
    async with AgentJobsSession(policy=POLICY) as app[SESSION]:
        following = [asyncio.create_task(follow(app[SESSION], prompt)) for prompt in sys.argv[1:]]
        yield
        await app[SESSION].drain()
        await asyncio.gather(*following)


async def receive(request: web.Request) -> web.Response:
    body = await request.read()
    signature = request.headers.get("X-Signature", "").encode(errors="replace")
    if not hmac.compare_digest(signature, hmac.new(SECRET, body, "sha256").hexdigest().encode()):
        raise web.HTTPUnauthorized
    try:
        event = json.loads(body)
        request.app[SESSION].notify(JobRef(event["project_id"], event["job_id"]))  # a hint; the poll shows the state
    except (ValueError, LookupError, TypeError, AgentJobsError) as error:
        return web.Response(status=http_answer(error).status if isinstance(error, AgentJobsError) else 400)
    return web.Response(status=204)


app = web.Application()
app.cleanup_ctx.append(lifespan)
app.add_routes([web.post("/webhook", receive)])
if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(os.environ["PORT"]))
