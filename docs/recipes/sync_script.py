"""Create jobs and wait for them from synchronous code: one event loop, in one thread.

python docs/recipes/sync_script.py "Document the v2 endpoints" "Fix the broken links"

Each prompt is one job in the journal jobs.db: the same command continues, whatever ended it, and doubles nothing.
The exit code is 1 unless all are completed. Without the journal, it starts them all again.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from hashlib import sha256
from threading import Thread

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs


@contextmanager
def running_loop() -> Iterator[Callable]:
    """Run an event loop in a thread of its own; any other thread may hand it a coroutine, and gets a future."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="agentjobs")
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def ended(session: AgentJobsSession, jobs: DurableJobs, prompt: str) -> AgentJob:
    """Return the job of a prompt once it has ended; it is started unless the journal has it."""
    key = sha256(prompt.encode(errors="surrogateescape")).hexdigest()[:16]
    entry = await jobs.submit(key, prompt)
    if entry.ref is None:  # `agentjobs resolve` settles what is unknown
        raise AgentJobsError(f"{key} is {entry.state}: {entry.error}")
    return await session.wait_for_job(entry.ref, timeout=None)


def run(prompts: list[str]) -> int:
    """Print the end of each prompt's job; return the exit code."""
    session, journal = AgentJobsSession(), Journal.open(os.environ.get("JOURNAL", "jobs.db"))
    jobs, blocks, code = DurableJobs(session, journal), AsyncExitStack(), 0
    with running_loop() as submit:

        def stop(number: int, _frame: object) -> None:
            nonlocal code
            code = 128 + number
            submit(session.drain())  # ends the waits, but no create under way; a second signal changes nothing

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            for block in (session, journal, jobs):
                submit(blocks.enter_async_context(block)).result()
            for prompt, end in [(prompt, submit(ended(session, jobs, prompt))) for prompt in prompts]:
                try:
                    print((job := end.result()).ref.to_token(), job.status, job.pr_link or "", flush=True)
                    code = code or int(not job.succeeded)
                except AgentJobsError as error:
                    code = code or 1
                    print(f"{prompt[:40]!a}: {error}", file=sys.stderr)
        finally:
            submit(blocks.aclose()).result()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of the loop is near
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except AgentJobsError as error:  # of the settings, or the journal
        sys.exit(str(error))
