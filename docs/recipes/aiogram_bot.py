"""A Telegram bot in aiogram: /job starts a job, and the bot says in the chat how it has ended.

pip install "agentjobs-async[batch]" aiogram
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
TELEGRAM_TOKEN=123:abc OPERATORS="42" python docs/recipes/aiogram_bot.py

Telegram's @BotFather gives you the token. OPERATORS has the ids of the users who may /settle jobs, separated by spaces.
Then write to the bot: /job Fix the links on the start page

Anybody can write to a bot of Telegram in private, and start agents. Have it listen to your own chats alone, by a second
filter of `on_command`, after `Command`: F.chat.id.in_({42}) with `from aiogram import F`.
"""

import asyncio
import logging
import os

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramBadRequest, TelegramForbiddenError, TelegramMigrateToChat, TelegramRetryAfter
from aiogram.filters import Command
from aiogram.types import Message, ReplyParameters

from agentjobs_async import AgentJobsSession
from agentjobs_async.chat import ChatJobs, Place, split_command
from agentjobs_async.durable import RetryLater, Undeliverable
from agentjobs_async.web import drain_on_signal

server = TelegramAPIServer.from_base(os.environ.get("TELEGRAM_API", "https://api.telegram.org"))
bot = Bot(os.environ["TELEGRAM_TOKEN"], session=AiohttpSession(api=server))
dispatcher = Dispatcher()


async def send(place: Place, text: str) -> None:
    """Send a text to the chat that a place names.

    `RetryLater` has it sent again after that time. `Undeliverable` says that it can never be sent.
    """
    try:
        await reply(place, text)
    except TelegramRetryAfter as error:
        raise RetryLater(error.retry_after) from None
    except (TelegramForbiddenError, TelegramBadRequest) as error:  # the bot is blocked, or the chat is gone
        raise Undeliverable(str(error)) from None


async def reply(place: Place, text: str) -> None:
    """Reply to the message that asked for a job."""
    message = ReplyParameters(message_id=place.message, allow_sending_without_reply=True)
    try:
        await bot.send_message(place.chat, text, reply_parameters=message)
    except TelegramMigrateToChat as error:  # the group became a supergroup, with a new chat id and new message ids
        await bot.send_message(error.migrate_to_chat_id, text)


session = AgentJobsSession()
operators = os.environ.get("OPERATORS", "").split()
jobs = ChatJobs(send, session=session, journal=os.environ.get("JOURNAL", "bot.db"), operators=operators)


@dispatcher.message(Command("job", "jobs", "cancel", "settle"))
async def on_command(message: Message) -> None:
    place = Place(chat=message.chat.id, user=message.from_user.id, message=message.message_id)
    command, text = split_command(message.text or message.caption)
    await jobs.handle(place, command, text)


async def main() -> None:
    async with bot, session, drain_on_signal(session), jobs:
        # At SIGTERM or SIGINT, aiogram stops polling, and drain_on_signal waits for the creates that are under way.
        #
        # Without tasks, a message is confirmed to Telegram only after its handler has returned. Its job is then in the
        # journal, so a crash before that loses nothing: Telegram delivers the message again.
        await dispatcher.start_polling(bot, handle_as_tasks=False, close_bot_session=False)


logging.basicConfig()
asyncio.run(main())
