"""The README's samples run as they stand, against the emulator."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import ClientSession, web

from agentjobs_async import AgentJob, AgentJobsError, AgentJobsSession, JobRef, WaitTimeoutError
from agentjobs_async.batch import BatchItem, Journal, State, run_batch
from agentjobs_async.testing import Emulator, Fault, JobScript

README = Path(__file__).parent.parent / "README.md"
SAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
LONGEST = 12


@pytest.fixture
async def emulator(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Emulator]:
    async with Emulator() as emulator:
        emulator.script(JobScript(duration=0.05))
        monkeypatch.setenv("AGENTJOBS_BASE_URL", emulator.base_url)
        monkeypatch.setenv("AGENTJOBS_API_KEY", emulator.api_key)
        monkeypatch.setenv("AGENTJOBS_PROJECT_ID", "docs")
        yield emulator


def names_of(*words: str) -> dict[str, Any]:
    """Run the sample that holds `words`, after the imports that all recipes share, and give its names."""
    names: dict[str, Any] = {"__name__": "sample"}
    recipes = next(sample for sample in SAMPLES if "from aiohttp import web" in sample)
    sample = next(sample for sample in SAMPLES if all(word in sample for word in words))
    exec(recipes + sample.replace("asyncio.run(main())", ""), names)  # noqa: S102 - the README is what is tested
    return names


def test_samples_fit_one_glance() -> None:
    """No sample of the README is longer than twelve lines."""
    assert len(SAMPLES) >= 9
    assert [sample for sample in SAMPLES if len(sample.splitlines()) > LONGEST] == []


async def test_first_screen(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The first sample creates one job, waits for it, and prints its end."""
    await names_of("AgentJobsSession() as session", "asyncio.run")["main"]()
    assert capsys.readouterr().out.startswith("completed http")
    assert emulator.agents_started["Document the v2 endpoints"] == 1


async def test_waiting(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of waiting shows each change and gives the job."""
    async with emulator.session(project_id="docs") as session:
        job = await session.create_job("Wait for me")
        await names_of("WaitTimeoutError", "on_update")["wait"](session, job)
    assert capsys.readouterr().out.splitlines() == [f"{job.id} active", f"{job.id} completed"]


async def test_many(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of many jobs prints each as it ends."""
    async with emulator.session(project_id="docs") as session:
        jobs = [await session.create_job(f"Job {number}") for number in range(3)]
        await names_of("as_completed(jobs")["report"](session, jobs)
    printed = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in printed) == sorted(job.ref.to_token() for job in jobs)


