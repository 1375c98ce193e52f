"""A Slack app in Bolt: mention it with a prompt, and it starts a job, and says in the thread how that has ended.

pip install "agentjobs-async[batch]" slack-bolt
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
SLACK_TOKEN=xoxb-… SLACK_SECRET=… PORT=3000 OPERATORS="U42" python docs/recipes/slack_bot.py

In the settings of your app, subscribe to the event app_mention, add the slash commands /jobs, /cancel and /settle, and
give https://your-host/slack/events as the URL of each: your proxy passes it on to PORT. Add the scope chat:write. Then
install the app, and invite it to a channel. SLACK_TOKEN is its bot token, SLACK_SECRET its signing secret. OPERATORS
has the ids of the users who may /settle jobs, separated by spaces.
"""

import asyncio
import logging
import os
import re
from html import escape
from typing import Any

from aiohttp import web
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from agentjobs_async import AgentJobsSession
from agentjobs_async.chat import ChatJobs, Place, slack_text
from agentjobs_async.durable import RetryLater, Undeliverable
from agentjobs_async.web import drain_on_signal

GONE = {"channel_not_found", "is_archived", "message_not_found", "thread_not_found", "user_not_found", "user_disabled"}
FORBIDDEN = {"not_in_channel", "restricted_action", "cannot_reply_to_message", "messages_tab_disabled"}
client = AsyncWebClient(os.environ["SLACK_TOKEN"], base_url=os.environ.get("SLACK_API", "https://slack.com/api/"))
# Slack gets its response after the handler has returned: the job is then in the journal.
app = AsyncApp(client=client, signing_secret=os.environ["SLACK_SECRET"], process_before_response=True)


async def send(place: Place, text: str) -> None:
    """Send a text to the thread that a place names.

    `RetryLater` has it sent again after that time. `Undeliverable` says that it can never be sent.
    """
    plain = escape(text, quote=False)  # so that no text can mention anybody
    try:
        await client.chat_postMessage(channel=place.chat, thread_ts=place.thread, text=plain)
    except SlackApiError as error:
        reason = error.response["error"]
        if reason == "ratelimited":
            raise RetryLater(float(error.response.headers["Retry-After"])) from None
        if reason in GONE or reason in FORBIDDEN:
            raise Undeliverable(reason) from None
        raise


session = AgentJobsSession()
operators = os.environ.get("OPERATORS", "").split()
jobs = ChatJobs(send, session=session, journal=os.environ.get("JOURNAL", "bot.db"), operators=operators)


@app.event("app_mention")
async def on_mention(event: dict[str, Any], context: AsyncBoltContext) -> None:
    thread = event.get("thread_ts", event["ts"])  # outside of a thread, the mention begins one
    user = event.get("user", "app")  # an event by another app may name no user
    place = Place(chat=event["channel"], user=user, message=event["ts"], thread=thread)
    prompt = re.sub(rf"<@{context.bot_user_id}>\s?", "", event["text"], count=1)
    await jobs.handle(place, "job", slack_text(prompt))


@app.command(re.compile("/(jobs|cancel|settle)"))
async def on_command(ack: AsyncAck, command: dict[str, Any]) -> None:
    # A slash command is no message: its trigger_id identifies it.
    place = Place(chat=command["channel_id"], user=command["user_id"], message=command["trigger_id"])
    answer = await jobs.answer(place, command["command"].removeprefix("/"), command["text"])
    await ack(escape(answer, quote=False))


async def main() -> None:
    # SIGTERM or SIGINT sets `stopped`; drain_on_signal then waits for the creates that are under way.
    async with session, drain_on_signal(session, pass_on=False) as stopped, jobs:
        # If Slack gives up on a request, its handler is cancelled: Slack sends the request again.
        runner = web.AppRunner(app.web_app(), handler_cancellation=True, shutdown_timeout=5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", int(os.environ["PORT"])).start()
        print("Running on http://{}:{}".format(*runner.addresses[0]), flush=True)
        await stopped.wait()
        await runner.cleanup()


logging.basicConfig()
asyncio.run(main())
