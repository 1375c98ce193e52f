"""Sessions and trackers from their making to their end: closed in any order, forked, in other loops and builds."""

import asyncio
import gc
import itertools
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import event

from agentjobs_async import AgentJob, AgentJobsSession, CreateOutcome, JobRef, JournalError, SessionClosedError
from agentjobs_async.batch import BatchItem, Journal
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.children import ROOT, environment, run_child
from tests.contract.small_sweep import CREATES, WAITS
from tests.contract.sockets import connections
from tests.contract.ways import WAYS, Waiting, every, waiting_by

REF: Final = JobRef("docs", "job_000001")
ENDLESS: Final = JobScript(duration=float("inf"))

CALLS: Final[dict[str, Callable[[AgentJobsSession], Any]]] = {
    "create_job": lambda session: session.create_job("Fix it"),
    "get_job": lambda session: session.get_job(REF),
    "wait_for_job": lambda session: session.wait_for_job(REF),
    "run_job": lambda session: session.run_job("Fix it"),
    "enter": lambda session: session.__aenter__(),
}


@pytest.mark.looptime
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("at", [0.0, 0.5, 5.0])
async def test_closed_in_the_middle(at: float, times: int, waiting: Waiting) -> None:
    """Closing, however often and from wherever, ends all that is under way at once, and nothing is sent any more."""
    async with Emulator(script=ENDLESS, latency=1.0) as emulator:
        sockets = connections()
        async with waiting(emulator, policy=every(2)) as (session, wait):
            created = await session.create_job("Fix it")
            calls = [
                asyncio.ensure_future(call)
                for call in (
                    *(wait(created.ref) for _ in range(5)),
                    wait(created),
                    session.create_job("Next"),
                    session.get_job(created),
                )
            ]
            await asyncio.sleep(at)
            began = asyncio.get_running_loop().time()
            await asyncio.gather(*(session.aclose() for _ in range(times)))
            await session.aclose()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        pace = 2.0 if waiting is waiting_by("free") else 0.0  # a free wait learns of it by its next poll
        assert asyncio.get_running_loop().time() - began <= pace + 0.1
        sent = len(emulator.requests)
        await asyncio.sleep(300)
        assert len(emulator.requests) == sent
        assert connections() <= sockets
    *waits, create, _ = ends
    assert {type(end) for end in waits} == {SessionClosedError}
    outcome = CreateOutcome.CREATED if isinstance(create, AgentJob) else getattr(create, "outcome", None)
    assert outcome is (CreateOutcome.CREATED if at > 1 else CreateOutcome.UNKNOWN if at else CreateOutcome.NOT_SENT)


@pytest.mark.looptime
@pytest.mark.parametrize("order", list(itertools.permutations(["session", "other", "emulator"])))
async def test_closed_in_any_order(order: tuple[str, ...], waiting: Waiting) -> None:
    """Server, session and a second session are closed in any order, with waits under way, without a word."""
    async with Emulator(script=ENDLESS) as emulator, waiting(emulator) as (session, wait):
        other = emulator.session(project_id="docs")
        created = await session.create_job("Fix it")
        waits = [asyncio.ensure_future(call) for call in (wait(created), other.wait_for_job(created.ref))]
        await asyncio.sleep(0.1)
        closing = {"session": session.aclose, "other": other.aclose, "emulator": emulator._listener.close}
        for name in order:
            await closing[name]()
        assert [type(end) for end in await asyncio.gather(*waits, return_exceptions=True)] == [SessionClosedError] * 2


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_cancelled_while_closing(loop: str) -> None:
    """However often closing is cancelled, and from whichever turn on, it leaves no socket, task or warning behind."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    said = run_child(
        """
        import asyncio, gc, ssl, sys
        import trustme
        from agentjobs_async import AgentJobsSession
        from tests.contract.sockets import Mute
        from tests.scripted import KEY

        authority = trustme.CA()
        client, serving = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.configure_trust(client)
        authority.issue_cert("127.0.0.1").configure_cert(serving)

        async def life(server, turn):
            session = AgentJobsSession(server.base_url, KEY, project_id="docs", ssl=client)
            calls = [session.create_job("x" * 9_000_000), session.get_job("job_1"), session.wait_for_job("job_2")]
            tasks = [asyncio.ensure_future(call) for call in calls]
            before = server.taken
            while server.taken < before + 3:
                await asyncio.sleep(0.001)
            closing = asyncio.ensure_future(session.aclose())
            for _ in range(1 + turn):  # the first begins it
                await asyncio.sleep(0)
            early = not closing.done()
            while not closing.done():  # as anyio's scopes do
                closing.cancel()
                await asyncio.sleep(0)
            ends = await asyncio.gather(closing, *tasks, return_exceptions=True)
            for _ in range(5):
                await asyncio.sleep(0)
            assert server.clients() == 0, turn
            assert all(isinstance(end, BaseException) for end in ends[1:]), ends
            await session.aclose()
            return early

        async def main():
            async with Mute(serving) as server:
                turn = 0
                while await life(server, turn):
                    turn += 1
                await life(server, turn)
                assert asyncio.all_tasks() == {asyncio.current_task()}
            print(turn > 1)

        if sys.argv[1] == "uvloop":
            import uvloop
            uvloop.run(main())
        else:
            asyncio.run(main())
        gc.collect()
        """,
        loop,
    )
    assert said == "True\n"


@pytest.mark.parametrize("whole_loop", [True, False])
async def test_journal_cancelled_while_closing(tmp_path: Path, *, whole_loop: bool) -> None:
    """However often closing a journal is cancelled, its file is given up only when nothing is written any more.

    So it is when all tasks are cancelled, the journal's own too, as at the end of `asyncio.run`: nothing stays locked.
    """
    path = tmp_path / "run.db"
    journal = await Journal.open(path).__aenter__()
    await journal.add([BatchItem("first", "x")])
    with closing(sqlite3.connect(path, isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        inserting, loop = asyncio.Event(), asyncio.get_running_loop()
        assert journal._opened.database is not None
        event.listen(
            journal._opened.database.backend.engine.sync_engine,
            "before_cursor_execute",
            lambda *_: loop.call_soon_threadsafe(inserting.set),  # from the thread that waits for the disk
        )
        adding = asyncio.ensure_future(journal.add([BatchItem("second", "x")]))
        await inserting.wait()
        await _turns(20)
        leaving = asyncio.ensure_future(journal.aclose())
        await _turns(5)
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


async def _turns(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", CALLS)
async def test_closed(name: str) -> None:
    """A closed session refuses every call with a typed error, without I/O, used before or not."""
    async with Emulator() as emulator:
        for used in (True, False):
            session = emulator.session(project_id="docs")
            if used:
                await session.create_job("Fix it")
            await session.aclose()
            await session.aclose()
            before = emulator.connections
            with pytest.raises(SessionClosedError):
                await CALLS[name](session)
            assert emulator.connections == before


def test_slow_machine() -> None:
    """The children of these tests do not fail because a machine is slow: asyncio's words about that are left out."""
    said = run_child(
        """
        import asyncio

        async def main():
            asyncio.get_running_loop().slow_callback_duration = 0  # s: every callback is slow
            await asyncio.sleep(0)
            print("done")

        asyncio.run(main())
        """
    )
    assert said == "done\n"


