"""A Telegram bot in python-telegram-bot: /job starts a job, and the bot says in the chat how it has ended.

pip install "agentjobs-async[batch]" python-telegram-bot
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
TELEGRAM_TOKEN=123:abc OPERATORS="42" python docs/recipes/python_telegram_bot.py

Telegram's @BotFather gives you the token. OPERATORS has the ids of the users who may /settle jobs, separated by spaces.
Then write to the bot: /job Fix the links on the start page

Anybody can write to a bot of Telegram in private, and start agents. Have it listen to your own chats alone, by a second
filter of `CommandHandler`: filters.UpdateType.MESSAGE & filters.Chat({42})
"""

import asyncio
import logging
import os

from telegram import ReplyParameters, Update
from telegram.error import BadRequest, ChatMigrated, Forbidden, NetworkError, RetryAfter
from telegram.ext import Application, CommandHandler, ContextTypes, filters

from agentjobs_async import AgentJobsSession
from agentjobs_async.chat import ChatJobs, Place, split_command
from agentjobs_async.durable import RetryLater, Undeliverable
from agentjobs_async.web import drain_on_signal

API = os.environ.get("TELEGRAM_API", "https://api.telegram.org")
builder = Application.builder().token(os.environ["TELEGRAM_TOKEN"]).base_url(f"{API}/bot")
application = builder.updater(None).build()  # no updater: `poll`, below, fetches the updates
log = logging.getLogger("bot")


async def send(place: Place, text: str) -> None:
    """Send a text to the chat that a place names.

    `RetryLater` has it sent again after that time. `Undeliverable` says that it can never be sent.
    """
    try:
        await reply(place, text)
    except RetryAfter as error:
        raise RetryLater(float(error.retry_after)) from None
    except (Forbidden, BadRequest) as error:  # the bot is blocked, or the chat is gone
        raise Undeliverable(str(error)) from None


async def reply(place: Place, text: str) -> None:
    """Reply to the message that asked for a job."""
    message = ReplyParameters(place.message, allow_sending_without_reply=True)
    try:
        await application.bot.send_message(place.chat, text, reply_parameters=message)
    except ChatMigrated as error:  # the group became a supergroup, with a new chat id and new message ids
        await application.bot.send_message(error.new_chat_id, text)


session = AgentJobsSession()
operators = os.environ.get("OPERATORS", "").split()
jobs = ChatJobs(send, session=session, journal=os.environ.get("JOURNAL", "bot.db"), operators=operators)


async def on_command(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
    message = update.message
    place = Place(chat=message.chat_id, user=message.from_user.id, message=message.message_id)
    command, text = split_command(message.text)
    await jobs.handle(place, command, text)


async def poll(stopped: asyncio.Event) -> None:
    """Fetch and handle updates until a signal comes.

    `run_polling` confirms an update to Telegram before its handler has returned. Here, the next `offset` confirms it
    afterwards: its job is then in the journal, and a crash before that loses nothing.
    """
    offset = 0
    while True:
        try:
            updates = await application.bot.get_updates(offset, timeout=5, allowed_updates=["message"])
        except (NetworkError, RetryAfter) as error:
            log.warning("no updates: %s", error)
            updates = ()
            await asyncio.sleep(3)
        if stopped.is_set():
            return  # these updates are not confirmed: the next start of the bot gets them
        for update in updates:
            await application.process_update(update)
            offset = update.update_id + 1


# The filter leaves out edited messages.
commands = CommandHandler(["job", "jobs", "cancel", "settle"], on_command, filters.UpdateType.MESSAGE)
application.add_handler(commands)


async def main() -> None:
    # SIGTERM or SIGINT sets `stopped`; drain_on_signal then waits for the creates that are under way.
    async with application, session, drain_on_signal(session, pass_on=False) as stopped, jobs:
        await poll(stopped)


logging.basicConfig()
asyncio.run(main())
