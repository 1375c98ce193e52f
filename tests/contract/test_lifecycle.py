"""Sessions and trackers from their making to their end: closing that is cancelled, forks, other loops and builds."""

import asyncio
import gc
import itertools
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import event

from agentjobs_async import AgentJob, AgentJobsSession, JournalError, SessionClosedError
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.children import ROOT, environment, run_child
from tests.contract.small_sweep import CREATES, WAITS
from tests.contract.ways import REF, WAYS, Waiting
from tests.polled import every, let_go

CALLS: Final[dict[str, Callable[[AgentJobsSession], Any]]] = {
    "create_job": lambda session: session.create_job("Fix it"),
    "get_job": lambda session: session.get_job(REF),
    "wait_for_job": lambda session: session.wait_for_job(REF),
    "wait_for_job of an ended one": lambda session: session.wait_for_job(AgentJob(REF.job_id, "docs", "completed")),
    "run_job": lambda session: session.run_job("Fix it"),
    "enter": lambda session: session.__aenter__(),
}


def test_cancelled_while_closing() -> None:
    """However often closing is cancelled, and from whichever iteration on, it leaves no socket, task or warning."""
    loops = [asyncio.__name__, *(name for name in ["uvloop"] if find_spec(name))]
    said = run_child(
        """
        import asyncio, gc, importlib, ssl, sys
        import trustme
        from agentjobs_async import AgentJobsSession
        from tests.contract.sockets import Mute
        from tests.scripted import KEY

        authority = trustme.CA()
        client, serving = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.configure_trust(client)
        authority.issue_cert("127.0.0.1").configure_cert(serving)

        async def life(server, iteration):
            session = AgentJobsSession(server.base_url, KEY, project_id="docs", ssl=client)
            calls = [session.create_job("x" * 9_000_000), session.get_job("job_1"), session.wait_for_job("job_2")]
            tasks = [asyncio.ensure_future(call) for call in calls]
            before = server.accepted
            while server.accepted < before + 3:
                await asyncio.sleep(0.001)
            closing = asyncio.ensure_future(session.aclose())
            for _ in range(1 + iteration):  # the first begins it
                await asyncio.sleep(0)
            early = not closing.done()
            while not closing.done():  # as anyio's scopes do
                closing.cancel()
                await asyncio.sleep(0)
            ends = await asyncio.gather(closing, *tasks, return_exceptions=True)
            for _ in range(5):
                await asyncio.sleep(0)
            assert server.clients() == 0, iteration
            assert all(isinstance(end, BaseException) for end in ends[1:]), ends
            await session.aclose()
            return early

        async def main():
            async with Mute(serving) as server:
                iteration = 0
                while await life(server, iteration):
                    iteration += 1
                await life(server, iteration)
                assert asyncio.all_tasks() == {asyncio.current_task()}
            print(iteration > 1)

        for name in sys.argv[1:]:
            importlib.import_module(name).run(main())
        gc.collect()
        """,
        *loops,
    )
    assert said == "True\n" * len(loops)


