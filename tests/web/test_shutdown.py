"""Signals drain a session, and reach the handlers that were there before."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentjobs_async import InvalidInputError, JobTracker, SessionClosedError
from agentjobs_async.batch import Journal, State
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.web import drain_on_signal, sse_events
from tests.first_process import run_first
from tests.polled import REF, never
from tests.scripted import KEY

ENDLESS = JobScript(duration=float("inf"))

KILLED = f"""
import asyncio, os, signal
from agentjobs_async import AgentJobsSession, SessionClosedError
from agentjobs_async.web import drain_on_signal

async def main():
    async with AgentJobsSession("http://127.0.0.1:9", {KEY!r}, project_id="docs") as session:
        async with drain_on_signal(session):
            wait = asyncio.ensure_future(session.wait_for_job("job_1"))
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                await wait
            except SessionClosedError as error:
                print(error, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""

HUNG_UP = KILLED.replace("SIGTERM", "SIGHUP")
IGNORANT = f"""
import asyncio, signal
from agentjobs_async import AgentJobsSession
from agentjobs_async.web import drain_on_signal

async def main():
    async with AgentJobsSession("http://127.0.0.1:9", {KEY!r}) as session, drain_on_signal(session):
        print(signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM))
        signal.raise_signal(signal.SIGHUP)

signal.signal(signal.SIGHUP, signal.SIG_IGN)
asyncio.run(main())
"""

ENDED = """
import asyncio, logging, os, signal, sys
from agentjobs_async._polling import waits
from agentjobs_async.batch import BatchItem, BatchWorker, Journal, run_batch
from agentjobs_async.batch._run.records import Records
from agentjobs_async.durable import DurableJobs
from agentjobs_async.web import drain_on_signal
from tests.held import HeldEmulator
from tests.until import until

KEYS = [f"key-{number}" for number in range(10)]
ITEMS = [BatchItem(key, "Fix the links", "docs") for key in KEYS]

record_job = Records.created

async def keep_late(*row):
    for _ in range(1000):  # iterations of the loop: longer than a closing takes
        await asyncio.sleep(0)
    return await record_job(*row)

Records.created = keep_late

async def batch(session, journal):
    async with run_batch(session, ITEMS, journal=journal) as results:
        async for _ in results:
            pass

async def worker(session, journal):
    await journal.add(ITEMS)
    async with BatchWorker(session, journal) as worker:
        await worker.run(KEYS)

async def durable(session, journal):
    async with DurableJobs(session, journal) as jobs:
        await asyncio.gather(*(jobs.submit(key, "Fix the links") for key in KEYS), return_exceptions=True)
        await asyncio.Event().wait()

async def caller(session, journal):
    with session.recording():
        jobs = await asyncio.gather(*(session.create_job("Fix the links") for _ in KEYS))
        for key, job in zip(KEYS, jobs, strict=True):
            await journal.add([BatchItem(key, "Fix the links", "docs")])
            await asyncio.sleep(0)
    print(len(jobs), flush=True)

async def stuck(session, journal):
    waits._RECORDING_SECONDS = 0.1
    Records.created = lambda *_: asyncio.Event().wait()
    await batch(session, journal)

async def main(way, path):
    logging.basicConfig()
    async with HeldEmulator() as emulator, emulator.session(project_id="docs") as session:
        async with drain_on_signal(session), Journal.open(path) as journal:
            working = asyncio.ensure_future(globals()[way](session, journal))
            await until(lambda: emulator.agents_started.total() == 10)
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: session._binding.draining)
            emulator.release.set()
            await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""

TWO = """
import asyncio, os, signal
from agentjobs_async.web import drain_on_signal
from tests.held import HeldEmulator

async def main():
    async with HeldEmulator() as emulator, emulator.session() as outer, drain_on_signal(outer):
        async with emulator.session(project_id="docs") as inner, drain_on_signal(inner):
            creating = asyncio.ensure_future(inner.create_job("x"))
            await emulator.arrived.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await outer.drain()
            async with emulator.session() as late, drain_on_signal(late):
                emulator.release.set()
                print((await creating).id, flush=True)
                await asyncio.Event().wait()

asyncio.run(main())
"""

KEPT = """
import asyncio, os, signal, sys
from agentjobs_async.batch import Journal
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator
from agentjobs_async.web import drain_on_signal

async def main():
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        async with drain_on_signal(session, pass_on=False) as stopped:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(os.getpid(), number)
            async with Journal.open(sys.argv[1]) as journal, DurableJobs(session, journal) as jobs:
                await stopped.wait()
                print((await jobs.submit("key", "Later", wait_for_create=False)).state)
                os.kill(os.getpid(), signal.SIGTERM)
    print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, emulator.agents_started.total())

