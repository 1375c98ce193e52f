"""Start jobs by mentioning a Slack app: SLACK_TOKEN=… SLACK_SECRET=… PORT=3000 python docs/recipes/slack_bot.py."""

import os
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from agentjobs_async import AgentJob, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableEntry, DurableJobs

JOBS = web.AppKey("jobs", DurableJobs)
client = AsyncWebClient(os.environ["SLACK_TOKEN"], base_url=os.environ.get("SLACK_API", "https://slack.com/api/"))
client.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=3))  # waits as long as a 429 asks for
app = AsyncApp(client=client, signing_secret=os.environ["SLACK_SECRET"])


async def edit(entry: DurableEntry, text: str) -> None:
    try:
        await client.chat_update(text=text, **(entry.context or {}))
    except SlackApiError as error:
        if error.response["error"] != "message_not_found":  # else a user has deleted the message
            raise


async def on_end(entry: DurableEntry, result: AgentJob | Exception) -> None:  # again, until it has returned
    done = result if isinstance(result, AgentJob) else None
    await edit(entry, f"{done.status}: {done.pr_link or 'no change'}" if done else "This did not work, sorry.")


@app.event("app_mention")  # acknowledged before this runs, within Slack's 3 s
async def start(event: dict[str, Any]) -> None:
    jobs, channel, key = server[JOBS], event["channel"], f"{event['channel']}/{event['ts']}"
    if await jobs.get(key) is not None:
        return  # Slack has delivered the event again
    prompt = event["text"].partition("> ")[2]
    text = "starting ..." if prompt else "Say what is to be done, after the mention."
    answer = await client.chat_postMessage(channel=channel, thread_ts=event["ts"], text=text)
    if prompt:
        await jobs.submit(key, prompt, context={"channel": channel, "ts": answer["ts"]})


async def lifespan(server: web.Application) -> AsyncIterator[None]:
    async with AgentJobsSession() as session, Journal.open(os.environ.get("JOURNAL", "bot.db")) as journal:
        changes = lambda entry, job: edit(entry, f"{job.status} ...")  # noqa: E731 - short
        async with DurableJobs(session, journal, on_change=changes, on_end=on_end) as server[JOBS]:
            yield


server = app.web_app(path="/slack/events", port=int(os.environ["PORT"]))
server.cleanup_ctx.append(lifespan)
web.run_app(server, host="127.0.0.1", port=int(os.environ["PORT"]))