@pytest.mark.parametrize("whole_loop", [True, False])
async def test_journal_cancelled_while_closing(tmp_path: Path, *, whole_loop: bool) -> None:
    """However often closing a journal is cancelled, its file is given up only when nothing is written any more.

    So it is when all tasks are cancelled, the journal's own too, as at the end of `asyncio.run`: nothing stays locked.
    """
    path = tmp_path / "run.db"
    journal = await Journal.open(path).__aenter__()
    await journal.add([BatchItem("first", "x")], project_id="docs")
    with closing(sqlite3.connect(path, isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        inserting, loop = asyncio.Event(), asyncio.get_running_loop()
        assert journal._opened.database is not None
        event.listen(
            journal._opened.database.backend.engine.sync_engine,
            "before_cursor_execute",
            lambda *_: loop.call_soon_threadsafe(inserting.set),  # from the thread that waits for the disk
        )
        adding = asyncio.ensure_future(journal.add([BatchItem("second", "x")], project_id="docs"))
        await inserting.wait()
        await let_go(20)
        leaving = asyncio.ensure_future(journal.aclose())
        await let_go()
        for task in asyncio.all_tasks() - {asyncio.current_task()} if whole_loop else ():
            task.cancel()
        for _ in range(200):
            leaving.cancel()
            await asyncio.sleep(0)
        assert not leaving.done()
        with pytest.raises(JournalError, match=r"run\.db\.lock is locked"):
            await Journal.open(path).__aenter__()
        busy.execute("ROLLBACK")
    while not leaving.done():
        leaving.cancel()
        await asyncio.sleep(0.001)
    assert leaving.cancelled()
    assert adding.cancelled() if whole_loop else await adding == []
    async with Journal.open(path) as again:
        assert [row.key async for row in again.rows()] == ["first"] + ["second"] * (not whole_loop)


async def test_closed() -> None:
    """A closed session refuses every call with a typed error, without I/O, used before or not."""
    failed = {}
    async with Emulator() as emulator:
        for used, (name, call) in itertools.product((True, False), CALLS.items()):
            session = emulator.session(project_id="docs")
            if used:
                await session.create_job("Fix it")
            await session.aclose()
            await session.aclose()
            before = emulator.connections
            ends: list[object] = await asyncio.gather(call(session), return_exceptions=True)
            if type(ends[0]) is not SessionClosedError or emulator.connections != before:
                failed[name, used] = ends
    assert failed == {}


def test_whole_life() -> None:
    """A life in real time, under `-W error -X dev`, ends without a warning and without a leak.

    It does not fail because a machine is slow: what asyncio says about slow callbacks is left out.
    """
    said = run_child(
        """
        import asyncio, gc
        from agentjobs_async.testing import Emulator, JobScript
        from tests.contract.ways import WAYS
        from tests.polled import every

        async def live(way):
            script, faults = JobScript(duration=0.2), "ok x3 then reset then close then 503"
            async with Emulator(script=script, faults=faults) as emulator:
                async with WAYS[way](emulator, policy=every(0.02)) as (session, wait):
                    jobs = await asyncio.gather(*(session.create_job(str(number)) for number in range(3)))
                    ended = await asyncio.gather(*(wait(job) for job in jobs))
                    late = asyncio.ensure_future(wait(jobs[0].ref))
                    await asyncio.sleep(0)
                    late.cancel()
                    print(way, sum(job.succeeded for job in ended))

        async def main():
            asyncio.get_running_loop().slow_callback_duration = 0  # s: every callback is slow
            for way in WAYS:
                await live(way)

        asyncio.run(main())
        gc.collect()
        """
    )
    assert said.splitlines() == [f"{way} 3" for way in WAYS]


def test_forked_child() -> None:
    """A forked child is refused every call and sends nothing on the parent's sockets; the parent goes on."""
    said = run_child(
        """
        import asyncio, os
        from agentjobs_async import JobRef, SessionClosedError
        from agentjobs_async.testing import Emulator, JobScript
        from tests.contract.ways import WAYS
        from tests.polled import every

        async def refused(session, wait):
            count = 0
            calls = [session.create_job("x"), session.get_job("job_1"), session.wait_for_job("job_1"), session.aclose()]
            for call in calls:
                try:
                    await call
                except SessionClosedError as error:
                    count += "forked" in str(error)
            return count

        async def live(way):
            async with Emulator(script=JobScript(duration=float("inf"))) as emulator:
                async with WAYS[way](emulator, policy=every(0.02)) as (session, wait):
                    job = await session.create_job("Fix it")
                    waiting = asyncio.ensure_future(wait(job))
                    while len(emulator.requests) < 2:
                        await asyncio.sleep(0.001)
                    child = os.fork()
                    if not child:
                        asyncio._set_running_loop(None)
                        os._exit(asyncio.run(refused(session, wait)))
                    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    await emulator.inject("document status=completed forever on=get")
                    status = (await waiting).status
                    print(way, code, status, dict(emulator.agents_started), emulator.connections <= 3)

        async def main():
            for way in WAYS:
                await live(way)

        asyncio.run(main())
        """
    )
    assert said.splitlines() == [f"{way} 4 completed {{'Fix it': 1}} True" for way in WAYS]


async def test_second_loop() -> None:
    """A session that was used in one loop refuses every call from another with a typed error, and sends nothing."""

    async def called(call: Callable[[AgentJobsSession], Any]) -> None:
        await call(session)

    async with Emulator() as emulator:
        session = emulator.session(project_id="docs")
        await session.create_job("Fix it")
        for call in (*CALLS.values(), AgentJobsSession.aclose):
            with pytest.raises(SessionClosedError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, called(call))
        assert len(emulator.requests) == 1
        await session.aclose()


def _of_waits() -> list[object]:
    """All that waits are made of, here: of this test and of those before it, whose errors a report may keep."""
    gc.collect()
    kinds = {"Watch", "Tracked", "Wait", "WaitTimeoutError"}
    return [one for one in gc.get_objects() if type(one).__qualname__ in kinds]


@pytest.mark.looptime
async def test_waits_leave_nothing(waiting: Waiting) -> None:
    """A thousand waits that ended in every way leave no object of theirs behind while the session lives on."""
    async with (
        Emulator(script=JobScript(duration=3)) as emulator,
        waiting(emulator, policy=every(1)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        before = {id(one) for one in _of_waits()}
        for _ in range(3):
            tasks = [asyncio.ensure_future(wait(created.ref, timeout=0.5 + number % 3)) for number in range(300)]
            for task in tasks[::5]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            del tasks[:]
        await asyncio.sleep(10)
        assert [type(one) for one in _of_waits() if id(one) not in before] == []


SWEEPS: Final = {
    "debug": (["debug"], {}),
    "uvloop": (["uvloop"], {}),
    "eager tasks": (["eager"], {}),
    "without C extensions": ([], {"AIOHTTP_NO_EXTENSIONS": "1"}),
}


async def test_small_sweep() -> None:
    """The table holds on every loop, with eager tasks, and without aiohttp's C extensions, under `-W error -X dev`."""
    absent = {"eager tasks"} if sys.version_info < (3, 12) else set()
    absent |= set() if find_spec("uvloop") else {"uvloop"}
    names = [name for name in SWEEPS if name not in absent]
    found = await asyncio.gather(*(_swept(*SWEEPS[name]) for name in names))
    right = {"create": CREATES, "cancelled": dict.fromkeys(WAYS, "SessionClosedError")} | dict.fromkeys(WAYS, WAITS)
    failed = {name: ends for name, ends in zip(names, found, strict=True) if ends != right}
    assert failed == {}


async def _swept(words: list[str], more: dict[str, str]) -> object:
    """Run the sweep at the same time as others, and return the ends of its rows, or what it complained of."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-X", "dev", "-m", "tests.contract.small_sweep", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=environment(**more),
    )
    try:
        said, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return json.loads(said) if (process.returncode, complaints) == (0, b"") else complaints.decode()