asyncio.run(main())
"""

CHILD = """
import asyncio, os, signal
from agentjobs_async.testing import Emulator
from agentjobs_async.web import drain_on_signal

async def main():
    async with Emulator() as emulator, emulator.session(project_id="docs") as session, drain_on_signal(session):
        if (child := os.fork()) == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), (await session.run_job("Go on")).status)

asyncio.run(main())
"""


@pytest.fixture
def received() -> Iterator[list[int]]:
    """The signals that a server's own handler of SIGTERM gets."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


async def test_signal_ends_streams(received: list[int]) -> None:
    """At the first signal all streams end, and the server's own handler gets each signal; it is put back at the end."""
    own = signal.getsignal(signal.SIGTERM)
    async with Emulator(script=ENDLESS) as emulator, emulator.session(project_id="docs") as session:
        job = await session.create_job("Go on")
        async with drain_on_signal(session):
            frames = sse_events(session, job)
            await anext(frames)
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            rest = [frame async for frame in frames]
            assert [b"event: job_error" in frame and b"restarting" in frame for frame in rest] == [True]
        assert signal.getsignal(signal.SIGTERM) is own
        with pytest.raises(SessionClosedError):
            await session.create_job("No more")
    assert received == [signal.SIGTERM] * 2


@pytest.mark.looptime
async def test_without_a_signal(received: list[int]) -> None:
    """Without a signal the session stays open, and the handlers are put back, in whatever order blocks are left."""
    own = signal.getsignal(signal.SIGTERM)
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        first, second = drain_on_signal(session), drain_on_signal(session)
        await first.__aenter__()
        async with second:
            await first.__aexit__(None, None, None)
            assert signal.getsignal(signal.SIGTERM) is not own
        assert signal.getsignal(signal.SIGTERM) is own
        assert (await session.run_job("Still open")).succeeded
    assert received == []


async def test_signal_that_is_kept(received: list[int]) -> None:
    """Without passing on, a signal drains the session and sets the event; the handler before gets none."""
    own = signal.getsignal(signal.SIGTERM)
    async with JobTracker(never) as tracker:
        async with drain_on_signal(tracker, pass_on=False) as stopped:
            wait = tracker.watch(REF)
            assert not stopped.is_set()
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            await stopped.wait()
            with pytest.raises(SessionClosedError):
                await wait
        assert signal.getsignal(signal.SIGTERM) is own
    assert received == []


async def test_signal_at_the_last_moment(received: list[int]) -> None:
    """A kept signal that comes as the block is left drains the session and sets the event: it is not lost."""
    async with JobTracker(never) as tracker:
        async with drain_on_signal(tracker, pass_on=False) as stopped:
            signal.raise_signal(signal.SIGTERM)
        assert stopped.is_set()
        with pytest.raises(SessionClosedError):
            await tracker.watch(REF)
    assert received == []


async def test_one_block_keeps_the_signal(received: list[int]) -> None:
    """A signal that one block of the process keeps is passed on by no other, and drains all; then it is passed again.

    Each block gets an event of its own.
    """
    async with JobTracker(never) as first, JobTracker(never) as second:
        async with drain_on_signal(first) as passed:
            async with drain_on_signal(second, pass_on=False) as kept:
                signal.raise_signal(signal.SIGTERM)
                await asyncio.gather(passed.wait(), kept.wait())
            assert received == []
            signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGTERM]


