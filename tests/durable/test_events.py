"""The events of a key, over HTTP as a browser reads them, and what their data and ids are made of."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer
from sqlalchemy import update

from agentjobs_async import AgentJobsSession, InvalidInputError
from agentjobs_async.batch import BatchItem, Journal, Limits, State
from agentjobs_async.batch._database.schema import ITEMS
from agentjobs_async.durable import DurableEntry, DurableJobs, user_key
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.web import job_events, sse_events
from tests.batch.silence import NEVER
from tests.durable.listener import complete
from tests.held import HeldEmulator
from tests.until import until

JOBS = web.AppKey("jobs", DurableJobs)


async def stream(request: web.Request) -> web.StreamResponse:
    """Answer with the events of a key."""
    frames = sse_events(request.app[JOBS], request.query["key"], last_event_id=request.headers.get("Last-Event-ID"))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    with suppress(ConnectionResetError):
        async for frame in frames:
            await response.write(frame)
    return response


@asynccontextmanager
async def served(jobs: DurableJobs) -> AsyncIterator[TestClient[Any, Any]]:
    """Return a block with a client of an application that streams the events of keys."""
    app = web.Application()
    app[JOBS] = jobs
    app.router.add_get("/events", stream)
    async with TestClient(TestServer(app, handler_cancellation=True)) as client:
        yield client


async def events_of(response: ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Read the events of a stream, as a browser does."""
    fields: dict[str, Any] = {}
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = json.loads(value) if name == "data" else value
        else:
            yield fields
            fields = {}


async def test_stream_for_a_user(session: AgentJobsSession, journal: Journal) -> None:
    """Events for a user name the job by the user's own key; a session has no keys of users, and refuses one."""
    async with DurableJobs(session, journal) as jobs:
        key = user_key("ann", "links-1")
        await jobs.submit(key, "Hello", user="ann")
        events = [event async for event in job_events(jobs, key, user="ann")]
        frames = [frame async for frame in sse_events(jobs, key, user="ann")]
        of_all = [event async for event in job_events(jobs, key)]
    assert {event["data"]["key"] for event in events} == {"links-1"}
    assert {event["data"]["key"] for event in of_all} == {key}
    assert all(b'"key": "links-1"' in frame for frame in frames)
    with pytest.raises(InvalidInputError, match="user is for DurableJobs"):
        job_events(session, "job_1", user="ann")


async def test_stream_of_a_key(journal: Journal) -> None:
    """A browser that asks by key sees each state, from planned to the end, in words for anyone."""
    await journal.set_limits(Limits(max_sending=1))
    async with HeldEmulator(script=JobScript(duration=1e6), speed=20) as emulator:
        async with emulator.session(project_id="docs") as session, DurableJobs(session, journal) as jobs:
            await jobs.submit("first", "long", wait_for_create=False)
            await emulator.arrived.wait()
            await jobs.submit("k", "long", context={"chat": 7}, wait_for_create=False)
            async with served(jobs) as client, client.get("/events", params={"key": "k"}) as response:
                events = events_of(response)
                planned = await anext(events)
                assert (planned["event"], planned["data"]["state"]) == ("job", "planned")
                assert (planned["data"]["message"], planned["data"]["job"]) == ("The job waits to be sent.", None)
                emulator.release.set()
                await until(lambda: session.stats().jobs == 2)
                await complete(emulator)
                *_, last = [event async for event in events]
                assert (last["event"], last["data"]["state"]) == ("job_end", "completed")
                assert last["data"]["job"]["status"] == "completed"
                assert last["data"]["message"] == "The agent has completed the job."


