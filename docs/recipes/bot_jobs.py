"""What the bots share: jobs in a journal that outlives the bot, and the answers to /job, /jobs and /settle."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, InvalidInputError
from agentjobs_async.batch import Journal, State, Where
from agentjobs_async.durable import DurableEntry, DurableJobs

SETTLE = "/settle KEY job JOB_ID, /settle KEY again or /settle KEY abandon"
ENDS = {
    State.UNKNOWN: f"I can't tell whether this was started; please look before you ask again. Operators: {SETTLE}",
    State.FAILED: "the job is gone, and I can't tell how it ended",  # where there is a job, its own status is sent
    State.REJECTED: "the service refused this; nothing was started",
    State.ABANDONED: "an operator gave this up; an agent may still be at work",
}


@asynccontextmanager
async def opened(send: Callable[[dict, str], Awaitable[None]]) -> AsyncGenerator[Callable[..., Awaitable[str]]]:
    """Return a block with `answer` to a command by its origin: chat, user, message; `send` tells each end there."""

    async def on_end(entry: DurableEntry, ended: AgentJob | Exception) -> None:
        end = f"{ended.status}: {ended.pr_link or 'no change'}" if isinstance(ended, AgentJob) else ENDS[entry.state]
        await send(entry.context, f"{entry.key} {end}")

    async def answer(origin: dict, command: str, text: str) -> str:
        mine, key = "{chat}/{user}/".format(**origin), "{chat}/{user}/{message}".format(**origin)
        try:
            match command, text.split():
                case "jobs", _:
                    rows = [row for row in await journal.rows(where=Where(text=mine)) if row.key.startswith(mine)]
                    lines = (f"{row.key} {row.state} {row.pr_link or ''} {row.prompt!r}"[:180] for row in rows[-10:])
                    return "\n".join(lines) or "None."
                case "settle", _ if str(origin["user"]) not in os.environ.get("OPERATORS", "").split():  # ids of users
                    return "Only operators may do this."
                case "settle", [key, "job", job_id]:
                    await journal.resolve(key, job_id=(await session.get_job(job_id)).ref)
                case "settle", [key, "again" | "abandon" as how] if key in {row.key for row in await journal.unknown()}:
                    await (journal.resolve(key, send_again=True) if how == "again" else journal.abandon(key))
                case "settle", _:
                    return f"{SETTLE}? Unknown: {[row.key for row in await journal.unknown()][:10]}"
                case _:  # once planned, the job is started, and its end sent, whatever ends the bot
                    await jobs.submit(key, text, context=origin, wait_for_create=False)
        except AgentJobsError as error:
            # What they wrote is wrong, and the error says how; of anything else they are told what anybody may know.
            what = error if isinstance(error, InvalidInputError) else error.public_message
            return f"{key}: {what}\nLook at /jobs before you ask again."
        return f"{key} is noted, and its end will be told."

    session, journal = AgentJobsSession(), Journal.open(os.environ.get("JOURNAL", "bot.db"))
    async with session, journal, DurableJobs(session, journal, on_end=on_end) as jobs:
        yield answer
