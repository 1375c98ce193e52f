"""A small sweep in real time, for loops, modes and builds that the large one cannot have: prints what came of it.

Run as `python -m tests.contract.small_sweep [uvloop] [eager] [debug]`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final

from agentjobs_async import AgentJobsError, AgentJobsSession, CreateOutcome, HttpTimeouts, WaitTimeoutError
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.ways import WAYS, gets
from tests.polled import every

CREATES: Final = {
    "ok": "created 1",
    "close:after": "created 1",
    "429": "created 2",
    "refuse for=0.1": "created 1",
    "reset": "unknown 1",
    "reset:headers": "unknown 1",
    "reset:body": "unknown 1",
    "close": "unknown 1",
    "close:body": "unknown 1",
    "short": "unknown 1",
    "hang": "unknown 1",
    "hang:body": "unknown 1",
    "endless:headers": "unknown 1",
    "endless:body": "unknown 1",
    "endless:continues": "unknown 1",
    "500": "unknown 1",
    "303": "unknown 1",
    "ok header.Content-Length=7": "unknown 1",
    "ok header.Transfer-Encoding=chunked": "unknown 1",
    "gzip:bomb": "unknown 1",
    "101": "unknown 1",
    "302": "rejected 1",
    "400": "rejected 1",
}
"""A fault of a create, and its outcome and the requests it took."""

WAITS: Final = {
    "ok": "completed 1",
    "reset x3": "completed 4",
    "close x3": "completed 4",
    "short x3": "completed 4",
    "hang": "completed 2",
    "hang:body": "completed 2",
    "503 x3": "completed 4",
    "surplus x3": "completed 1",
    "endless:headers": "completed 2",
    "endless:body": "completed 2",
    "endless:continues": "completed 2",
    "body:html x3": "completed 4",
    "body:html x5": "ProtocolError 5",
    "gzip:bomb bytes=8388608 x3": "completed 4",
    "400": "RejectedError 1",
    "302": "RejectedError 1",
}
"""A fault of a poll, and the wait's end and the requests it took."""


async def main() -> dict[str, dict[str, str]]:
    sweeps: dict[str, Any] = {"create": (CREATES, _created), "cancelled": (WAYS, _cancelled)}
    sweeps |= {way: (WAITS, partial(_waited, way)) for way in WAYS}
    ends = await asyncio.gather(*(_ends(*sweep) for sweep in sweeps.values()))  # all hang at the same time
    return dict(zip(sweeps, ends, strict=True))


async def _ends(rows: Collection[str], end_of: Callable[[str], Awaitable[str]]) -> dict[str, str]:
    return dict(zip(rows, await asyncio.gather(*map(end_of, rows)), strict=True))


async def _created(fault: str) -> str:
    async with Emulator(faults=fault) as emulator, emulator.session(project_id="docs") as session:
        outcome = await _outcome(session, _seconds(fault))
        assert emulator.agents_started["Fix it"] <= 1
        assert emulator.foreign.connections == 0
        return f"{outcome} {len(emulator.requests)}"


def _seconds(fault: str) -> float:
    """Return the time of an exchange: short only where its end decides, as no other one may miss it.

    Nor may the exchange after one that hung, which has the same time, however slow the machine is.
    """
    return 15.0 if fault.startswith(("hang", "endless")) else 100.0


async def _outcome(session: AgentJobsSession, seconds: float) -> CreateOutcome:
    try:
        await session.create_job("Fix it", timeout=seconds)
    except AgentJobsError as error:
        outcome = error.outcome
    else:
        outcome = CreateOutcome.CREATED
    assert outcome is not None
    return CreateOutcome(outcome)


async def _waited(way: str, fault: str) -> str:
    settings: dict[str, Any] = {"policy": every(0.02), "timeouts": HttpTimeouts(request=_seconds(fault))}
    async with (
        Emulator(script=JobScript(duration=0), faults=f"{fault} on=get") as emulator,
        WAYS[way](emulator, **settings) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        try:
            end = str((await wait(created.ref, timeout=100)).status)
        except AgentJobsError as error:
            end = type(error).__name__
        assert emulator.foreign.connections == 0
        return f"{end} {len(gets(emulator))}"


async def _cancelled(way: str) -> str:
    """Cancel a create, a read and a wait in the middle, let a wait time out, and close under others."""
    async with Emulator(script=JobScript(duration=100), faults="ok on=create then hang on=create") as emulator:
        async with WAYS[way](emulator) as (session, wait):
            created = await session.create_job("Fix it")
            await emulator.inject("hang forever on=get")
            tasks = [
                asyncio.ensure_future(call)
                for call in (session.create_job("Fix it"), session.get_job(created), wait(created.ref))
            ]
            late = asyncio.ensure_future(wait(created.ref, timeout=0.2))
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, late, return_exceptions=True)
            kinds = [asyncio.CancelledError] * 3 + [WaitTimeoutError]
            assert [type(end) for end in ends] == kinds
            last = asyncio.ensure_future(session.get_job(created))
            await asyncio.sleep(0.05)
        (end,) = await asyncio.gather(last, return_exceptions=True)
        return type(end).__name__


def _loop(words: list[str]) -> asyncio.AbstractEventLoop:
    if "uvloop" in words:
        import uvloop  # noqa: PLC0415 - only where it is asked for

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    if "eager" in words:
        loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined,unused-ignore]  # from 3.12 on
    loop.set_debug("debug" in words)
    loop.slow_callback_duration = 60  # debug mode logs what takes long, and a busy machine is no fault of ours
    return loop


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=lambda: _loop(sys.argv[1:])) as runner:
        sys.stdout.write(json.dumps(runner.run(main())))
