"""Create jobs and wait for them from synchronous code: one event loop, in one thread.

python docs/recipes/sync_script.py "Document the v2 endpoints" "Fix the broken links"
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from agentjobs_async import AgentJobsError, AgentJobsSession


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread of its own; any other thread may hand it coroutines."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="agentjobs")
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def run(prompts: list[str], loop: asyncio.AbstractEventLoop, session: AgentJobsSession) -> int:
    """Print the end of each prompt's job; return the exit code."""
    creates = [asyncio.run_coroutine_threadsafe(session.create_job(prompt), loop) for prompt in prompts]
    try:
        for create in creates:
            try:
                wait = session.wait_for_job(create.result(), timeout=None)
                job = asyncio.run_coroutine_threadsafe(wait, loop).result()
                print(job.ref.to_token(), job.status, job.pr_link or "")
            except AgentJobsError as error:
                print(error, file=sys.stderr)
    except KeyboardInterrupt:  # Ctrl-C ends the waits; a create under way still has its answer
        asyncio.run_coroutine_threadsafe(session.drain(), loop).result()
        for create in creates:
            print(create.exception() or f"continues: {create.result().ref.to_token()}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    session = AgentJobsSession()  # it belongs to the loop of its first call
    with running_loop() as loop:
        try:
            code = run(sys.argv[1:], loop, session)
        finally:
            asyncio.run_coroutine_threadsafe(session.aclose(), loop).result()
    sys.exit(code)
