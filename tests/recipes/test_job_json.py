"""Jobs and references as JSON, in the requests and responses of FastAPI and Litestar."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, cast

from aiohttp import ClientSession

from agentjobs_async import AgentJob, JobRef
from tests.docs.samples import run_page
from tests.extras import need_recipes
from tests.test_job_json import DOCUMENT, JOB, REF, Order


@asynccontextmanager
async def client(app: Any) -> AsyncIterator[ClientSession]:
    """Return a block with a client of an application, which is served on a free port of loopback."""
    import uvicorn  # noqa: PLC0415 - not every environment has it

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        serving = asyncio.create_task(server.serve([listening]))
        async with ClientSession(f"http://127.0.0.1:{listening.getsockname()[1]}") as session:
            try:
                yield session
            finally:
                server.should_exit = True
                await serving


async def document(web: ClientSession, path: str, **parameters: str) -> Any:
    """Return the document of a page."""
    async with web.get(path, params=parameters) as response:
        assert response.status == 200
        return await response.json()


async def check_responses(web: ClientSession, page: str) -> None:
    """`-> AgentJob` is all that an endpoint needs: a job's document, which OpenAPI describes as one component."""
    assert AgentJob.from_dict(found := await document(web, "/job")) == JOB
    assert set(found) == set(DOCUMENT)  # `raw` only where asked for
    assert (await document(web, "/raw"))["raw"] == JOB.raw
    described = await document(web, page)
    schema = described["paths"]["/job"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/AgentJob"}
    # Litestar lists the private fields of an attrs class, too, which it never sends.
    assert set(described["components"]["schemas"]["AgentJob"]["properties"]) - {"_raw", "_label"} == set(DOCUMENT)


async def read() -> AgentJob:
    return JOB


async def raw() -> dict[str, Any]:
    return JOB.to_dict(raw=True)


async def test_fastapi() -> None:
    """FastAPI writes a job, reads it from a body and a ref from a query, and answers 422 to what is neither."""
    need_recipes()
    from fastapi import Body, FastAPI  # noqa: PLC0415 - not every environment has it

    async def write(job: Annotated[AgentJob, Body()]) -> Order:
        return Order(job=job)

    async def ref(ref: JobRef) -> list[JobRef]:
        return [ref]

    app = FastAPI()
    app.get("/job")(read)
    app.get("/lean", response_model_exclude={"model"})(read)
    app.get("/raw")(raw)
    app.get("/ref")(ref)
    app.post("/job")(write)
    async with client(app) as web:
        await check_responses(web, "/openapi.json")
        assert set(DOCUMENT) - set(await document(web, "/lean")) == {"model"}
        assert await document(web, "/ref", ref=REF.to_token()) == ["a~20b~.x~2Fy"]
        async with web.post("/job", json=DOCUMENT) as response:
            assert await response.json() == {"job": DOCUMENT, "ref": None}
        async with web.post("/job", json=DOCUMENT | {"status": 7}) as response:
            assert response.status == 422
        async with web.get("/ref", params={"ref": "job_1"}) as response:
            assert response.status == 422


async def test_litestar() -> None:
    """Litestar writes a job, and reads jobs and tokens by the sample of the page."""
    need_recipes()
    from litestar import Litestar, get, post  # noqa: PLC0415 - not every environment has it
    from litestar.params import JSONBody  # noqa: PLC0415 - not every environment has it

    page = run_page("web")

    async def taken(data: Any) -> bool:
        return bool(page["read"](data) == (REF, JOB))

    taken.__annotations__["data"] = cast("Any", JSONBody)[page["Order"]]
    handlers = [get("/job")(read), get("/raw")(raw), post("/taken")(taken)]
    async with client(Litestar(handlers, logging_config=None)) as web:
        await check_responses(web, "/schema/openapi.json")
        async with web.post("/taken", json={"token": REF.to_token(), "job": DOCUMENT}) as response:
            assert await response.json() is True
