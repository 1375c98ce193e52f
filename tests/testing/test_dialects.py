"""The emulator of another service, reached by a real session."""

import asyncio
import json
from typing import Any

import pytest

from agentjobs_async import AuthError, CreateOutcomeUnknownError, Dialect, InvalidInputError, JobStatus
from agentjobs_async.testing import Emulator, ForeignOrigin, JobScript, ReceivedRequest
from tests.testing.wire import ask, request
from tests.until import until

ELSEWHERE = Dialect(
    create_path="/api/runs?workspace={project_id}",
    get_path="/api/runs/{job_id}?workspace={project_id}&view=full",
    key_header="X-API-Key",
    key_format="{key}",
    body={"input": {"task": "{prompt}", "branch": "{extra.branch}"}, "kind": "code"},
    fields={
        "id": "data.id",
        "status": "data.state",
        "pr_link": "links.0.href",
        "source.repository": "repo",
        "created_at": "data.times.created",
    },
    integer_ids=True,
    statuses={"queued": JobStatus.ACTIVE, "succeeded": JobStatus.COMPLETED, "errored": JobStatus.FAILED},
)
IDEMPOTENT = Dialect(idempotency_header="Idempotency-Key")


@pytest.mark.looptime
async def test_a_whole_run() -> None:
    """A session by the emulator's own dialect creates a job, waits for it, and has every field."""
    async with Emulator(dialect=ELSEWHERE) as emulator, emulator.session(project_id="a/b") as session:
        job = await session.run_job("Write", extra={"branch": "next", "turns": 3})
    (started,) = emulator.jobs.values()
    assert (job.id, job.status, job.project_id) == (started.job_id, JobStatus.COMPLETED, "a/b")
    assert (job.raw["data"]["id"], job.raw["data"]["state"]) == (int(job.id), "succeeded")
    assert job.created_at == started.created_at.replace(microsecond=started.created_at.microsecond // 1000 * 1000)
    assert job.pr_link == f"https://code.example/acme/a%2Fb/pull/{job.id}"
    assert job.source is not None
    assert (job.source.repository, job.source.ref) == ("acme/a/b", "main")
    assert (started.prompt, started.project_id) == ("Write", "a/b")
    assert started.extra == emulator.requests[0].extra == {"branch": "next", "turns": 3}
    assert [record.job_id for record in emulator.requests][:2] == [None, job.id]
    assert emulator.requests[1].extra == {}
    assert emulator.keys_seen == {emulator.api_key}
    assert emulator.api_key not in repr(emulator.requests)


@pytest.mark.looptime
async def test_faults() -> None:
    """Faults and scripts meet the jobs of another service as they do the usual one's."""
    async with Emulator(dialect=ELSEWHERE) as emulator, emulator.session(project_id="docs") as session:
        emulator.script(JobScript(outcome="failed"), project_id="docs", prompt="break")
        await emulator.inject("missing:status on=create", prompt="bad", project_id="docs")
        await emulator.inject("document prLink=https://code.example/other on=get forever", prompt="link")
        assert (await session.run_job("break")).status is JobStatus.FAILED
        with pytest.raises(CreateOutcomeUnknownError, match="status is missing"):
            await session.create_job("bad", retry=False)
        assert (await session.run_job("link")).pr_link == "https://code.example/other"


async def test_refusals() -> None:
    """Another body than the dialect's is refused with what is wrong, and another key with 401."""
    async with Emulator(dialect=ELSEWHERE) as emulator:
        key = f"X-API-Key: {emulator.api_key}"
        body = json.dumps({"input": {"task": "x"}, "kind": "text"}).encode()
        reply = await ask(emulator, request(emulator, "POST", "/api/runs?workspace=a", body, key))
        assert (reply.status, reply.document) == (400, {"error": 'kind must be "code", not "text"'})
        async with emulator.session(project_id="a", dialect=Dialect(create_path=ELSEWHERE.create_path)) as session:
            with pytest.raises(AuthError):
                await session.create_job("x")
    assert emulator.jobs == {}


@pytest.mark.looptime
async def test_reads_without_a_project() -> None:
    """Where a path names no project, faults and records have the job's own."""
    dialect = Dialect(create_path="/jobs", get_path="/jobs/{job_id}", body={"in": "{project_id}", "do": "{prompt}"})
    async with Emulator(dialect=dialect) as emulator, emulator.session(project_id="docs") as session:
        await emulator.inject("document model=small on=get forever", project_id="docs")
        job = await session.run_job("x")
    assert job.model == "small"
    assert {record.project_id for record in emulator.requests} == {"docs"}


async def test_a_delayed_create() -> None:
    """While a create is not answered, its repetition gets 409; once its client is gone, the same job."""

    def sent(emulator: Emulator) -> bytes:
        return request(emulator, "POST", "/v2/agent/docs/job", b'{"prompt": "x"}', "Idempotency-Key: a")

    async def repeated(emulator: Emulator) -> Any:
        return await ask(emulator, sent(emulator))

    async with Emulator(dialect=IDEMPOTENT, faults="hang on=create") as emulator:
        reader, writer = await asyncio.open_connection(emulator.host, emulator.port)
        writer.write(sent(emulator))
        await until(lambda: bool(emulator.jobs))
        assert (await repeated(emulator)).status == 409
        writer.close()
        while (reply := await repeated(emulator)).status == 409:
            pass
        assert (reply.status, reply.document["id"]) == (201, next(iter(emulator.jobs)))
        assert await reader.read() == b""
    assert emulator.agents_started == {"x": 1}


@pytest.mark.looptime
async def test_a_session_repeats() -> None:
    """A create whose answers are lost is repeated by the session with its key, and has one agent."""
    plan = "reset on=create then 500 on=create then hang:body on=create for=1"
    async with Emulator(dialect=IDEMPOTENT, faults=plan) as emulator, emulator.session(project_id="docs") as session:
        job = await session.create_job("x")
    assert [job.id] == list(emulator.jobs)
    assert emulator.agents_started == {"x": 1}
    creates = [record for record in emulator.requests if record.method == "POST"]
    assert len(creates) > 2
    assert len({record.headers["Idempotency-Key"] for record in creates}) == 1


async def test_foreign_origin() -> None:
    """The foreign origin's forged job is one of the dialect."""
    async with ForeignOrigin(dialect=ELSEWHERE) as foreign:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(foreign.url.rsplit(":", 1)[1]))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-API-Key: k3y\r\nConnection: close\r\n\r\n")
        document = json.loads((await reader.read()).split(b"\r\n\r\n")[1])
        writer.close()
    assert document == {"data": {"id": 1, "state": "succeeded"}, "links": [{"href": "https://foreign.example/pull/1"}]}
    assert "k3y" not in repr(foreign.requests)


def test_received_request() -> None:
    """A request has no further fields unless it is a create that brings some."""
    record = ReceivedRequest(method="GET", target="/", headers={}, body=b"", at=0.0, connection=1)
    assert record.extra == {}


def test_a_wrong_dialect() -> None:
    """A dialect that can't be emulated is refused when the emulator is made."""
    with pytest.raises(InvalidInputError, match="dialect must be of type Dialect"):
        Emulator(dialect="service.toml")  # type: ignore[arg-type]  # what is tested
