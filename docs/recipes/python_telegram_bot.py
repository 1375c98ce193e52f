"""Start jobs from Telegram, in python-telegram-bot: TELEGRAM_TOKEN=… python docs/recipes/python_telegram_bot.py."""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

from telegram import Update
from telegram.error import BadRequest, RetryAfter
from telegram.ext import Application, CommandHandler, ContextTypes

from agentjobs_async import AgentJob, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableEntry, DurableJobs

API = os.environ.get("TELEGRAM_API", "https://api.telegram.org")
opened = AsyncExitStack()


async def edit(entry: DurableEntry, text: str) -> None:
    place = entry.context or {}
    try:
        await application.bot.edit_message_text(text, chat_id=place["chat"], message_id=place["message"])
    except RetryAfter as error:
        await asyncio.sleep(float(error.retry_after))
        await edit(entry, text)
    except BadRequest:  # the user has deleted the message, or it says that already
        return


async def on_end(entry: DurableEntry, result: AgentJob | Exception) -> None:  # again, until it has returned
    done = result if isinstance(result, AgentJob) else None
    await edit(entry, f"{done.status}: {done.pr_link or 'no change'}" if done else "This did not work, sorry.")


async def start(update: Update, context: ContextTypes.DEFAULT_TYPE) -> None:
    message, jobs, prompt = update.effective_message, application.bot_data["jobs"], " ".join(context.args or [])
    if message is None or await jobs.get(key := f"{message.chat_id}/{message.message_id}") is not None:
        return  # Telegram has delivered the message again
    if not prompt:
        await message.reply_text("Say what is to be done: /job Fix the broken links")
        return
    answer = await message.reply_text("starting ...")  # a kill before the next line loses the message, but no job
    place = {"chat": answer.chat_id, "message": answer.message_id}
    await jobs.submit(key, prompt, context=place, wait_for_create=False)


async def open_jobs(application: Application[Any, Any, Any, Any, Any, Any]) -> None:
    session = await opened.enter_async_context(AgentJobsSession())
    journal = await opened.enter_async_context(Journal.open(os.environ.get("JOURNAL", "bot.db")))
    jobs = DurableJobs(session, journal, on_change=lambda entry, job: edit(entry, f"{job.status} ..."), on_end=on_end)
    application.bot_data["jobs"] = await opened.enter_async_context(jobs)


builder = Application.builder().token(os.environ["TELEGRAM_TOKEN"]).base_url(f"{API}/bot").concurrent_updates(True)
application = builder.post_init(open_jobs).post_shutdown(lambda _application: opened.aclose()).build()
application.add_handler(CommandHandler("job", start))
application.run_polling()