def test_program_without_a_server(tmp_path: Path) -> None:
    """A program that keeps its signals ends by itself at any of them, also before its journal is open."""
    command = [sys.executable, "-c", KEPT, str(tmp_path / "bot.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert (done.returncode, done.stdout, done.stderr) == (0, "planned\nTrue 0\n", "")


@pytest.mark.looptime
async def test_all_sessions_are_drained(received: list[int]) -> None:
    """A signal drains all sessions of the process, and reaches the server's own handler once."""
    async with JobTracker(never) as first, JobTracker(never) as second:
        async with drain_on_signal(first), drain_on_signal(second):
            waits = [tracker.watch(REF) for tracker in (first, second)]
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait(waits, timeout=60)
            assert [wait.done() and type(wait.exception()) for wait in waits] == [SessionClosedError] * 2
    assert received == [signal.SIGTERM]


async def test_in_another_thread() -> None:
    """In another thread, as in a sync test client, it changes no handler."""

    async def entered() -> bool:
        before = signal.getsignal(signal.SIGTERM)
        async with JobTracker(lambda _ref: asyncio.sleep(0, {})) as tracker, drain_on_signal(tracker) as stopped:
            return signal.getsignal(signal.SIGTERM) is before and not stopped.is_set()

    assert await asyncio.to_thread(lambda: asyncio.run(entered()))


def test_signal_without_a_handler() -> None:
    """A signal that had no handler ends the process as before, but after the draining of all its sessions."""
    for program, words in ((KILLED, "wait for it again by its token"), (TWO, "job_")):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
        assert words in done.stdout
        assert done.returncode == -signal.SIGTERM
        assert done.stderr == ""


def ended(way: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program without a handler that sends ten creates, and gets SIGTERM before one is answered."""
    command = [sys.executable, "-c", ENDED, way, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "state"),
    [("batch", State.ACTIVE), ("worker", State.ACTIVE), ("durable", State.ACTIVE), ("caller", State.PLANNED)],
)
async def test_answers_are_recorded(way: str, state: State, tmp_path: Path) -> None:
    """A process without a handler ends once what was answered during the draining is durable: nothing is unknown."""
    done = await asyncio.to_thread(ended, way, tmp_path / "run.db")
    assert done.returncode == -signal.SIGTERM, done.stderr
    async with Journal.open(tmp_path / "run.db", read_only=True) as journal:
        assert {each: count for each, count in (await journal.counts()).items() if count} == {state: 10}


@pytest.mark.slow
def test_answers_that_are_not_recorded(tmp_path: Path) -> None:
    """Where the journal does not take the ids in time, each is logged with its token, and the exit code is 4."""
    done = ended("stuck", tmp_path / "run.db")
    assert done.returncode == 4
    logged = re.findall(r"the draining ended before the job (docs~.job_\w+) was recorded", done.stderr)
    assert len(set(logged)) == 10


def test_hangup() -> None:
    """SIGHUP drains as SIGTERM does; where it is ignored, as under nohup, it stays so."""
    done = subprocess.run([sys.executable, "-c", HUNG_UP], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert (done.returncode, done.stderr) == (-signal.SIGHUP, "")
    assert "wait for it again by its token" in done.stdout
    done = subprocess.run([sys.executable, "-c", IGNORANT], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 _Handler(")


def test_as_process_1() -> None:
    """Process 1 of a container, which no own signal ends, ends after the draining with the exit code of the signal."""
    done = run_first(sys.executable, "-c", KILLED)
    assert (done.returncode, done.stderr) == (143, "")
    assert "wait for it again by its token" in done.stdout


async def test_arguments() -> None:
    """Wrong arguments are refused, before any handler is changed."""
    with pytest.raises(InvalidInputError, match="session must be"):
        await drain_on_signal(None).__aenter__()  # type: ignore[arg-type]  # the wrong type is the test
    async with Emulator() as emulator, emulator.session() as session:
        with pytest.raises(InvalidInputError, match="grace"):
            await drain_on_signal(session, grace=-1).__aenter__()
        with pytest.raises(InvalidInputError, match="pass_on"):
            await drain_on_signal(session, pass_on=None).__aenter__()  # type: ignore[arg-type]  # as above


def test_forked_child() -> None:
    """A signal to a forked child ends the child, and drains no session of its parent."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert (done.stdout, done.stderr) == (f"{-signal.SIGTERM} completed\n", "")