async def test_last_event_id(emulator: Emulator, session: AgentJobsSession, location: str) -> None:
    """A state has the same id after a restart: the one that the browser has is not sent again, but for an end."""
    async with Journal.open(location, owner_timeout=NEVER) as journal, DurableJobs(session, journal) as jobs:
        await jobs.submit("k", "long")
        async with served(jobs) as client, client.get("/events", params={"key": "k"}) as response:
            active = await anext(events_of(response))
    async with Journal.open(location, owner_timeout=NEVER) as journal, DurableJobs(session, journal) as jobs:
        async with served(jobs) as client:
            headers = {"Last-Event-ID": active["id"]}
            async with client.get("/events", params={"key": "k"}) as response:
                assert await anext(events_of(response)) == active
            async with client.get("/events", params={"key": "k"}, headers=headers) as response:
                await complete(emulator)
                (end,) = [event async for event in events_of(response)]
            assert (end["event"], end["data"]["state"]) == ("job_end", "completed")
            headers = {"Last-Event-ID": end["id"]}
            async with client.get("/events", params={"key": "k"}, headers=headers) as response:
                assert [event async for event in events_of(response)] == [end]


async def test_client_that_leaves(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """Once the only client of a key has left nothing looks any more, and the job is followed as before."""
    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "long")
        async with served(jobs) as client:
            async with client.get("/events", params={"key": "k"}) as response:
                await anext(events_of(response))
                assert jobs._updates._watched
            await until(lambda: not jobs._updates._watched)
            await complete(emulator)
            async with client.get("/events", params={"key": "k"}) as response:
                *_, last = [event async for event in events_of(response)]
            assert last["event"] == "job_end"


async def test_errors(session: AgentJobsSession, file_journal: Journal) -> None:
    """An unknown key, a timeout and a closing are the event `job_error`, with the answer for end users."""
    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "long")

        async def last(key: str, **settings: Any) -> Any:
            *_, event = [event async for event in job_events(jobs, key, **settings)]
            assert (event["event"], event["id"]) == ("job_error", None)
            return event["data"]["error"]

        assert await last("other") == "not_found"
        assert await last("k", timeout=0.05) == "not_ended"
        events = job_events(jobs, "k")
        assert (await anext(events))["event"] == "job"
        await jobs.aclose()
        assert [event["data"]["error"] async for event in events] == ["restarting"]
        assert await last("k") == "restarting"


async def test_unknown_is_no_end(emulator: Emulator, session: AgentJobsSession, file_journal: Journal) -> None:
    """An unknown job is the event `job`, and its end comes once it is settled."""
    await emulator.inject("500 agent=yes on=create")
    async with DurableJobs(session, file_journal) as jobs:
        await jobs.submit("k", "long")
        events = job_events(jobs, "k")
        unknown = await anext(events)
        assert (unknown["event"], unknown["data"]["state"], unknown["data"]["job"]) == ("job", "unknown", None)
        assert unknown["data"]["message"].startswith("The job may have been started.")
        await jobs.abandon("k")
        assert [(event["event"], event["data"]["state"]) async for event in events] == [("job_end", "abandoned")]


async def test_change_that_is_not_shown(session: AgentJobsSession, file_journal: Journal) -> None:
    """That a planned job is held back is an event; another reason for that, which end users do not see, is none."""
    await file_journal.add([BatchItem("k", "Hello", "docs")])
    async with DurableJobs(session, file_journal) as jobs, jobs.updates("k") as changes:

        async def held_back(error: str) -> None:
            await file_journal.store.write(update(ITEMS).values(error=error))
            while (await anext(changes)).error != error:
                pass

        async def read() -> list[str]:
            return [event["data"]["message"] async for event in job_events(jobs, "k")]

        reading = asyncio.create_task(read())
        await until(lambda: len(jobs._updates._readers["k"]) == 2)
        await held_back("HTTP 401")
        await held_back("HTTP 403")
        await jobs.abandon("k")
        assert await reading == [
            "The job waits to be sent.",
            "The job waits, and is sent as soon as that is possible.",
            "The job was withdrawn before it was started.",
        ]


def test_what_end_users_see() -> None:
    """An entry as a document has a sentence for each state, and nothing that is meant for operators."""
    for state in State:
        entry = DurableEntry("k", state, context={"chat": "secret"}, error="secret", extra={"branch": "secret"})
        document = entry.to_dict()
        assert "secret" not in json.dumps(document)
        assert document["message"].startswith("The ")
        assert {"context", "extra", "error", "seen_at"} & set(document) == set()
    assert "as soon as" in DurableEntry("k", State.PLANNED, error="HTTP 401").to_dict()["message"]
