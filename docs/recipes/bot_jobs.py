"""What the bots share: jobs in a journal that outlives the bot, and the answers to /job, /jobs, /cancel and /settle."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, InvalidInputError
from agentjobs_async.batch import Journal, State, Where
from agentjobs_async.durable import DurableEntry, DurableJobs

SETTLE = "/settle KEY job JOB_ID, /settle KEY again or /settle KEY abandon"
OPERATORS = os.environ.get("OPERATORS", "").split()  # ids of users
ENDS = {
    State.UNKNOWN: f"I can't tell whether this was started; please look before you ask again. Operators: {SETTLE}",
    State.FAILED: "the job is gone, and I can't tell how it ended",  # where there is a job, its own status is sent
    State.REJECTED: "the service refused this; nothing was started",
    State.ABANDONED: "an operator gave this up; an agent may still be at work",
}


def end_text(entry: DurableEntry, ended: AgentJob | Exception) -> str:
    """Return what a user is told at the end of a job."""
    if isinstance(ended, AgentJob):
        return f"{ended.status}: {ended.pr_link or 'no change'}"
    if entry.state is State.ABANDONED and entry.sent_at is None:
        return "was taken back; nothing was started"
    return ENDS[entry.state]


async def submit(jobs: DurableJobs, origin: dict, prompt: str) -> str:
    """Plan a job: from now on it is started, and its end sent, whatever ends the bot."""
    key = "{chat}/{user}/{message}".format(**origin)
    entry = await jobs.submit(key, prompt, context=origin, wait_for_create=False)
    if entry.error is not None:
        return f"{key} is noted, and waits."
    return f"{key} is noted, and its end will be told."


async def cancel(jobs: DurableJobs, mine: str, key: str) -> str:
    """Take back a user's job that is planned, or stop following one that is at work; return which of the two."""
    if not key.startswith(mine):
        return "Which? Look at /jobs."
    entry = await jobs.get(key)
    if entry is None or entry.is_terminal:
        return f"{key} is not under way. Look at /jobs."
    if entry.state is State.UNKNOWN:
        return f"{key} may have been started: operators settle it."
    if entry.state is State.PLANNED:
        try:
            await jobs.abandon(key)
        except InvalidInputError:  # it was sent in this moment
            return await cancel(jobs, mine, key)
        return f"{key} is taken back."
    await jobs.unfollow(key)
    return f"{key} is at work: its agent goes on, but its end will not be told."


async def settle(session: AgentJobsSession, journal: Journal, user: str, words: list[str]) -> str:
    """Do what an operator wants of an unknown job, and return that; without a valid command, list the unknown jobs."""
    if user not in OPERATORS:
        return "Only operators may do this."
    unknown = [row.key for row in await journal.unknown()]
    match words:
        case [key, "job", job_id]:
            await journal.resolve(key, job_id=(await session.get_job(job_id)).ref)
        case [key, "again"] if key in unknown:
            await journal.resolve(key, send_again=True)
        case [key, "abandon"] if key in unknown:
            await journal.abandon(key)
        case _:
            return f"{SETTLE}? Unknown: {unknown[:10]}"
    return f"{key} is settled, and its end will be told."


async def listed(journal: Journal, mine: str) -> str:
    """Return a user's last jobs, one in each line."""
    rows = await journal.rows(where=Where(prefix=mine))
    lines = [f"{row.key} {row.state} {row.pr_link or ''} {row.prompt!r}" for row in rows[-10:]]
    return "\n".join(line[:180] for line in lines) or "None."


@asynccontextmanager
async def opened(send: Callable[[dict, str], Awaitable[None]]) -> AsyncGenerator[Callable[..., Awaitable[str]]]:
    """Return a block with `answer` to a command by its origin: chat, user, message; `send` tells each end there."""

    async def on_change(entry: DurableEntry, found: AgentJob | Exception) -> None:
        if isinstance(found, AgentJobsError):  # said once
            await send(entry.context, f"{entry.key} waits to be sent: {found.public_message}")

    async def on_end(entry: DurableEntry, ended: AgentJob | Exception) -> None:
        await send(entry.context, f"{entry.key} {end_text(entry, ended)}")

    async def answer(origin: dict, command: str, text: str) -> str:
        mine = "{chat}/{user}/".format(**origin)
        try:
            match command:
                case "jobs":
                    return await listed(journal, mine)
                case "cancel":
                    return await cancel(jobs, mine, text.strip())
                case "settle":
                    return await settle(session, journal, str(origin["user"]), text.split())
                case _:
                    return await submit(jobs, origin, text)
        except AgentJobsError as error:
            # What they wrote is wrong, and the error says how; of anything else users are told what anybody may know.
            is_for_them = command == "settle" or isinstance(error, InvalidInputError)
            what = error if is_for_them else error.public_message
            return f"{what}\nLook at /jobs before you ask again."

    session, journal = AgentJobsSession(), Journal.open(os.environ.get("JOURNAL", "bot.db"))
    async with session, journal, DurableJobs(session, journal, on_change=on_change, on_end=on_end) as jobs:
        yield answer
