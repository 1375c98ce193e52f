"""Start jobs from Telegram, in aiogram: TELEGRAM_TOKEN=123:abc python docs/recipes/aiogram_bot.py, then /job PROMPT."""

import asyncio
import logging
import os
import re
from typing import Any

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramBadRequest, TelegramForbiddenError, TelegramMigrateToChat, TelegramRetryAfter
from aiogram.filters import Command, CommandObject
from aiogram.types import Message, ReplyParameters
from bot_jobs import opened

API = TelegramAPIServer.from_base(os.environ.get("TELEGRAM_API", "https://api.telegram.org"))
log = logging.getLogger("bot")


async def main() -> None:
    async def send(origin: dict[str, Any], text: str) -> None:
        """Reply to a command, unless the bot is blocked there or the chat is gone."""
        chat, reply = origin["chat"], ReplyParameters(message_id=origin["message"], allow_sending_without_reply=True)
        while True:
            try:
                await bot.send_message(chat, text, reply_parameters=reply)
                break
            except TelegramRetryAfter as error:
                await asyncio.sleep(error.retry_after)
            except TelegramMigrateToChat as error:  # the group has become a supergroup, with other message ids
                chat, reply = error.migrate_to_chat_id, None
            except (TelegramForbiddenError, TelegramBadRequest) as error:
                log.warning("%s can't be reached: %s", origin, error)
                break

    async def on_command(message: Message, command: CommandObject) -> None:
        user = message.from_user.id if message.from_user else 0
        origin = {"chat": message.chat.id, "user": user, "message": message.message_id}
        prompt = re.sub(r"^\S+\s?", "", message.text or "")  # all after the command and one space, as it was written
        reply = asyncio.gather(send(origin, await answer(origin, command.command, prompt)), return_exceptions=True)
        replies.add(reply)  # not awaited: a 429 in one chat must not hold up the others; one that is lost does no harm
        reply.add_done_callback(replies.discard)

    replies: set[asyncio.Future] = set()
    dispatcher = Dispatcher()
    dispatcher.message.register(on_command, Command("job", "jobs", "cancel", "settle"))
    async with (
        Bot(os.environ["TELEGRAM_TOKEN"], session=AiohttpSession(api=API)) as bot,
        opened(send) as answer,
    ):
        # Not as tasks: a command is confirmed once its job is planned. SIGTERM ends the polling.
        await dispatcher.start_polling(bot, handle_as_tasks=False, close_bot_session=False)
        if replies:
            await asyncio.wait(replies, timeout=5)


logging.basicConfig()
asyncio.run(main())
