"""Start jobs by the Discord command /job: DISCORD_TOKEN=abc python docs/recipes/discord_bot.py."""

import asyncio
import logging
import os
import signal
from typing import Any

import discord
from bot_jobs import opened
from discord import app_commands

REFUSED = {400, 403, 404}  # locked or archived; not permitted; deleted
log = logging.getLogger("bot")
bot = discord.Client(intents=discord.Intents.default(), allowed_mentions=discord.AllowedMentions.none())
tree = app_commands.CommandTree(bot)


class Prompt(discord.ui.Modal, title="What is to be done?"):
    """A box, since an option of a command has no lines."""

    prompt = discord.ui.TextInput(label="Prompt", style=discord.TextStyle.paragraph)

    async def on_submit(self, interaction: discord.Interaction) -> None:
        await reply(interaction, "job", self.prompt.value)


async def reply(interaction: discord.Interaction, command: str, text: str) -> None:
    """Answer a command within Discord's 3 s, once its job is planned."""
    origin = {"chat": interaction.channel_id, "user": interaction.user.id, "message": interaction.id}
    answer = await bot.answer(origin, command, text)
    await interaction.response.send_message(answer[:2000], ephemeral=command != "job")


@tree.command(name="job", description="Have an agent change the documentation")
async def job(interaction: discord.Interaction) -> None:
    await interaction.response.send_modal(Prompt(timeout=3600))


@tree.command(name="jobs", description="List the jobs that you have asked for here")
async def jobs(interaction: discord.Interaction) -> None:
    await reply(interaction, "jobs", "")


@tree.command(name="cancel", description="Take back a job that waits, or stop following one that is at work")
async def cancel(interaction: discord.Interaction, key: str) -> None:
    await reply(interaction, "cancel", key)


@tree.command(name="settle", description="Settle a job of which nobody knows whether it was started")
async def settle(interaction: discord.Interaction, text: str) -> None:
    await reply(interaction, "settle", text)


async def send(origin: dict[str, Any], text: str) -> None:
    """Tell a user, and nobody else, unless the channel is gone or closed to the bot."""
    user = discord.Object(origin["user"])
    mentions = discord.AllowedMentions(everyone=False, roles=False, users=[user])
    try:
        channel = bot.get_partial_messageable(origin["chat"])
        await channel.send(f"<@{user.id}> {text}"[:2000], allowed_mentions=mentions)
    except discord.HTTPException as error:  # discord.py waits out a 429
        if error.status not in REFUSED:
            raise
        log.warning("%s can't be reached: %s", origin, error)


async def main() -> None:
    async with bot:
        await bot.login(os.environ["DISCORD_TOKEN"])
        await tree.sync()
        async with opened(send) as bot.answer:
            receiving = asyncio.create_task(bot.connect())
            for number in (signal.SIGTERM, signal.SIGINT):  # a second one changes nothing
                asyncio.get_running_loop().add_signal_handler(number, receiving.cancel)
            await asyncio.wait([receiving])
            if not receiving.cancelled():
                receiving.result()


logging.basicConfig()
asyncio.run(main())
