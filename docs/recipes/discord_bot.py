"""Start jobs by the Discord command /job: DISCORD_TOKEN=abc python docs/recipes/discord_bot.py."""

import asyncio
import os

import discord
from discord import app_commands

from agentjobs_async import AgentJob, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableEntry, DurableJobs


class Bot(discord.Client):
    jobs: DurableJobs

    async def setup_hook(self) -> None:
        await self.tree.sync()


bot = Bot(intents=discord.Intents.default())
bot.tree = app_commands.CommandTree(bot)


@bot.tree.command(name="job", description="Have an agent change the documentation")
async def start(interaction: discord.Interaction, prompt: str) -> None:
    await interaction.response.defer()  # within Discord's 3 s
    message = await interaction.original_response()
    place = {"webhook": [interaction.application_id, interaction.token], "message": message.id}
    place |= {"channel": interaction.channel_id, "user": interaction.user.id}
    await bot.jobs.submit(str(interaction.id), prompt, context=place)


async def edit(entry: DurableEntry, text: str) -> None:
    place = entry.context or {}
    await discord.Webhook.partial(*place["webhook"], client=bot).edit_message(place["message"], content=text)


async def on_change(entry: DurableEntry, job: AgentJob) -> None:
    await edit(entry, f"{job.status} ...")


async def on_end(entry: DurableEntry, result: AgentJob | Exception) -> None:  # again, until it has returned
    place, done = entry.context or {}, result if isinstance(result, AgentJob) else None
    text = f"{done.status}: {done.pr_link or 'no change'}" if done else "This did not work, sorry."
    try:
        await edit(entry, text)
    except discord.HTTPException:  # 15 min after the command its token is void: a plain message
        await bot.get_partial_messageable(place["channel"]).send(f"<@{place['user']}> {text}")


async def main() -> None:
    async with bot, AgentJobsSession() as session, Journal.open(os.environ.get("JOURNAL", "bot.db")) as journal:
        await bot.login(os.environ["DISCORD_TOKEN"])
        async with DurableJobs(session, journal, on_change=on_change, on_end=on_end) as bot.jobs:
            await bot.connect()


if __name__ == "__main__":
    asyncio.run(main())
