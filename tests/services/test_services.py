"""Other services, each reached by its file alone."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_fixed

from agentjobs_async import AgentJobsSession, AuthError, JobFailedError, JobSource, JobStatus, PollPolicy, RejectedError
from agentjobs_async.testing._threads import entered_in_thread
from tests.cli.stage import Child
from tests.services.agents import BREAK, CANCEL
from tests.services.serving import INTEGER_IDS, NESTED_LINK, OTHER_WORDS, SERVICES, Running, SmallService
from tests.until import until

CREATED = datetime(2026, 1, 1, 12, tzinfo=UTC)
QUICKLY = PollPolicy(wait=wait_fixed(0.01))
PROMPTS = ("Write the guide", "Fix the links", "Describe the API", "Translate it", "Tidy up")


@asynccontextmanager
async def reached(
    service: SmallService, directory: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[tuple[Running, AgentJobsSession]]:
    """Run a service; open a session by its file."""
    for name, value in service.environment.items():
        monkeypatch.setenv(name, value)
    async with Running(service, directory) as running:
        settings = {"project_id": "docs", "policy": QUICKLY} | settings
        async with AgentJobsSession.from_toml(running.file, **settings) as session:
            yield running, session


async def test_integer_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integer ids, an own scheme of the key, a list of pull requests."""
    async with reached(INTEGER_IDS, tmp_path, monkeypatch) as (running, session):
        job = await session.run_job(PROMPTS[0], extra={"model": "large"})
        assert (job.id, job.status, job.raw["status"]) == ("1001", JobStatus.COMPLETED, "COMPLETE")
        assert (job.pr_link, job.model) == ("https://code.example/acme/pull/1001", "large")
        assert (job.source, job.created_at) == (JobSource("acme/docs", None), CREATED)
        with pytest.raises(RejectedError, match="extra fields are not permitted"):
            await session.create_job(PROMPTS[1], extra={"size": 3})
    assert running.agents.counts == {PROMPTS[0]: 1}


async def test_nested_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt and a link within other objects, extras within the body, own headers, no project in the paths."""
    async with reached(NESTED_LINK, tmp_path, monkeypatch) as (running, session):
        job = await session.run_job(PROMPTS[0], extra={"repository": "acme/web", "ref": "next"})
        other = await session.run_job(PROMPTS[1])
        assert (job.id, job.status, job.raw["status"]) == ("bg_1001", JobStatus.COMPLETED, "FINISHED")
        assert (job.pr_link, job.source) == ("https://code.example/acme/pull/1001", JobSource("acme/web", "next"))
        assert (other.project_id, other.source, job.created_at) == ("docs", JobSource("acme/main", "main"), CREATED)
    assert running.agents.counts == {PROMPTS[0]: 1, PROMPTS[1]: 1}
    async with reached(NESTED_LINK, tmp_path, monkeypatch, headers={"X-More": "1"}) as (_, session):
        assert (await session.create_job(PROMPTS[2])).status is JobStatus.ACTIVE


async def test_other_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five words, an envelope, ids with a slash, a query, an idempotency key with each create."""
    async with reached(OTHER_WORDS, tmp_path, monkeypatch) as (running, session):
        created = await session.create_job(PROMPTS[0], extra={"branch": "next", "priority": 2})
        job = await session.wait_for_job(created)
        assert (created.status, created.raw["data"]["state"]) == (JobStatus.ACTIVE, "queued")
        assert (job.id, job.status, job.raw["data"]["state"]) == ("docs/1001", JobStatus.COMPLETED, "succeeded")
        assert (job.pr_link, job.model) == ("https://code.example/acme/pull/1001", "large-2")
        assert (job.source, job.created_at) == (JobSource(None, "next"), CREATED)
    (agent,) = running.agents.started
    assert agent.settings == {"workspace": "docs", "branch": "next", "priority": 2}


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
async def test_ends(service: SmallService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that breaks, or is cancelled at the service, has failed; it has no pull request."""
    async with reached(service, tmp_path, monkeypatch) as (_, session):
        ended = await asyncio.gather(*(session.run_job(prompt) for prompt in (BREAK, CANCEL)))
        assert [(job.status, job.pr_link) for job in ended] == [(JobStatus.FAILED, None)] * 2
        with pytest.raises(JobFailedError):
            ended[0].raise_for_status()


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
async def test_a_wrong_key(service: SmallService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the session comes before that of the file's variable; a wrong one is refused."""
    async with reached(service, tmp_path, monkeypatch, api_key="wrong-key") as (running, session):
        with pytest.raises(AuthError):
            await session.create_job(PROMPTS[0])
    assert running.agents.started == []


@contextmanager
def at_the_shell(service: SmallService, directory: Path) -> Iterator[Running]:
    """Run a service on a thread, for commands."""
    with entered_in_thread(Running(service, directory)) as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_a_run(service: SmallService, tmp_path: Path) -> None:
    """`run --service FILE` ends each prompt with its pull request, by one agent each."""
    with at_the_shell(service, tmp_path) as running:
        options = ("--service", str(running.file), "--journal", str(tmp_path / "run.db"), "--project", "docs", "--yes")
        with Child("run", *options, *PROMPTS, env=service.environment) as child:
            assert child.ended() == 0, child.stderr
    assert running.agents.counts == dict.fromkeys(PROMPTS, 1)
    assert {agent.link for agent in running.agents.started} <= set(child.stdout.split())
    assert child.stderr.splitlines()[-1] == "5 completed"
    assert service.environment["SERVICE_KEY"] not in child.stdout + child.stderr


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_a_killed_run(service: SmallService, tmp_path: Path) -> None:
    """After a kill with jobs at work and prompts left, `resume` ends all of them: one agent each, none lost."""
    db = str(tmp_path / "run.db")
    with at_the_shell(service, tmp_path) as running:
        running.agents.held = True
        options = ("--service", str(running.file), "--journal", db, "--project", "docs", "--yes", "--max-active", "2")
        with Child("run", *options, *PROMPTS, env=service.environment) as child:
            asyncio.run(until(lambda: running.agents.looked_at == 2))
            child.process.kill()
            child.ended()
        assert len(running.agents.started) == 2
        running.agents.held = False
        with Child("resume", db, "--service", str(running.file), env=service.environment) as child:
            assert child.ended() == 0, child.stderr
    assert running.agents.counts == dict.fromkeys(PROMPTS, 1)
    assert child.stderr.splitlines()[-1] == "5 completed"
