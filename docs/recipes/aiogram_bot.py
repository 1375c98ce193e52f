"""Start jobs from Telegram, in aiogram: TELEGRAM_TOKEN=123:abc python docs/recipes/aiogram_bot.py, then /job PROMPT."""

import asyncio
import os

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramBadRequest, TelegramRetryAfter
from aiogram.filters import Command, CommandObject
from aiogram.types import Message

from agentjobs_async import AgentJob, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableEntry, DurableJobs

API = TelegramAPIServer.from_base(os.environ.get("TELEGRAM_API", "https://api.telegram.org"))


async def main() -> None:
    async def edit(entry: DurableEntry, text: str) -> None:
        place = entry.context or {}
        try:
            await bot.edit_message_text(text, chat_id=place["chat"], message_id=place["message"])
        except TelegramRetryAfter as error:
            await asyncio.sleep(error.retry_after)
            await edit(entry, text)
        except TelegramBadRequest:  # the user has deleted the message, or it says that already
            return

    async def on_change(entry: DurableEntry, job: AgentJob) -> None:
        await edit(entry, f"{job.status} ...")

    async def on_end(entry: DurableEntry, result: AgentJob | Exception) -> None:  # again, until it has returned
        done = result if isinstance(result, AgentJob) else None
        await edit(entry, f"{done.status}: {done.pr_link or 'no change'}" if done else "This did not work, sorry.")

    async def start(message: Message, command: CommandObject) -> None:
        key = f"{message.chat.id}/{message.message_id}"
        if not command.args:
            await message.answer("Say what is to be done: /job Fix the broken links")
        elif await jobs.get(key) is None:  # else Telegram has delivered the message again
            answer = await message.answer("starting ...")
            place = {"chat": answer.chat.id, "message": answer.message_id}
            await jobs.submit(key, command.args, context=place, wait_for_create=False)

    dispatcher = Dispatcher()
    dispatcher.message.register(start, Command("job"))
    async with (
        Bot(os.environ["TELEGRAM_TOKEN"], session=AiohttpSession(api=API)) as bot,
        AgentJobsSession() as session,
        Journal.open(os.environ.get("JOURNAL", "bot.db")) as journal,
        DurableJobs(session, journal, on_change=on_change, on_end=on_end) as jobs,
    ):
        await dispatcher.start_polling(bot, handle_as_tasks=False)  # a message is confirmed once its job is planned


asyncio.run(main())
