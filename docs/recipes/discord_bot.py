"""A Discord bot in discord.py: /job starts a job, and the bot says in the channel how it has ended.

pip install "agentjobs-async[batch]" discord.py
export AGENTJOBS_BASE_URL=... AGENTJOBS_API_KEY=... AGENTJOBS_PROJECT_ID=...
DISCORD_TOKEN=abc OPERATORS="42" python docs/recipes/discord_bot.py

In Discord's Developer Portal, create an app with a bot, which has the token; install it on your server with the scopes
`bot` and `applications.commands`; and turn off "Public Bot", so that nobody else can install it. OPERATORS has the ids
of the users who may /settle jobs, separated by spaces. Then enter /job in a channel in which the bot may send messages.
"""

import asyncio
import logging
import os

import discord
from discord import app_commands

from agentjobs_async import AgentJobsSession
from agentjobs_async.chat import ChatJobs, Place
from agentjobs_async.durable import Undeliverable
from agentjobs_async.web import drain_on_signal

FINAL = {400, 403, 404}  # the channel is locked or archived; the bot lacks a permission; the channel was deleted
bot = discord.Client(intents=discord.Intents.default(), allowed_mentions=discord.AllowedMentions.none())
tree = app_commands.CommandTree(bot)


async def send(place: Place, text: str) -> None:
    """Send a text to a channel, and mention in it the user who asked, and nobody else.

    `Undeliverable` says that it can never be sent. After any other error, the end of a job is told again later.
    """
    user = discord.Object(place.user)
    channel = bot.get_partial_messageable(place.chat)
    mentions = discord.AllowedMentions(everyone=False, roles=False, users=[user])
    try:
        # After a 429, discord.py itself waits, and sends it again.
        await channel.send(f"<@{user.id}> {text}", allowed_mentions=mentions)
    except discord.HTTPException as error:
        if error.status in FINAL:
            raise Undeliverable(str(error)) from None
        raise


session = AgentJobsSession()
operators = os.environ.get("OPERATORS", "").split()
jobs = ChatJobs(send, session=session, journal=os.environ.get("JOURNAL", "bot.db"), operators=operators)


def place_of(interaction: discord.Interaction) -> Place:
    return Place(chat=interaction.channel_id, user=interaction.user.id, message=interaction.id)


async def respond(interaction: discord.Interaction, command: str, text: str) -> None:
    """Carry out a command, and show the answer to its user alone."""
    answer = await jobs.answer(place_of(interaction), command, text)
    await interaction.response.send_message(answer, ephemeral=True)


class PromptBox(discord.ui.Modal, title="What is to be done?"):
    """A box for the prompt, which may have several lines: an option of a slash command has only one."""

    prompt = discord.ui.TextInput(label="Prompt", style=discord.TextStyle.paragraph)

    def __init__(self, place: Place) -> None:
        super().__init__(timeout=3600)
        self.place = place  # of the command: a box that is submitted once more asks for the same job

    async def on_submit(self, interaction: discord.Interaction) -> None:
        answer = await jobs.answer(self.place, "job", self.prompt.value)  # the job is in the journal now
        await interaction.response.send_message(answer)


@tree.command(name="job", description="Have an agent change the documentation")
async def on_job(interaction: discord.Interaction) -> None:
    await interaction.response.send_modal(PromptBox(place_of(interaction)))


@tree.command(name="jobs", description="List the jobs that you have asked for here")
async def on_jobs(interaction: discord.Interaction) -> None:
    await respond(interaction, "jobs", "")


@tree.command(name="cancel", description="Take back a job that waits, or stop following one that is at work")
async def on_cancel(interaction: discord.Interaction, job: str) -> None:
    await respond(interaction, "cancel", job)


@tree.command(name="settle", description="Settle a job of which nobody knows whether it was started")
async def on_settle(interaction: discord.Interaction, text: str) -> None:
    await respond(interaction, "settle", text)


async def main() -> None:
    # SIGTERM or SIGINT sets `stopped`; drain_on_signal then waits for the creates that are under way.
    async with session, drain_on_signal(session, pass_on=False) as stopped, asyncio.TaskGroup() as tasks, bot:
        await bot.login(os.environ["DISCORD_TOKEN"])  # first: `jobs` tells at once what was not told before
        await tree.sync()  # the commands, to Discord
        async with jobs:
            tasks.create_task(bot.connect())  # until the block of the bot is left, which closes it
            await stopped.wait()


logging.basicConfig()
asyncio.run(main())
