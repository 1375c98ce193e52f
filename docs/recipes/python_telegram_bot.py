"""Start jobs from Telegram, in python-telegram-bot: TELEGRAM_TOKEN=… python docs/recipes/python_telegram_bot.py."""

import asyncio
import logging
import os
import re
import signal
from typing import Any

from bot_jobs import opened
from telegram import ReplyParameters, Update
from telegram.error import BadRequest, ChatMigrated, Forbidden, InvalidToken, RetryAfter, TelegramError
from telegram.ext import Application, CommandHandler, ContextTypes, filters

API = os.environ.get("TELEGRAM_API", "https://api.telegram.org")
bot = Application.builder().token(os.environ["TELEGRAM_TOKEN"]).base_url(f"{API}/bot").updater(None).build()
replies: set[asyncio.Future] = set()
log = logging.getLogger("bot")


async def send(origin: dict[str, Any], text: str) -> None:
    """Reply to a command, unless the bot is blocked there or the chat is gone."""
    chat, reply = origin["chat"], ReplyParameters(origin["message"], allow_sending_without_reply=True)
    while True:
        try:
            await bot.bot.send_message(chat, text, reply_parameters=reply)
            break
        except RetryAfter as error:
            await asyncio.sleep(float(error.retry_after))
        except ChatMigrated as error:  # the group has become a supergroup, with other message ids
            chat, reply = error.new_chat_id, None
        except (Forbidden, BadRequest) as error:
            log.warning("%s can't be reached: %s", origin, error)
            break


async def on_command(update: Update, _context: ContextTypes.DEFAULT_TYPE) -> None:
    message = update.message
    user = message.from_user.id if message.from_user else 0
    origin = {"chat": message.chat_id, "user": user, "message": message.message_id}
    command = message.text[1 : message.entities[0].length].partition("@")[0].lower()
    prompt = re.sub(r"^\S+\s?", "", message.text)  # all after the command and one space, as it was written
    reply = asyncio.gather(send(origin, await bot.bot_data["answer"](origin, command, prompt)), return_exceptions=True)
    replies.add(reply)  # not awaited: a 429 in one chat must not hold up the others; one that is lost does no harm
    reply.add_done_callback(replies.discard)


async def poll() -> None:
    """Handle updates; unlike `run_polling`, confirm a command only once its job is planned."""
    offset = 0
    while True:
        try:
            updates = await bot.bot.get_updates(offset, timeout=10, allowed_updates=["message"])
        except InvalidToken:
            raise
        except TelegramError as error:
            log.warning("no updates: %s", error)
            await asyncio.sleep(3)
            continue
        for update in updates:
            await bot.process_update(update)
            offset = update.update_id + 1


async def main() -> None:
    bot.add_handler(CommandHandler(["job", "jobs", "cancel", "settle"], on_command, filters.UpdateType.MESSAGE))
    async with bot, opened(send) as bot.bot_data["answer"]:
        polling = asyncio.create_task(poll())
        for number in (signal.SIGTERM, signal.SIGINT):  # a second one changes nothing
            asyncio.get_running_loop().add_signal_handler(number, polling.cancel)
        await asyncio.wait([polling])
        if replies:
            await asyncio.wait(replies, timeout=5)
        if not polling.cancelled():
            polling.result()


logging.basicConfig()
asyncio.run(main())
