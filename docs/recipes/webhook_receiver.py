"""Receive webhooks: each verified one becomes `notify`, one poll soon, so that all other polls can be rare.

WEBHOOK_SECRET=of-16-bytes-or-more PORT=8000 python docs/recipes/webhook_receiver.py "Document the v2 endpoints"

The sender posts {"project_id": ..., "job_id": ...} to /webhook, with the body's HMAC-SHA256 in hex as X-Signature.
Each prompt is one job in a journal, jobs.db: the same command continues after signals and kills, and doubles nothing.
With JOURNAL=postgresql+psycopg://... any number of processes may receive webhooks: one that follows the job polls it.
"""

import asyncio
import hmac
import json
import os
import signal
import sys
from hashlib import sha256

import tenacity
from aiohttp import web

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, JobRef, PollPolicy
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableEntry, DurableJobs

JOURNAL, JOBS = web.AppKey("journal", Journal), web.AppKey("jobs", DurableJobs)
SECRET = os.environ["WEBHOOK_SECRET"].encode()
if len(SECRET) < 16:  # noqa: PLR2004 - a shorter one could be found by trying
    raise SystemExit("WEBHOOK_SECRET must have 16 characters or more")
POLICY = PollPolicy(wait=tenacity.wait_fixed(300))  # s; a webhook may get lost


async def receive(request: web.Request) -> web.Response:
    """Answer a webhook. Sent again, it does no harm: it is a hint, and the poll that it causes shows the state."""
    body = await request.read()
    signature = request.headers.get("X-Signature", "").encode(errors="replace")
    if not hmac.compare_digest(signature, hmac.new(SECRET, body, "sha256").hexdigest().encode()):
        raise web.HTTPUnauthorized
    try:
        event = json.loads(body)
        ref = JobRef(event["project_id"], event["job_id"])
    except (ValueError, LookupError, TypeError, RecursionError):  # an InvalidInputError is a ValueError
        raise web.HTTPBadRequest from None
    # None before the answer to its create was recorded, too: the poll that follows that at once shows the state.
    row = await request.app[JOURNAL].find(ref)
    if row is not None:
        await request.app[JOBS].notify(row.key)
    return web.Response(status=204)


def print_end(entry: DurableEntry, ended: AgentJob | Exception) -> None:
    """Print an end: again, after a kill, if that came before it was noted in the journal."""
    end = f"{ended.status} {ended.pr_link or ''}" if isinstance(ended, AgentJob) else f"is {entry.state}: {ended}"
    print(entry.key, end, flush=True)


async def main() -> None:
    """Follow all jobs of the journal, and those of the prompts, until a signal comes."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # a second one changes nothing
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    session, journal = AgentJobsSession(policy=POLICY), Journal.open(os.environ.get("JOURNAL", "jobs.db"))
    async with session, journal, DurableJobs(session, journal, on_end=print_end) as jobs:
        app = web.Application(client_max_size=65_536)
        app[JOURNAL], app[JOBS] = journal, jobs
        app.add_routes([web.post("/webhook", receive)])
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", int(os.environ["PORT"])).start()
        print("Running on http://{}:{}".format(*runner.addresses[0]), flush=True)
        for prompt in sys.argv[1:]:
            key = sha256(prompt.encode(errors="surrogateescape")).hexdigest()[:16]
            await jobs.submit(key, prompt, wait_for_create=False)
        await stopped.wait()
        await runner.cleanup()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except AgentJobsError as error:  # of the settings, the journal, or a prompt
        sys.exit(str(error))
