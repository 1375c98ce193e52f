"""Which service a journal belongs to: jobs of one are never read, nor items sent, at another."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from agentjobs_async import AgentJobsSession, Dialect, InvalidInputError
from agentjobs_async.batch import BatchWorker, Journal, run_batch
from agentjobs_async.batch._service import options_to
from agentjobs_async.durable import DurableJobs
from agentjobs_async.testing import Emulator, JobScript
from tests.batch.stage import FakeSession, items, run

KEY = "sk_0123456789abcdef"
HOST = "https://api.example.com"
OPENED: tuple[Callable[..., AbstractAsyncContextManager[Any]], ...] = (
    lambda session, journal, **how: run_batch(session, items(1), journal=journal, **how),
    BatchWorker,
    DurableJobs,
)
"""The ways to open a run."""


@pytest.fixture
async def emulator() -> AsyncIterator[Emulator]:
    async with Emulator(script=JobScript(duration=0.1), speed=20) as emulator:
        yield emulator


def session_of(address: str, **settings: Any) -> AgentJobsSession:
    return AgentJobsSession(address, KEY, project_id="docs", **settings)


async def begin(journal: Journal, session: AgentJobsSession, **how: Any) -> None:
    """Open a run and leave it, without anything to send."""
    async with session, run_batch(session, (), journal=journal, **how):
        pass


async def refused(journal: Journal, session: AgentJobsSession) -> str:
    with pytest.raises(InvalidInputError) as caught:
        await begin(journal, session)
    return str(caught.value)


async def test_another_service_is_refused(journal: Journal, emulator: Emulator) -> None:
    """Each way to open a run refuses the session of another service, in words, before any request."""
    await begin(journal, session_of(HOST))
    async with session_of(emulator.base_url) as session:
        for opened in OPENED:
            with pytest.raises(InvalidInputError, match=r"belongs to https://api\.example\.com, not to http"):
                await opened(session, journal).__aenter__()
    assert emulator.requests == ()
    assert await journal.rows() == []


async def test_a_trial_sends_nothing_to_a_service(journal: Journal, emulator: Emulator) -> None:
    """What an emulator was to do is not done by a service, even at the same address; the emulator goes on with it."""
    await journal.add(items(1))
    async with emulator.session(project_id="docs") as trial:
        await begin(journal, trial)
    assert "the journal belongs to an emulator, not to http" in await refused(journal, session_of(emulator.base_url))
    assert "the journal belongs to an emulator, not to https" in await refused(journal, session_of(HOST))
    async with Emulator(script=JobScript(duration=0.1), speed=20) as later, later.session() as session:
        assert [str(result.outcome) for result in await run(session, (), journal)] == ["completed"]
    assert emulator.requests == ()


async def test_a_service_whose_journal_an_emulator_gets(journal: Journal, emulator: Emulator) -> None:
    """An emulator does not send what a service was to do."""
    await begin(journal, session_of(HOST))
    assert "belongs to https://api.example.com, not to an emulator" in await refused(journal, emulator.session())


async def test_spellings_of_one_service(journal: Journal) -> None:
    """One address in other letters, with a slash at its end or its default port, is the same service."""
    await begin(journal, session_of(f"{HOST}/own%2fpath"))
    recorded = (await journal.store.meta()).service
    for address in ("HTTPS://API.example.com/own%2Fpath/", f"{HOST}:443/own%2Fpath"):
        await begin(journal, session_of(address))
    assert (await journal.store.meta()).service == recorded


async def test_other_paths_are_another_service(journal: Journal) -> None:
    """Another base path or path template may lead to other jobs, so that it is refused, and named."""
    await begin(journal, session_of(HOST))
    assert "not to https://api.example.com/own," in await refused(journal, session_of(f"{HOST}/own"))
    other = session_of(HOST, dialect=Dialect(get_path="/v3/job/{job_id}"))
    assert "/v3/job/{job_id}" in await refused(journal, other)


async def test_another_port_of_loopback(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """A port of this machine changes from start to start: a run with another one goes on, and a warning says so."""
    await begin(journal, session_of("http://127.0.0.1:8001"))
    assert caplog.messages == []
    with caplog.at_level(logging.WARNING, "agentjobs_async.batch"):
        await begin(journal, session_of("http://127.0.0.1:8002"))
    assert caplog.messages == [
        "the journal was begun with http://127.0.0.1:8001, and continues with http://127.0.0.1:8002, at another port"
    ]
    assert "not to http://localhost:8001" in await refused(journal, session_of("http://localhost:8001"))


async def test_another_port_elsewhere(journal: Journal) -> None:
    """Two ports of another host are two services."""
    await begin(journal, session_of(f"{HOST}:8001"))
    assert f"not to {HOST}:8002" in await refused(journal, session_of(f"{HOST}:8002"))


async def test_another_service_that_is_meant(journal: Journal) -> None:
    """With `other_service`, the journal belongs to the new service from then on."""
    await begin(journal, session_of(HOST))
    for opened in OPENED:
        async with session_of(f"{HOST}/new") as session, opened(session, journal, other_service=True):
            pass
    await begin(journal, session_of(f"{HOST}/new"))
    assert f"belongs to {HOST}/new, not to {HOST}," in await refused(journal, session_of(HOST))
    async with session_of(HOST) as session:
        for opened in OPENED:
            with pytest.raises(InvalidInputError, match="other_service must be"):
                opened(session, journal, other_service="yes")


async def test_a_service_that_is_in_use(journal: Journal) -> None:
    """No run gives the journal another service while another one polls the jobs of the one that it has."""
    async with session_of(HOST) as session, DurableJobs(session, journal):
        with pytest.raises(InvalidInputError, match="other runs use the journal"):
            await begin(journal, session_of(f"{HOST}/new"), other_service=True)
    await begin(journal, session_of(f"{HOST}/new"), other_service=True)


async def test_a_key_in_the_address(journal: Journal) -> None:
    """Neither the journal nor a refusal shows a key that a gateway wants in the path."""
    await begin(journal, session_of(f"{HOST}/{KEY}"))
    assert (
        await journal.store.meta()
    ).service == f"{HOST}/*** /v2/agent/{{project_id}}/job /v2/agent/{{project_id}}/job/{{job_id}}"
    assert KEY not in await refused(journal, session_of(f"{HOST}/{KEY}/own"))
    await begin(journal, AgentJobsSession(f"{HOST}/another-key-01234567", "another-key-01234567"))


async def test_a_session_in_memory(journal: Journal) -> None:
    """A double of a session that names no service runs any journal, and leaves none its own."""
    await run(FakeSession(), items(1), journal)
    assert (await journal.store.meta()).service is None
    await begin(journal, session_of(HOST))
    assert [result.item.key for result in await run(FakeSession(), items(2), journal)] == ["k1"]


def test_options_to_a_service() -> None:
    """A command gets the options that lead to the service which a journal records, and none before its first run."""
    paths = f"{Dialect().create_path} {Dialect().get_path}"
    options = {
        None: [],
        "emulator": ["--emulator"],
        f"{HOST}/own {paths}": ["--base-url", f"{HOST}/own"],
        f"http://127.0.0.1:80 {paths}": ["--base-url", "http://127.0.0.1:80"],
        f"http://inside.example {paths}": ["--base-url", "http://inside.example", "--allow-insecure"],
        f"https://gateway.example/*** {paths}": [],
        f"{HOST}/own /a /b": ["--service", "FILE"],
    }
    assert {service: options_to(service) for service in options} == options