@pytest.mark.parametrize("way", WAYS)
def test_whole_life(way: str) -> None:
    """A life in real time, under `-W error -X dev`, ends without a warning and without a leak."""
    said = run_child(
        """
        import asyncio, gc, sys
        from agentjobs_async.testing import Emulator, JobScript
        from tests.contract.ways import every, waiting_by

        async def main():
            script, faults = JobScript(duration=0.2), "ok x3 then reset then close then 503"
            async with Emulator(script=script, faults=faults) as emulator:
                async with waiting_by(sys.argv[1])(emulator, policy=every(0.02)) as (session, wait):
                    jobs = await asyncio.gather(*(session.create_job(str(number)) for number in range(3)))
                    ended = await asyncio.gather(*(wait(job) for job in jobs))
                    late = asyncio.ensure_future(wait(jobs[0].ref))
                    await asyncio.sleep(0)
                    late.cancel()
                    print(sum(job.succeeded for job in ended))

        asyncio.run(main())
        gc.collect()
        """,
        way,
    )
    assert said == "3\n"


@pytest.mark.parametrize("way", WAYS)
def test_forked_child(way: str) -> None:
    """A forked child is refused every call and sends nothing on the parent's sockets; the parent goes on."""
    said = run_child(
        """
        import asyncio, os, sys
        from agentjobs_async import JobRef, SessionClosedError
        from agentjobs_async.testing import Emulator, JobScript
        from tests.contract.ways import every, waiting_by

        async def refused(session, wait):
            count = 0
            calls = [session.create_job("x"), session.get_job("job_1"), session.wait_for_job("job_1"), session.aclose()]
            for call in calls:
                try:
                    await call
                except SessionClosedError as error:
                    count += "forked" in str(error)
            return count

        async def main():
            async with Emulator(script=JobScript(duration=0.3)) as emulator:
                async with waiting_by(sys.argv[1])(emulator, policy=every(0.02)) as (session, wait):
                    job = await session.create_job("Fix it")
                    await session.get_job(job)
                    waiting = asyncio.ensure_future(wait(job))
                    await asyncio.sleep(0.05)
                    child = os.fork()
                    if not child:
                        asyncio._set_running_loop(None)
                        os._exit(asyncio.run(refused(session, wait)))
                    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    print(code, (await waiting).status, dict(emulator.agents_started), emulator.connections <= 3)

        asyncio.run(main())
        """,
        way,
    )
    assert said == "4 completed {'Fix it': 1} True\n"


def test_second_loop() -> None:
    """A session that was used in one loop refuses every call from another with a typed error, and sends nothing."""
    said = run_child(
        """
        import asyncio
        from agentjobs_async import SessionClosedError
        from agentjobs_async.testing import Emulator
        from tests.contract.test_lifecycle import CALLS

        async def refused(call, session):
            try:
                await call(session)
            except SessionClosedError as error:
                return "another event loop" in str(error)

        async def main():
            async with Emulator() as emulator:
                session = emulator.session(project_id="docs")
                await session.create_job("Fix it")
                calls = {**CALLS, "aclose": lambda session: session.aclose()}
                for name, call in calls.items():
                    if not await asyncio.to_thread(lambda: asyncio.run(refused(call, session))):
                        print(name)
                print(len(emulator.requests))
                await session.aclose()

        asyncio.run(main())
        """
    )
    assert said == "1\n"


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


@pytest.mark.parametrize("name", SWEEPS)
def test_small_sweep(name: str) -> None:
    """The table holds on every loop, with eager tasks, and without aiohttp's C extensions, under `-W error -X dev`."""
    words, more = SWEEPS[name]
    if "eager" in words and sys.version_info < (3, 12):
        pytest.skip("eager tasks came with 3.12")
    if "uvloop" in words:
        pytest.importorskip("uvloop")
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-W", "error", "-X", "dev", "-m", "tests.contract.small_sweep", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,  # s; the test itself may take 300
        cwd=ROOT,
        env=environment(**more),
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found.pop("create") == CREATES
    assert set(found.pop("cancelled").values()) == {"SessionClosedError"}
    assert found == dict.fromkeys(WAYS, WAITS)
