"""Waits: what they ride out, what ends them, and when; one sweep for every way to wait."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import pytest

from agentjobs_async import (
    AgentJobsError,
    HttpTimeouts,
    JobFailedError,
    NotSentError,
    ProtocolError,
    RejectedError,
    TransportError,
    WaitTimeoutError,
)
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.testing.scripts import EndStatus
from tests.contract.sockets import full_listener, silent_listener
from tests.contract.tables import BAD_ANSWERS, BREAKS, CUT_AT_THE_DEADLINE, ENDING, GOOD_POLLS, PASSING
from tests.contract.ways import ENDLESS, REF, Waiting, gets, met_by, started
from tests.polled import clock, every
from tests.rows import end_of, failures_at_once

pytestmark = pytest.mark.looptime

ENDED = JobScript(duration=0)
SOON = HttpTimeouts(request=5)
TRANSIENT: Final = ("404", "408", "425", "429", "500", "502", "503", "504")


async def test_rides_out(waiting: Waiting) -> None:
    """A passing fault three times in a row does not keep a wait from its job; each is one request."""

    async def check(fault: str) -> None:
        async with started(emulator, f"{fault} x3", waiting, policy=every(2), timeouts=SOON) as (wait, created):
            assert (await wait(created.ref)).succeeded
            await asyncio.sleep(100)
        assert [request.fault is None for request in gets(emulator, created)] == [False, False, False, True]

    async with Emulator(script=ENDED) as emulator:
        assert await failures_at_once(check, *met_by(waiting, (*BREAKS, *BAD_ANSWERS, *TRANSIENT, "529"))) == {}
    assert emulator.foreign.connections == 0


async def test_bad_answers_in_a_row(waiting: Waiting) -> None:
    """The fifth bad answer in a row ends a wait with its reason."""

    async def check(fault: str) -> None:
        async with started(emulator, f"{fault} forever", waiting, policy=every(1)) as (wait, created):
            with pytest.raises(ProtocolError) as caught:
                await wait(created.ref)
        assert (caught.value.reason, len(gets(emulator, created))) == (BAD_ANSWERS[fault], 5)

    async with Emulator() as emulator:
        assert await failures_at_once(check, *met_by(waiting, BAD_ANSWERS)) == {}


async def test_every_error_status(waiting: Waiting) -> None:
    """Each of the 300 error statuses, all at once: passing ones last until the deadline, others end it at once."""
    assert sorted((*PASSING, *ENDING)) == list(range(300, 600))
    expected: dict[str, tuple[type, int]] = {str(status): (WaitTimeoutError, 3) for status in PASSING}
    expected |= {str(status): (kind, 1) for status, kind in ENDING.items()}
    async with (
        Emulator(script=ENDED) as emulator,
        waiting(emulator, policy=every(5, not_found_grace=0)) as (session, wait),
    ):

        async def check(status: str) -> None:
            created = await session.create_job(status)
            await emulator.inject(f"{status} forever", job_id=created.id)
            end = await end_of(wait(created.ref, timeout=7))
            await asyncio.sleep(100)
            assert (type(end), len(gets(emulator, created))) == expected[status]

        assert await failures_at_once(check, *met_by(waiting, expected)) == {}
    assert emulator.foreign.connections == 0


async def test_redirects_are_not_followed() -> None:
    """A redirect of a poll ends the wait at once, and its error names the target's origin and no more of it."""

    async def check(fault: str) -> None:
        async with started(emulator, fault) as (wait, created):
            with pytest.raises(RejectedError) as caught:
                await wait(created.ref)
        assert len(gets(emulator, created)) == 1
        assert (emulator.foreign.url in str(caught.value)) == ("{foreign}" in fault)
        assert "hidden" not in str(caught.value)

    places = ("{foreign}/v2/agent/docs/job/job_000001?token=hidden", "{base}/other", "/other")
    async with Emulator(script=ENDED) as emulator:
        faults = [f"{status} location={place}" for status in (301, 302, 303, 307, 308) for place in places]
        assert await failures_at_once(check, *faults) == {}
    assert emulator.foreign.connections == 0


async def test_good() -> None:
    """A good job under a 2xx is good, however it comes."""

    async def check(fault: str) -> None:
        async with started(emulator, f"{fault} forever", policy=every(1)) as (wait, created):
            assert (await wait(created.ref)).succeeded
        assert len(gets(emulator, created)) == 1

    async with Emulator(script=ENDED) as emulator:
        assert await failures_at_once(check, *GOOD_POLLS) == {}


