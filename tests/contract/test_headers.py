"""The headers of a request: those that it needs, and nothing of the environment's."""

from agentjobs_async.testing import Emulator


async def test_headers() -> None:
    """A request has the headers that it needs, the key once, and nothing of the environment's."""
    async with Emulator() as emulator, emulator.session(project_id="docs") as session:
        await emulator.inject("ok header.Set-Cookie=a=b x2")
        created = await session.create_job("Fix it")
        await session.get_job(created)
        await session.get_job(created.id)
    wanted = {"Host", "Authorization", "Accept", "Accept-Encoding", "User-Agent"}
    extra = {"POST": {"Content-Type", "Content-Length", "Connection"}, "GET": set()}
    for request in emulator.requests:
        assert wanted <= set(request.headers) <= wanted | extra[request.method], request.method
        assert request.headers["Authorization"] == f"Bearer {emulator.api_key}"
        assert len(list(request.headers.items())) == len(set(request.headers))
