"""A response costs bounded memory and time: measured in a process that is nothing but the client."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from agentjobs_async.testing import Emulator, Fault
from tests.contract.children import ROOT, environment

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc"
)

MEBIBYTE: Final = 1_048_576
MOST_MEMORY: Final = 16 * MEBIBYTE
LONGEST_BLOCK: Final = 0.5


def _document(json_text: str) -> Fault:
    return Fault("document", options=(("more", json_text),), times=None)


def _names(count: int) -> str:
    return json.dumps({f"{number:x}": 0 for number in range(count)}, separators=(",", ":"))


def _error(text: str) -> Fault:
    return Fault("400", options=(("error", json.dumps(text)),), times=None)


def _nested(piece: str, count: int) -> str:
    return f"[{','.join([piece] * count)}]"


PLANS: Final = (
    "ok",
    "gzip:bomb",
    "gzip:cut",
    "padded bytes=1048576",
    "padded bytes=67108864",
    "padded bytes=67108864 code=500",
    "endless:body",
    "endless:body code=500",
    "endless:headers",
    "endless:continues",
    "overlong by=67108864",
    "surplus:bytes",
    "body:deep",
    "body:number",
    "drip every=0",
)
BODIES: Final[dict[str, Callable[[], Fault]]] = {
    "a million lists": lambda: _document(_nested("[]", 260_000)),
    "a million objects": lambda: _document(_nested('{"":0}', 115_000)),
    "a million numbers": lambda: _document(_nested("1.5", 200_000)),
    "a million strings": lambda: _document(_nested('"ab"', 170_000)),
    "a million escaped strings": lambda: _document(_nested(r'"\u0001\u0002"', 65_000)),
    "a million names": lambda: _document(_names(80_000)),
    "many lists": lambda: _document(f'["%",{_nested("[]", 24_000)}]'),
    "many objects": lambda: _document('["%",' + _nested('{"":0}', 12_000) + "]"),
    "many numbers": lambda: _document(f'["%",{_nested("1.5", 49_000)}]'),
    "many names": lambda: _document(f'["%",{_names(49_000)}]'),
    "text of many commas": lambda: _document(json.dumps(",[{" * 330_000)),
    "a wide text": lambda: _document(json.dumps("\U0001f680" * 80_000 + "%25" * 20_000)),
    "backslashes": lambda: _document(json.dumps("\\" * 500_000)),
    "percent signs": lambda: _document(json.dumps("%25" * 340_000)),
    "almost the key": lambda: _document(json.dumps("emk_5f1d3a7c9b2e486" * 55_000)),
    "an error of backslashes": lambda: _error("\\" * 500_000),
    "an error of percent signs": lambda: _error("%" * 1_000_000),
    "an error of line breaks": lambda: _error("\n" * 1_000_000),
    "an error of lists": lambda: Fault("400", options=(("error", json.dumps(_nested("[]", 200_000))),), times=None),
}
"""Made by the test that needs them: each is a megabyte."""
FAULTS: Final = (*PLANS, *BODIES)

CLIENT: Final = """
import asyncio, gc, json, os, sys, time
import tenacity
from agentjobs_async import AgentJobsError, AgentJobsSession, HttpTimeouts, JobRef, PollPolicy

def memory(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

async def ticker(gaps):
    while True:
        before = time.thread_time()
        await asyncio.sleep(0.005)
        gaps.append(time.thread_time() - before)

async def ended(call):
    try:
        return type(await call).__name__
    except AgentJobsError as error:
        return f"{type(error).__name__} {len(str(error))}"

async def calls(project):
    policy = PollPolicy(wait=tenacity.wait_fixed(0.01), max_bad_answers=3)
    settings = {"project_id": project, "policy": policy, "timeouts": HttpTimeouts(request=0.6)}
    async with AgentJobsSession(sys.argv[1], sys.argv[2], **settings) as session:
        ref = JobRef(project, (await session.create_job("Fix it", timeout=60)).id)
        gc.collect()
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        before, gaps = memory("VmRSS"), []
        ticking = asyncio.ensure_future(ticker(gaps))
        await asyncio.sleep(0.02)
        ends = [await ended(session.create_job("Fix it", timeout=0.6)), await ended(session.get_job(ref))]
        ends.append(await ended(session.wait_for_job(ref, timeout=0.5)))
        await asyncio.sleep(0.02)
        ticking.cancel()
        peak = memory("VmHWM") - before
        return [peak, max(gaps), ends]

def forked(project):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(writing, "w") as told:
            told.write(json.dumps(asyncio.run(calls(project))))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    os.waitpid(child, 0)
    return json.loads(said)

asyncio.run(calls("warm"))
print(json.dumps({project: forked(project) for project in sys.argv[3:]}))
"""


@pytest.mark.parametrize("half", [0, 1])
async def test_every_answer_is_bounded(half: int) -> None:
    """No answer costs more than 16 MiB, blocks the loop for more than half a second, or is quoted at length."""
    faults = FAULTS[half::2]
    async with Emulator() as emulator:
        for project in faults:
            fault = BODIES[project]() if project in BODIES else f"{project} forever"
            await emulator.inject("ok on=create", project_id=project)
            await emulator.inject(fault, project_id=project)
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CLIENT, emulator.base_url, emulator.api_key, *faults),
            cwd=ROOT,
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await client.communicate()
    measured = json.loads(said)
    assert {project: peak for project, (peak, _, _) in measured.items() if peak > MOST_MEMORY} == {}
    assert {project: gap for project, (_, gap, _) in measured.items() if gap > LONGEST_BLOCK} == {}
    assert max(int(end.split()[1]) for _, _, ends in measured.values() for end in ends if " " in end) < 4096