async def test_ends(waiting: Waiting) -> None:
    """Each of the three ends is a result at once, and stands; only `raise_for_status` makes `failed` an exception."""
    async with Emulator() as emulator, waiting(emulator, policy=every(2)) as (session, wait):

        async def check(outcome: EndStatus) -> None:
            emulator.script(JobScript(duration=7, outcome=outcome), prompt=outcome)
            created = await session.create_job(outcome)
            job = await wait(created)
            assert (job.status, job.is_terminal, job.succeeded) == (outcome, True, outcome == "completed")
            assert (job.pr_link is not None) == (outcome == "completed")
            assert (job.archived_at is not None) == (outcome == "archived")
            await emulator.inject("document status=active forever", job_id=created.id)
            assert await wait(job) is job
            await asyncio.sleep(100)
            assert len(gets(emulator, created)) == 5
            if outcome == "failed":
                with pytest.raises(JobFailedError):
                    job.raise_for_status()
            else:
                assert job.raise_for_status() is job

        assert await failures_at_once(check, "completed", "archived", "failed") == {}


# The deadline.


async def test_cut_at_the_deadline(waiting: Waiting) -> None:
    """No exchange holds a wait beyond its deadline, however long a read may take by itself."""

    async def check(fault: str) -> None:
        async with started(emulator, f"{fault} forever", waiting, policy=every(2)) as (wait, created):
            for timeout in (7.0, 0.5):
                began = clock()
                with pytest.raises(WaitTimeoutError) as caught:
                    await wait(created.ref, timeout=timeout)
                assert timeout <= clock() - began <= timeout + 0.25
                assert isinstance(caught.value.last_error, TransportError)
        assert len(gets(emulator, created)) == 2

    async with Emulator() as emulator:
        assert await failures_at_once(check, *met_by(waiting, CUT_AT_THE_DEADLINE)) == {}


@pytest.mark.parametrize("open_listener", [full_listener, silent_listener])
async def test_connection_never_made(open_listener: Callable[[str], AbstractAsyncContextManager[str]]) -> None:
    """A connection that is never made holds no wait beyond its deadline either."""
    settings = {"policy": every(1), "timeouts": HttpTimeouts(connect=2)}
    async with (
        open_listener("https") as base_url,
        Emulator() as emulator,
        emulator.session(base_url=base_url, **settings) as session,
    ):
        for timeout in (7.0, 0.5):
            began = clock()
            with pytest.raises(WaitTimeoutError) as caught:
                await session.wait_for_job(REF, timeout=timeout)
            assert timeout <= clock() - began <= timeout + 0.25
            assert isinstance(caught.value.last_error, TransportError | NotSentError)


# Reading once.


async def test_one_read() -> None:
    """A read that fails is one request, on a fresh connection or a kept one, and ends in time with an error of ours."""

    async def check(fault: str) -> None:
        async with emulator.session(project_id="docs", timeouts=SOON) as session:
            created = await session.create_job("Fix it")
            for kept in (False, True):
                if kept:
                    assert (await session.get_job(created)).succeeded
                await emulator.inject(fault, job_id=created.id)
                before, began = len(gets(emulator, created)), clock()
                with pytest.raises(AgentJobsError) as caught:
                    await session.get_job(created)
                assert caught.value.outcome is None
                assert clock() - began <= 5.25
                assert len(gets(emulator, created)) - before == 1
            assert (await session.get_job(created)).succeeded

    async with Emulator(script=ENDED) as emulator:
        statuses = ("301", "400", "401", "404", "408", "410", "429", "500", "503")
        assert await failures_at_once(check, *BREAKS, *BAD_ANSWERS, *statuses) == {}


async def test_surplus_answers() -> None:
    """What a server sends without being asked is never taken for the answer to the next request."""
    faults = ("surplus", "surplus after=0.01", "surplus:bytes", "surplus:bytes after=0.01", "overlong")
    async with (
        Emulator(script=ENDLESS, faults=" then ".join(f"{fault} x5 on=get" for fault in faults)) as emulator,
        emulator.session(project_id="docs") as session,
    ):
        created = await session.create_job("Fix it")
        for _ in range(25):
            try:
                assert await session.get_job(created) == created
            except (ProtocolError, TransportError):
                await asyncio.sleep(0)
            await asyncio.sleep(1)
        assert await session.get_job(created) == created
    assert len(gets(emulator)) == 26
