"""Properties: headers, answers and ids that nobody thought of."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, Final

import looptime
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    HttpTimeouts,
    JobRef,
    RejectedError,
)
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.tables import is_rejection
from tests.ids import LEGAL_IDS
from tests.scripted import Reply, Scripted, http

GOOD: Final = {
    "id": "job_1",
    "status": "completed",
    "source": {"repository": "acme/docs", "ref": "main"},
    "model": "agent-large-1",
    "prLink": "https://code.example/acme/docs/pull/1",
    "createdAt": "2025-11-20T18:00:00.000Z",
    "archivedAt": None,
}
TEXT: Final = json.dumps(GOOD).encode()


def virtual(work: Coroutine[Any, Any, Any]) -> Any:
    """Run something in a loop of its own whose time is virtual."""
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        return runner.run(work)


async def _answers(body: bytes, *headers: tuple[str, str], status: int = 200) -> tuple[object, object]:
    """Return what a read and a create make of an answer."""
    answer = Reply(http(status, body, *headers), "fin")
    async with Scripted(answer) as server, server.session(timeouts=HttpTimeouts(request=3)) as session:
        loop = asyncio.get_running_loop()
        began = loop.time()
        ends = await _end(session.get_job("job_1")), await _end(session.create_job("Fix it", timeout=3))
        assert loop.time() - began <= 6.5
        assert len(server.requests) == 2
        return ends


async def _end(call: Coroutine[Any, Any, AgentJob]) -> object:
    try:
        return await call
    except AgentJobsError as error:
        return error


HEADER_NAMES: Final = (
    "Content-Encoding",
    "Content-Length",
    "Transfer-Encoding",
    "Retry-After",
    "Date",
    "Location",
    "Content-Type",
    "Connection",
    "Set-Cookie",
    "X-Request-Id",
    "Upgrade",
    "Trailer",
    "Keep-Alive",
)
HEADER_VALUES: Final = (
    st.text(st.characters(exclude_characters="\r\n", max_codepoint=255), max_size=30)
    | st.sampled_from(["gzip", "deflate", "br", "chunked", "gzip, chunked", "0", "-1", "1e9", "close", "h2c", "*"])
    | st.integers(-5, 10**30).map(str)
)


@given(
    st.lists(st.tuples(st.sampled_from(HEADER_NAMES), HEADER_VALUES), min_size=1, max_size=4),
    st.sampled_from([200, 201, 204, 206, 302, 400, 404, 500, 503]),
)
def test_mutated_headers(headers: list[tuple[str, str]], status: int) -> None:
    """Headers of any kind give a job or an error of ours, in time; a create's claim keeps to the status."""
    read, created = virtual(_answers(TEXT, *headers, status=status))
    assert isinstance(read, AgentJob | AgentJobsError)
    if isinstance(read, AgentJob):
        assert read.raw == GOOD
    outcome = CreateOutcome.CREATED if isinstance(created, AgentJob) else getattr(created, "outcome", None)
    allowed = {CreateOutcome.UNKNOWN, CreateOutcome.REJECTED if is_rejection(status) else CreateOutcome.CREATED}
    assert outcome in (allowed if status < 500 else {CreateOutcome.UNKNOWN})
    if isinstance(created, RejectedError):
        assert created.status == status


@settings(max_examples=60)
@given(st.binary(max_size=200), st.booleans())
@example(b"HTTP/1.1 200 OK\r\n\r\n", True)
@example(b"HTTP/1.1 100 Continue\r\n\r\n" * 5, False)
@example(b"HTTP/2 200\r\n\r\n", False)
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}", True)
def test_random_answers(data: bytes, hangs: bool) -> None:  # noqa: FBT001 - hypothesis passes its draws as they come
    """Bytes that are hardly HTTP give an error of ours, in time, and a create is unknown."""

    async def ends() -> tuple[object, object]:
        reply = Reply(data, "hang" if hangs else "fin")
        async with Scripted(reply) as server, server.session(timeouts=HttpTimeouts(request=3)) as session:
            return await _end(session.get_job("job_1")), await _end(session.create_job("Fix it", timeout=3))

    read, created = virtual(ends())
    assert isinstance(read, AgentJobsError)
    assert isinstance(created, CreateOutcomeUnknownError)


@settings(max_examples=60)
@given(LEGAL_IDS, LEGAL_IDS)
def test_random_ids(project_id: str, job_id: str) -> None:
    """Any legal id is one segment of the raw request, of the same depth, with no query, to the same host."""

    async def targets() -> list[Any]:
        async with Emulator(script=JobScript(duration=0, job_id=job_id)) as emulator:
            async with emulator.session(project_id=project_id) as session:
                job = await session.create_job("Fix it")
                assert job.ref == JobRef(project_id, job_id)
                assert (await session.wait_for_job(job.ref)).succeeded
            assert {request.headers["Host"] for request in emulator.requests} == {f"127.0.0.1:{emulator.port}"}
            return list(emulator.requests)

    if len(project_id.encode()) + len(job_id.encode()) > 2500:  # percent-encoded, more than a server reads
        return
    post, get = virtual(targets())
    assert (post.target.count("/"), get.target.count("/")) == (4, 5)
    assert not {"?", "#", " "} & set(post.target + get.target)
    assert (post.project_id, get.project_id, get.job_id) == (project_id, project_id, job_id)
