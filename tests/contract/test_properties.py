"""Properties: documents, headers, ids and fault plans that nobody thought of."""

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
    JobSource,
    JobStatus,
    ProtocolError,
    RejectedError,
)
from agentjobs_async.testing import Emulator, JobScript
from tests.contract.tables import is_rejection
from tests.contract.ways import WAYS, gets
from tests.ids import LEGAL_IDS
from tests.polled import every
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

LEAVES: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["job_1", "completed", "active", "https://x.example/", "2025-11-20T18:00:00Z", "9" * 30])
)
ANYTHING: Final = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
DOCUMENTS: Final = st.builds(
    lambda changed, left_out: {name: value for name, value in (GOOD | changed).items() if name not in left_out},
    st.dictionaries(st.sampled_from(sorted(GOOD)) | st.text(max_size=8), ANYTHING, max_size=4),
    st.sets(st.sampled_from(sorted(GOOD)), max_size=1),
)


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


def _check_job(job: AgentJob, document: dict[str, Any]) -> None:
    """Check that nothing of a job was made up."""
    assert job.id == document["id"]
    assert job.status == document["status"]
    assert isinstance(job.status, JobStatus) == (document["status"] in set(JobStatus))
    assert job.model == (document.get("model") if isinstance(document.get("model"), str) else None)
    assert job.pr_link in {None, document.get("prLink")} if isinstance(document.get("prLink"), str) else not job.pr_link
    source = document.get("source")
    assert isinstance(job.source, JobSource) == isinstance(source, dict)
    for moment in (job.created_at, job.archived_at):
        assert moment is None or moment.utcoffset() is not None
    assert job.raw == document


@given(DOCUMENTS)
def test_mutated_documents(document: dict[str, Any]) -> None:
    """A document changed anyhow gives a job with nothing made up, or an error of ours."""
    read, created = virtual(_answers(json.dumps(document).encode()))
    usable = all(isinstance(document.get(name), str) and document[name] for name in ("id", "status"))
    sound = "NaN" not in json.dumps(document) and "Infinity" not in json.dumps(document)
    if isinstance(read, AgentJob):
        assert usable
        assert document["id"] == "job_1"
        _check_job(read, document)
    else:
        assert isinstance(read, ProtocolError)
        assert not usable or not sound or document["id"] != "job_1"
    if isinstance(created, AgentJob):
        assert usable
        _check_job(created, document)
        assert created.ref.job_id == created.id
    else:
        assert isinstance(created, CreateOutcomeUnknownError)


@given(
    st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(0, 20), st.binary(max_size=12)), min_size=1, max_size=4)
)
@example([(0, 0, b"\xef\xbb\xbf")])
@example([(len(TEXT), 0, b"\x00")])
def test_mutated_bytes(cuts: list[tuple[int, int, bytes]]) -> None:
    """A document whose bytes were changed gives a job that its JSON bears out, or an error of ours."""
    body = TEXT
    for start, length, put in cuts:
        body = body[:start] + put + body[start + length :]
    read, created = virtual(_answers(body))
    assert isinstance(read, AgentJob | ProtocolError)
    assert isinstance(created, AgentJob | CreateOutcomeUnknownError)
    for job in (read, created):
        if isinstance(job, AgentJob):
            _check_job(job, json.loads(body.decode("utf-8-sig")))


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


# A plan's fate follows from its steps alone: what passes, what is bad, and what ends a wait. Once a poll has shown the
# job, all of it is ridden out: no plan lasts as long as the grace.
PASSING: Final = ("500", "503 retry-after=1", "429", "408", "reset", "close:body", "hang", "short")
BAD: Final = ("body:html", "document id=other", "gzip:cut", "204", "missing:status", "body:twice")
ENDING: Final = {"401": "AuthError", "400": "RejectedError", "410": "NotFoundError", "302": "RejectedError"}
PLANS: Final = st.lists(st.sampled_from((*PASSING, *BAD, *ENDING, "ok")), max_size=7)


def _fate(plan: list[str]) -> tuple[str, int]:
    """Return how a wait under a plan ends, and after how many polls, by the rules of the contract."""
    bad = 0
    for polls, fault in enumerate(plan, 1):
        if fault == "ok":
            break
        bad = bad + 1 if fault in BAD else 0
        if fault in ENDING:
            return ENDING[fault], polls
        if bad == 3:
            return "ProtocolError", polls
    return "completed", len(plan) + 1


async def _fates(plans: list[list[str]], way: str) -> list[tuple[str, int]]:
    settings = {"policy": every(1, max_bad_answers=3), "timeouts": HttpTimeouts(request=2)}
    async with Emulator() as emulator, WAYS[way](emulator, **settings) as (session, wait):
        jobs = [await session.create_job(str(number)) for number in range(len(plans))]
        for job, plan in zip(jobs, plans, strict=True):
            steps = ["document status=active" if fault == "ok" else fault for fault in plan]
            steps.append("document status=completed")
            await emulator.inject(" then ".join(f"{step} on=get" for step in steps), job_id=job.id)
        ends = await asyncio.gather(*(_end(wait(job.ref, timeout=300)) for job in jobs))
        await asyncio.sleep(100)
        asked = [request.job_id for request in gets(emulator)]
    names = [str(end.status) if isinstance(end, AgentJob) else type(end).__name__ for end in ends]
    assert all(end.id == job.id for end, job in zip(ends, jobs, strict=True) if isinstance(end, AgentJob))
    return [(name, asked.count(job.id)) for name, job in zip(names, jobs, strict=True)]


@settings(max_examples=12)
@given(st.lists(PLANS, min_size=5, max_size=30), st.sampled_from([*WAYS]))
def test_random_plans(plans: list[list[str]], way: str) -> None:
    """Whatever the plans of many jobs are, each wait ends as its own plan alone says, in its own number of polls."""
    assert virtual(_fates(plans, way)) == [_fate(plan) for plan in plans]
