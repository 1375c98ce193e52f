"""A prompt is in no log, however the service quotes it."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from agentjobs_async import AuthError, LoggingHook, PollPolicy
from agentjobs_async.batch import BatchItem, Journal, run_batch
from tests.contract.sinks import Log
from tests.polled import REF, every
from tests.rows import failures_in_turn
from tests.scripted import Reply, Scripted, job, reply

pytestmark = pytest.mark.looptime

PROMPT: Final = "Fix the marmalade"


def refusal(status: int) -> Reply:
    """Answer with an error that quotes the prompt, as validating services do."""
    return reply(status, {"error": {"message": f"{PROMPT!r} is not allowed"}}, ("X-Request-Id", "r-1"))


CREATES: Final[dict[str, Reply]] = {
    "refused": refusal(422),
    "limited": refusal(429),
    "unauthorized": refusal(403),
    "unknown": refusal(500),
    "early": refusal(408),
    "odd id": job(job_id=f"{PROMPT}\x00"),
}
POLLS: Final = {
    "refused": refusal(422),
    "missing": refusal(404),
    "failing": refusal(503),
    "other job": job(job_id=PROMPT),
    "odd": job(status=""),
}


async def test_creates() -> None:
    """What a create is refused with is raised with the server's words, and logged without them."""

    async def check(name: str) -> None:
        with Log() as log:
            async with Scripted(CREATES[name]) as server, server.session(hooks=[LoggingHook()]) as session:
                (raised,) = await asyncio.gather(session.create_job(PROMPT, timeout=5), return_exceptions=True)
        assert "marmalade" in str(raised)
        said = [record.getMessage() for record in log.records if record.name.startswith("agentjobs_async")]
        assert any(line.startswith("create in docs ended as ") for line in said)
        assert [line for line in said if "marmalade" in line] == []
        assert any("HTTP" in line for line in said) or name == "odd id"

    assert await failures_in_turn(check, *CREATES) == {}


async def test_waits() -> None:
    """What a poll shows in place of the job is told without the server's words, where a wait times out, too."""
    policy: PollPolicy = every(1, max_bad_answers=3, not_found_grace=3)

    async def check(name: str) -> None:
        with Log() as log:
            async with (
                Scripted(POLLS[name]) as server,
                server.session(hooks=[LoggingHook()], policy=policy) as session,
            ):
                await asyncio.gather(session.wait_for_job(REF, timeout=10), return_exceptions=True)
        said = [record.getMessage() for record in log.records if record.name.startswith("agentjobs_async")]
        assert any(" failed: " in line for line in said)
        assert any(line.startswith("wait for docs~.job_1 ended ") for line in said)
        assert [line for line in said if "marmalade" in line] == []

    assert await failures_in_turn(check, *POLLS) == {}


async def test_batches(tmp_path: Path) -> None:
    """A batch that holds creates back says why without the server's words; its rows have them."""

    async def check(name: str, *replies: Reply) -> None:
        with Log() as log:
            async with Scripted(*replies) as server, server.session() as session:
                async with Journal.open(tmp_path / f"{name}.db") as journal:
                    items = [BatchItem(str(number), PROMPT) for number in range(4)]
                    with suppress(AuthError):  # once nothing else can go
                        async with run_batch(session, items, journal=journal, max_sending=1, timeout=30) as results:
                            assert [result.outcome async for result in results] != []
        said = [record.getMessage() for record in log.records if record.name.startswith("agentjobs_async")]
        assert any(" held back" in line or " stay planned" in line for line in said)
        assert [line for line in said if "marmalade" in line] == []

    rows = [
        ("limited", refusal(429), job("completed")),
        *((name, CREATES[name]) for name in ("unauthorized", "unknown")),
    ]
    assert await failures_in_turn(check, *rows) == {}
