"""Start jobs by mentioning a Slack app: SLACK_TOKEN=… SLACK_SECRET=… PORT=3000 python docs/recipes/slack_bot.py."""

import asyncio
import logging
import os
import re
import signal
from html import escape
from typing import Any

from aiohttp import web
from bot_jobs import opened
from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncBoltContext
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

FINAL = {"channel_not_found", "is_archived", "not_in_channel", "restricted_action", "message_not_found"}
FINAL |= {"thread_not_found", "cannot_reply_to_message", "user_not_found", "user_disabled", "messages_tab_disabled"}
log = logging.getLogger("bot")


def as_written(text: str) -> str:
    """Return a text as its user wrote it: Slack wraps links, and escapes three characters."""

    def link(match: re.Match[str]) -> str:
        url, label = match.groups()
        is_typed = not label or re.fullmatch(rf"(https?://|mailto:)?{re.escape(label)}", url)  # Slack adds the prefix
        return (label or url) if is_typed else f"{label} ({url})"

    text = re.sub(r"<([a-z][a-z0-9+.-]*:[^|>]*)(?:\|([^>]*))?>", link, text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


async def main() -> None:
    async def send(origin: dict[str, Any], text: str) -> None:
        """Reply to a mention, unless the channel is archived or gone."""
        try:
            thread, plain = origin["thread"], escape(text, quote=False)  # no mention in it reaches anyone
            await client.chat_postMessage(channel=origin["chat"], thread_ts=thread, text=plain)
        except SlackApiError as error:
            if error.response["error"] not in FINAL:
                raise
            log.warning("%s can't be reached: %s", origin, error.response["error"])

    async def on_mention(event: dict[str, Any], context: AsyncBoltContext) -> None:
        origin = {"chat": event["channel"], "user": event.get("user", 0), "message": event["ts"]}
        origin["thread"] = event.get("thread_ts", event["ts"])
        prompt = "".join(re.split(rf"<@{context.bot_user_id}>\s?", event["text"], maxsplit=1))
        reply = asyncio.gather(send(origin, await answer(origin, "job", as_written(prompt))), return_exceptions=True)
        replies.add(reply)  # not awaited: Slack waits 3 s for its acknowledgement; one that is lost does no harm
        reply.add_done_callback(replies.discard)

    async def on_command(ack: AsyncAck, command: dict[str, Any]) -> None:
        origin = {"chat": command["channel_id"], "user": command["user_id"], "message": ""}
        await ack(escape(await answer(origin, command["command"][1:], command["text"]), quote=False))

    client = AsyncWebClient(os.environ["SLACK_TOKEN"], base_url=os.environ.get("SLACK_API", "https://slack.com/api/"))
    client.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=3))  # waits as long as a 429 asks for
    # It acknowledges a mention once its job is planned.
    app = AsyncApp(client=client, signing_secret=os.environ["SLACK_SECRET"], process_before_response=True)
    app.event("app_mention")(on_mention)
    app.command(re.compile("/(jobs|cancel|settle)"))(on_command)
    replies: set[asyncio.Future] = set()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):  # a second one changes nothing
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with opened(send) as answer:
        runner = web.AppRunner(app.web_app(), handler_cancellation=True, shutdown_timeout=5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", int(os.environ["PORT"])).start()
        print("Running on http://{}:{}".format(*runner.addresses[0]), flush=True)
        await stopped.wait()
        await runner.cleanup()
        if replies:
            await asyncio.wait(replies, timeout=5)


logging.basicConfig()
asyncio.run(main())
