"""Receive webhooks. A signed one has its job polled soon, so that all other polls can be rare.

pip install 'agentjobs-async[batch]'
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
WEBHOOK_SECRET=of-16-bytes-or-more PORT=8000 python docs/recipes/webhook_receiver.py "Document the v2 endpoints"

The sender posts {"project_id": ..., "job_id": ...} to /webhook, with the body's HMAC-SHA256 in hex as X-Signature.

Each prompt is one job in the journal jobs.db. However this command ends, run it again: it continues, and starts no job
twice. With JOURNAL=postgresql+psycopg://..., several processes may receive webhooks: the one that follows a job polls
it.
"""

import asyncio
import hmac
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256

import tenacity
from aiohttp import web
from aiohttp.http import HttpProcessingError

from agentjobs_async import AgentJobsError, AgentJobsSession, JobRef, PollPolicy
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableEntry, DurableJobs
from agentjobs_async.web import drain_on_signal, http_answer

JOURNAL = web.AppKey("journal", Journal)
JOBS = web.AppKey("jobs", DurableJobs)
LOG = logging.getLogger("webhook_receiver")
SECRET = os.environ["WEBHOOK_SECRET"].encode()
SHORTEST_SECRET = 16  # bytes: a shorter one could be guessed
RARELY = PollPolicy(wait=tenacity.wait_fixed(300))  # every 300 s, since a webhook may get lost


def is_signed(body: bytes, signature: str) -> bool:
    """Return whether the signature shows that the sender knows the secret."""
    expected = hmac.new(SECRET, body, "sha256").hexdigest()
    return hmac.compare_digest(signature.encode(errors="replace"), expected.encode())


def job_named_in(body: bytes) -> JobRef:
    """Return the job that a webhook is about."""
    try:
        event = json.loads(body)
        return JobRef(event["project_id"], event["job_id"])
    except (ValueError, LookupError, TypeError, RecursionError):  # not JSON, other fields, or nested too deeply
        raise web.HTTPBadRequest from None


async def read_body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(25):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except web.RequestPayloadError:  # the body is malformed
        raise web.HTTPBadRequest from None


async def receive(request: web.Request) -> web.Response:
    """Answer a webhook. It only causes a poll, which shows how the job stands: the same webhook again does no harm."""
    body = await read_body(request)
    if not is_signed(body, request.headers.get("X-Signature", "")):
        raise web.HTTPUnauthorized
    ref = job_named_in(body)
    try:
        row = await request.app[JOURNAL].find(ref)
        if row is not None:  # otherwise it is no job of this journal, or so new that it is not recorded yet
            await request.app[JOBS].notify(row.key)
    except AgentJobsError as error:  # the journal can't be read or written, or this process is ending
        answer = http_answer(error, log=LOG)
        return web.json_response(answer.body, status=answer.status, headers=answer.headers)
    return web.Response(status=204)


@asynccontextmanager
async def serving(journal: Journal, jobs: DurableJobs) -> AsyncIterator[None]:
    """Accept webhooks as long as the block runs."""
    app = web.Application(client_max_size=65_536)  # bytes
    app[JOURNAL] = journal
    app[JOBS] = jobs
    app.add_routes([web.post("/webhook", receive)])
    # A handler ends when its client leaves; a body is never unpacked: it may be small, and a gigabyte then.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1, auto_decompress=False)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", int(os.environ["PORT"])).start()
        print("Running on http://{}:{}".format(*runner.addresses[0]), flush=True)
        yield
    finally:
        await runner.cleanup()


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Keep malformed requests out of aiohttp's log: each is answered by a 400, and would be logged with a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


def print_end(entry: DurableEntry, _job_or_error: object) -> None:
    """Print how a job ended. After a kill, an end that was printed already may be printed once more."""
    result = entry.error or entry.pr_link or "no pull request"
    print(entry.key, f"{entry.state}: {result}", flush=True)


async def main() -> None:
    """Submit the prompts, and follow all jobs of the journal, until a signal comes."""
    async with (
        AgentJobsSession(policy=RARELY) as session,
        drain_on_signal(session, pass_on=False) as stopped,
        Journal.open(os.environ.get("JOURNAL", "jobs.db")) as journal,
        DurableJobs(session, journal, on_end=print_end) as jobs,
        serving(journal, jobs),
    ):
        for prompt in sys.argv[1:]:
            key = sha256(os.fsencode(prompt)).hexdigest()[:16]  # the same prompt is the same job
            await jobs.submit(key, prompt, wait_for_create=False)
        await stopped.wait()


if __name__ == "__main__":
    if len(SECRET) < SHORTEST_SECRET:
        sys.exit("WEBHOOK_SECRET must have 16 characters or more")
    logging.getLogger("aiohttp.server").addFilter(is_worth_logging)
    try:
        asyncio.run(main())
    except AgentJobsError as error:  # a setting is missing, a prompt is blank, the journal is in use, ...
        sys.exit(str(error))