async def test_follow(emulator: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of one job's changes prints them until the end."""
    async with emulator.session(project_id="docs") as session:
        job = await session.create_job("Follow me")
        await names_of("session.updates")["follow"](session, job.ref)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["active", "completed"]


@pytest.mark.usefixtures("emulator")
async def test_policy() -> None:
    """The sample of a policy makes a session."""
    session = names_of("PollPolicy(wait")["session"]
    assert isinstance(session, AgentJobsSession)


async def test_own_get_job(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of an own get-job waits without a session."""
    await names_of("read_from_my_cache")["main"]()
    assert capsys.readouterr().out == "True\n"


async def test_web_backend(emulator: Emulator) -> None:
    """The web backend answers 202 with a token, and takes up the wait from the token after a restart."""
    names = names_of("async def lifespan")

    async def call(method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        app = web.Application(middlewares=[names_of("async def answered")["answered"]])
        app.cleanup_ctx.append(names["lifespan"])
        app.add_routes([web.post("/jobs", names["create"]), web.get("/jobs", names["result"])])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with ClientSession() as client:
                address = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
                async with client.request(method, address, **options) as response:
                    return response.status, await response.json()
        finally:
            await runner.cleanup()

    status, document = await call("POST", "/jobs", data={"prompt": "From a request"})
    assert status == web.HTTPAccepted.status_code
    status, document = await call("GET", "/jobs", params={"token": document["token"]})
    assert (status, document["status"]) == (web.HTTPOk.status_code, "completed")
    assert emulator.agents_started["From a request"] == 1
    assert (await call("POST", "/jobs", data={}))[0] == web.HTTPBadRequest.status_code
    assert (await call("GET", "/jobs", params={"token": "garbage"}))[0] == web.HTTPBadRequest.status_code
    assert (await call("GET", "/jobs"))[0] == web.HTTPBadRequest.status_code
    await emulator.inject("500", prompt="Unlucky")
    status, document = await call("POST", "/jobs", data={"prompt": "Unlucky"})
    assert (status, document["outcome"]) == (web.HTTPBadGateway.status_code, "unknown")


async def test_answer_to_a_long_wait() -> None:
    """The web backend's middleware answers 202 again to a wait that did not end in time."""

    async def handler(_request: object) -> web.Response:
        raise WaitTimeoutError(JobRef("docs", "job_1"), None, None, 1, 25.0)

    response = await names_of("async def answered")["answered"](None, handler)
    assert response.status == web.HTTPAccepted.status_code


@pytest.mark.usefixtures("emulator")
async def test_hooks(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample of a hook gives one line per wait and per failed create."""
    async with names_of("def measure")["session"] as session:
        await session.run_job("Measure me")
        with pytest.raises(AgentJobsError):
            await session.create_job("Measure me", project_id="..", timeout=1)
    printed = capsys.readouterr().out
    assert printed.startswith("wait_seconds ")
    assert printed.endswith(" completed\n")


async def test_fan_out(emulator: Emulator) -> None:
    """In the fan-out, a failing create costs nobody else's job."""
    async with emulator.session(project_id="docs") as session:
        results = await names_of("async def run_all")["run_all"](session, ["One", " ", "Two"])
    assert [isinstance(result, AgentJob) for result in results] == [True, False, True]
    assert isinstance(results[1], AgentJobsError)


async def test_bot(emulator: Emulator) -> None:
    """The bot tells its user the token, and later the end."""
    replies: list[str] = []

    async def reply(text: str) -> None:
        replies.append(text)
        await asyncio.sleep(0)

    async with emulator.session(project_id="docs") as session:
        await names_of("async def on_message")["on_message"](session, "Hello", reply)
    assert JobRef.from_token(replies[0].removeprefix("started as ")).project_id == "docs"
    assert replies[1].startswith("completed: http")


async def test_batch_sample(
    emulator: Emulator, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample of a batch runs every item once, and does nothing the second time."""
    monkeypatch.chdir(tmp_path)
    document = names_of("run_batch")["document"]
    async with emulator.session(project_id="docs") as session:
        await document(session, ["one", "two"])
        assert sorted(line.split()[:2] for line in capsys.readouterr().out.splitlines()) == [
            ["one", "completed"],
            ["two", "completed"],
        ]
        await document(session, ["one", "two"])
    assert capsys.readouterr().out == ""
    assert emulator.agents_started == {"Document one": 1, "Document two": 1}


async def test_journal_sample(emulator: Emulator, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The sample of a journal lists what is unknown, settles it, and plans what failed once more."""
    for prompt in ("Document page-7", "Document page-8"):
        await emulator.inject(Fault.parse("500"), prompt=prompt)
    emulator.script(JobScript(outcome="failed"), prompt="Document page-9")
    path = tmp_path / "run.db"
    items = [BatchItem(key, f"Document {key}") for key in ("page-7", "page-8", "page-9")]
    async with emulator.session(project_id="docs") as session, Journal.open(path) as journal:
        async with run_batch(session, items, journal=journal) as results:
            assert {result.outcome async for result in results} == {"unknown", "failed"}
    await names_of("look_after")["look_after"](str(path))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["page-7", "page-8", "page-9"]
    assert lines[2] == "page-9 is tried again as page-9#2"
    async with Journal.open(path, read_only=True) as journal:
        rows = {row.key: row for row in await journal.rows()}
    assert [str(rows[key].state) for key in ("page-7", "page-8", "page-9", "page-9#2")] == [
        "created",
        "planned",
        "failed",
        "planned",
    ]
    assert rows["page-7"].job_id == "job_42"


@pytest.mark.looptime
async def test_plugin_sample() -> None:
    """The sample of the plugin's fixtures passes, an hour long and over in no time."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        names = names_of("test_an_hour_with_an_outage")
        assert await names["test_an_hour_with_an_outage"](emulator, session) is None


async def test_emulator_sample() -> None:
    """The sample of testing with the emulator passes."""
    names = names_of("test_my_bot")
    assert await names["test_my_bot"]() is None


async def test_fleet_sample(emulator: Emulator, database: str) -> None:
    """The sample of many machines hands out a batch, and a worker works it off."""
    names = names_of("run_worker", "FleetLimits")
    await names["hand_out"](database, ["one", "two"])
    async with emulator.session(project_id="docs") as session:
        working = asyncio.ensure_future(names["work"](session, database))
        async with Journal.open(database, read_only=True) as journal, asyncio.timeout(30):
            while (await journal.counts())[State.COMPLETED] < 2:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.05)
        working.cancel()
        await asyncio.wait([working])
    assert emulator.agents_started == {"Document one": 1, "Document two": 1}


@pytest.fixture
async def chunk(database: str) -> dict[str, Any]:
    """The shared coroutine of the recipes for engines, and a journal of three items."""
    async with Journal.open(database) as journal:
        await journal.add([BatchItem(f"k{number}", f"p{number}") for number in range(3)])
    return {**names_of("async def run_chunk"), "url": database, "keys": ["k0", "k1", "k2"]}


def recipe(chunk: dict[str, Any], *words: str, **stand_ins: ModuleType) -> dict[str, Any]:
    """Run a recipe beside the shared coroutine; a stand-in has of its engine just what the recipe takes from it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in stand_ins.items():
            full = name.replace("_", ".")
            parents = full.split(".")
            for depth in range(1, len(parents)):
                patch.setitem(sys.modules, ".".join(parents[:depth]), ModuleType(parents[0]))
            patch.setitem(sys.modules, full, module)
        sample = next(sample for sample in SAMPLES if all(word in sample for word in words))
        names = dict(chunk)
        exec(sample, names)  # noqa: S102 - the README is what is tested
    return names


def stand_in(**names: Any) -> ModuleType:
    module = ModuleType("stand_in")
    vars(module).update(names)
    return module


async def test_dask_recipe(emulator: Emulator, chunk: dict[str, Any]) -> None:
    """The recipe for Dask maps the coroutine over chunks of keys, and gives what has not ended."""

    class Client:
        def map(self, function: Any, *columns: Any, **settings: Any) -> list[Any]:
            assert settings == {"pure": False, "retries": 10}
            return [function(*row) for row in zip(*columns, strict=True)]

        async def gather(self, futures: list[Any]) -> list[Any]:
            return list(await asyncio.gather(*futures))

    names = recipe(chunk, "run_on_dask", dask_distributed=stand_in(Client=Client))
    assert await names["run_on_dask"](Client(), chunk["url"], chunk["keys"]) == []
    assert emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}


async def test_temporal_recipe(emulator: Emulator, chunk: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe for Temporal gives signs of life while it runs, and fails when something has not ended."""
    beats: list[int] = []
    activity = stand_in(defn=lambda function: function, heartbeat=lambda: beats.append(1))
    names = recipe(chunk, "agentjobs_chunk", temporalio=stand_in(activity=activity))
    await names["agentjobs_chunk"](chunk["url"], chunk["keys"])
    assert emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}

    async def left(*_: object) -> list[str]:
        await beaten.wait()
        return ["k0"]

    beaten = asyncio.Event()
    vars(activity)["heartbeat"] = beaten.set
    names["run_chunk"] = left
    wait = asyncio.wait
    monkeypatch.setattr(asyncio, "wait", lambda tasks, timeout: wait(tasks, timeout=timeout / 1000))
    with pytest.raises(RuntimeError, match="1 have not ended"):
        await names["agentjobs_chunk"](chunk["url"], chunk["keys"])


async def test_airflow_recipe(emulator: Emulator, chunk: dict[str, Any]) -> None:
    """The recipe for Airflow gives one event with what has not ended, and tells how the trigger is made again."""
    names = recipe(
        chunk,
        "ChunkTrigger",
        airflow_triggers_base=stand_in(BaseTrigger=type("BaseTrigger", (), {}), TriggerEvent=dict),
    )
    trigger = names["ChunkTrigger"](chunk["url"], chunk["keys"])
    assert trigger.serialize() == ("my_triggers.ChunkTrigger", {"url": chunk["url"], "keys": chunk["keys"]})
    assert [event async for event in trigger.run()] == [{"left": []}]
    assert emulator.agents_started == {"p0": 1, "p1": 1, "p2": 1}
