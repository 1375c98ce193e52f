"""Ids and addresses: an id never changes path, query, host or headers, and the key goes to one origin only."""

from typing import Any, Final

import pytest
from yarl import URL

from agentjobs_async import AgentJobsSession, InvalidInputError, JobRef, NotFoundError
from agentjobs_async.testing import Emulator, JobScript
from tests.rows import failures_at_once

AWKWARD: Final = (
    "a b",
    "a/b",
    "a/../b",
    "../..",
    "..%2f",
    "%2e%2e",
    "%2E",
    "a?b=c",
    "a#b",
    "a&b;c=d",
    "a\\b",
    "//evil.example/x",
    "http://evil.example/",
    "@evil.example",
    "a:b@c",
    "a%00b",
    "a%0d%0aX: y",
    "{job_id}",
    "{}",
    "%",
    "%%%",
    "+",
    "...",
    "~",
    ";jsessionid=1",
    "\u202eevil",
    "\u2028",
    "\u2215",
    "\uff0e\uff0e",
    "日本語 🎉",
    "é",
    "e\u0301",
    "x" * 512,
    "€" * 400,
)
REFUSED: Final = (
    "",
    ".",
    "..",
    "a\x00b",
    "a\nb",
    "a\r\nX: y",
    "a\tb",
    "\x7f",
    "\x85",
    "\ud800",
    "x" * 513,
    None,
    7,
    b"x",
)


async def test_ids_stay_in_their_place() -> None:
    """Whatever an id holds, it is one segment of the path, and the service reads it as it was given."""

    async def check(name: str) -> None:
        async with emulator.session(project_id=name) as session:
            created = await session.create_job("Fix it")
            assert (created.id, created.project_id) == (name, name)
            assert (await session.wait_for_job(created.ref)).succeeded
            assert JobRef.from_token(created.ref.to_token()) == created.ref
        post, get = (request for request in emulator.requests if request.project_id == name)
        assert [post.target.count("/"), get.target.count("/")] == [4, 5]
        assert [request.target.count("?") for request in (post, get)] == [0, 0]
        assert (post.method, get.method, get.job_id) == ("POST", "GET", name)
        assert {request.headers["Host"] for request in (post, get)} == {f"127.0.0.1:{emulator.port}"}
        assert post.headers.keys() - get.headers.keys() == {"Content-Type", "Content-Length", "Connection"}

    async with Emulator(script=lambda project_id, _: JobScript(duration=0, job_id=project_id)) as emulator:
        assert await failures_at_once(check, *AWKWARD) == {}
    assert emulator.keys_seen == {f"Bearer {emulator.api_key}"}


async def test_ids_in_a_query() -> None:
    """In a template with a query, an id is one value of it."""
    settings: dict[str, Any] = {"get_path": "/v2/agent/docs/job/job_000001?id={job_id}&of={project_id}"}
    async with Emulator() as emulator, emulator.session(project_id="docs", **settings) as session:
        await session.create_job("Fix it")
        for name in AWKWARD:
            with pytest.raises(Exception, match="wrong_id"):
                await session.get_job(JobRef(name, name))
    for name, request in zip(AWKWARD, emulator.requests[1:], strict=True):
        assert dict(URL(request.target, encoded=True).query) == {"id": name, "of": name}
        assert request.target.startswith("/v2/agent/docs/job/job_000001?id=")


async def test_refused_before_any_io() -> None:
    """An id that can be no segment is refused, wherever it is given, and nothing is sent."""

    async def check(name: Any) -> None:
        calls: list[Any] = [
            lambda: session.get_job(name),
            lambda: session.wait_for_job(name),
            lambda: JobRef("docs", name),
            lambda: JobRef(name, "job_1"),
            lambda: session.create_job("x", project_id="\x00" if name is None else name),
        ]
        for call in calls:
            with pytest.raises(InvalidInputError):
                await call()

    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        assert await failures_at_once(check, *REFUSED) == {}
    assert (emulator.requests, emulator.connections) == ((), 0)


async def test_templates() -> None:
    """A template that could lead elsewhere is refused, or stays on the origin."""
    refused = ("/../x", "/a/./b", "/x#y", "/a b", "//evil.example/{job_id}", "/é/{job_id}", "x")
    async with Emulator() as emulator:
        for path in refused:
            with pytest.raises(InvalidInputError):
                emulator.session(project_id="docs", get_path=path.replace("evil.example", emulator.foreign.url[7:]))
        async with emulator.session(
            project_id="docs", get_path=f"/x//{emulator.foreign.url[7:]}/{{job_id}}"
        ) as session:
            with pytest.raises(NotFoundError):
                await session.get_job("job_1")
    assert (emulator.foreign.connections, len(emulator.requests)) == (0, 1)


ADDRESSES: Final = (
    "http://api.example.com",
    "http://127.0.0.1.example.com",
    "http://localhost.example.com",
    "http://127.0.0.1@evil.example",
    "http://evil.example#127.0.0.1",
    "http://0x7f.1.evil.example",
    "http://[::ffff:8.8.8.8]",
    "ftp://127.0.0.1",
    "https://user:pass@api.example.com",
    "https://api.example.com?x",
    "https://api.example.com#x",
    "//api.example.com",
    "api.example.com",
    "https://",
    "https://api.example.com\\@evil.example",
    "https://api.example.com\r\nX: y",
)


async def test_addresses_refused() -> None:
    """The key goes over https, or to loopback: any other address is refused before anything is sent."""

    async def check(base_url: str) -> None:
        with pytest.raises(InvalidInputError):
            AgentJobsSession(base_url, "0123456789")

    assert await failures_at_once(check, *ADDRESSES) == {}


async def test_headers() -> None:
    """A request has the headers that it needs, the key once, and nothing of the environment's."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        await emulator.inject("ok header.Set-Cookie=a=b x2")
        await session.get_job(await session.create_job("Fix it"))
        await session.get_job("job_000001")
    wanted = {"Host", "Authorization", "Accept", "Accept-Encoding", "User-Agent"}
    extra = {"POST": {"Content-Type", "Content-Length", "Connection"}, "GET": set()}
    for request in emulator.requests:
        assert wanted <= set(request.headers) <= wanted | extra[request.method], request.method
        assert request.headers["Authorization"] == f"Bearer {emulator.api_key}"
        assert len(list(request.headers.items())) == len(set(request.headers))
