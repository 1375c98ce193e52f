"""Waits: what they ride out, what ends them, and when; one sweep for every way to wait."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from looptime import LoopTimeEventLoop

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    HttpTimeouts,
    JobRef,
    NotFoundError,
    NotSentError,
    ProtocolError,
    RejectedError,
    TransportError,
    WaitTimeoutError,
)
from agentjobs_async.testing import Emulator, JobScript
from agentjobs_async.testing.faults.plans import Plans
from tests.contract.sockets import full_listener, silent_listener
from tests.contract.tables import (
    BAD_ANSWERS,
    BREAKS,
    CUT_AT_THE_DEADLINE,
    GOOD_POLLS,
    ends_polls,
    transient_statuses,
)
from tests.contract.ways import Waiting, every, gets
from tests.scripted import Reply, Scripted, job

pytestmark = pytest.mark.looptime

ENDED = JobScript(duration=0)
ENDLESS = JobScript(duration=float("inf"))
SOON = HttpTimeouts(request=5)
REF = JobRef("docs", "job_000001")


def clock() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    "fault", [*BREAKS, *BAD_ANSWERS, "404", "408", "425", "429", "500", "502", "503", "504", "529"]
)
async def test_rides_out(fault: str, waiting: Waiting) -> None:
    """A passing fault three times in a row does not keep a wait from its job; each is one request."""
    async with (
        Emulator(script=ENDED, faults=f"{fault} x3 on=get") as emulator,
        waiting(emulator, policy=every(2), timeouts=SOON) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        assert (await wait(created.ref)).succeeded
        await asyncio.sleep(100)
    assert [request.fault is None for request in gets(emulator)] == [False, False, False, True]
    assert emulator.foreign.connections == 0


@pytest.mark.parametrize(
    "fault", [*BREAKS, "404", "408", "425", "429", "500", "502", "503", "504", "503 retry-after=1"]
)
async def test_transient_for_ever(fault: str, waiting: Waiting) -> None:
    """A passing fault that does not pass is asked about until the deadline, not for so many attempts."""
    async with (
        Emulator(faults=f"{fault} forever on=get") as emulator,
        waiting(emulator, policy=every(1), timeouts=HttpTimeouts(request=2)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        began = clock()
        with pytest.raises(WaitTimeoutError) as caught:
            await wait(created.ref, timeout=29)
        assert 29 <= clock() - began <= 29.25
        await asyncio.sleep(100)
    assert 9 <= len(gets(emulator)) <= 30
    assert isinstance(caught.value.last_error, AgentJobsError)
    assert caught.value.polls == len(gets(emulator))
    assert gets(emulator)[-1].at - began <= 29


@pytest.mark.parametrize("fault", BAD_ANSWERS)
async def test_bad_answers_in_a_row(fault: str, waiting: Waiting) -> None:
    """The fifth bad answer in a row ends a wait with its reason; four of them do not, and others start them anew."""
    for plan, sent, ended in (
        (f"{fault} x5 on=get", 5, False),
        (f"{fault} x4 on=get then ok on=get", 5, True),
        (f"{fault} x4 on=get then 500 on=get then {fault} x4 on=get", 10, True),
        (f"{fault} x4 on=get then document status=active on=get then {fault} x9 on=get", 15, True),
    ):
        async with (
            Emulator(script=ENDED, faults=plan) as emulator,
            waiting(emulator, policy=every(1)) as (session, wait),
        ):
            created = await session.create_job("Fix it")
            try:
                end: AgentJob | ProtocolError = await wait(created.ref)
            except ProtocolError as error:
                end = error
            await asyncio.sleep(50)
        assert len(gets(emulator)) == sent
        assert end.succeeded if isinstance(end, AgentJob) else end.reason == BAD_ANSWERS[fault]
        assert isinstance(end, AgentJob) is ended


async def test_every_error_status(waiting: Waiting) -> None:
    """Each of the 300 error statuses, all at once: passing ones last until the deadline, others end it at once."""
    transient, permanent = transient_statuses(), ends_polls()
    assert sorted((*transient, *permanent)) == list(range(300, 600))
    permanent[404] = NotFoundError  # its grace is none here
    async with (
        Emulator(script=ENDED) as emulator,
        waiting(emulator, policy=every(5, not_found_grace=0)) as (session, wait),
    ):
        refs = {status: (await session.create_job(str(status))).ref for status in range(300, 600)}
        for status, ref in refs.items():
            await emulator.inject(f"{status} forever on=get", job_id=ref.job_id)
        ends = await asyncio.gather(*(wait(ref, timeout=7) for ref in refs.values()), return_exceptions=True)
        await asyncio.sleep(100)
    kinds = {status: type(end) for status, end in zip(refs, ends, strict=True)}
    assert kinds == {**dict.fromkeys(transient, WaitTimeoutError), **permanent}
    asked = [request.job_id for request in gets(emulator)]
    polls = {status: asked.count(ref.job_id) for status, ref in refs.items()}
    assert polls == {**dict.fromkeys(transient, 3), **dict.fromkeys(permanent, 1)}
    assert emulator.foreign.connections == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["{foreign}/v2/agent/docs/job/job_000001?token=hidden", "{base}/other", "/other"])
async def test_redirects_are_not_followed(status: int, place: str, waiting: Waiting) -> None:
    """A redirect of a poll ends the wait at once, and its error names the target's origin and no more of it."""
    async with (
        Emulator(script=ENDED, faults=f"{status} location={place} on=get") as emulator,
        waiting(emulator) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        with pytest.raises(RejectedError) as caught:
            await wait(created.ref)
    assert (len(gets(emulator)), emulator.foreign.connections) == (1, 0)
    assert (emulator.foreign.url in str(caught.value)) == place.startswith("{foreign}")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("fault", GOOD_POLLS)
async def test_good(fault: str, waiting: Waiting) -> None:
    """A good job under a 2xx is good, however it comes."""
    async with (
        Emulator(script=ENDED, faults=f"{fault} forever on=get") as emulator,
        waiting(emulator, policy=every(1)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        assert (await wait(created.ref)).succeeded
        assert len(gets(emulator)) == 1


@pytest.mark.parametrize("outcome", ["completed", "archived", "failed"])
async def test_first_end_stands(outcome: Any, waiting: Waiting) -> None:
    """Each of the three ends is a result at once, and what the server says later is not asked for."""
    async with (
        Emulator(script=JobScript(duration=7, outcome=outcome)) as emulator,
        waiting(emulator, policy=every(2)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        ended = await wait(created)
        assert ended.status == outcome
        await emulator.inject("document status=active forever on=get")
        assert await wait(ended) is ended
        await asyncio.sleep(100)
    assert len(gets(emulator)) == 5


@pytest.mark.parametrize(
    "status", ["paused", "Completed", "completed ", "COMPLETED", "done", '"complete\\u0000d"', '"\\u001b[31m"', "0"]
)
async def test_unknown_status(status: str, waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """An undocumented status is not an end; it is kept as text, and warned about once."""
    if status == "0":
        status = '"0"'
    seen: list[AgentJob] = []
    async with (
        Emulator(script=JobScript(duration=20), faults=f"document status={_json(status)} x4 on=get") as emulator,
        waiting(emulator, policy=every(2)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        assert (await wait(created.ref, on_update=seen.append)).succeeded
    texts = [update.status for update in seen]
    assert texts[0] == texts[0].strip("\x00") or "\x00" in texts[0]
    assert not seen[0].is_terminal
    assert len([record for record in caplog.records if "unknown status" in record.message]) == 1
    assert "\x1b" not in caplog.text


def _json(status: str) -> str:
    """Write it as the option of a fault that gives text."""
    if status.startswith('"'):
        return status
    return f'"{status}"' if " " in status else status


@pytest.mark.parametrize(("grace", "hidden", "found"), [(30.0, 20.0, True), (30.0, 40.0, False), (0.0, 1.0, False)])
async def test_not_visible_yet(grace: float, hidden: float, found: bool, waiting: Waiting) -> None:  # noqa: FBT001 - a column of the table
    """A 404 within the grace is a job not visible yet; after it, it is not there."""
    script = JobScript(duration=0, visible_after=hidden)
    async with (
        Emulator(script=script) as emulator,
        waiting(emulator, policy=every(2, not_found_grace=grace)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        if found:
            assert (await wait(created.ref)).succeeded
        else:
            with pytest.raises(NotFoundError):
                await wait(created.ref)
    assert len(gets(emulator)) == (grace if not found else hidden) // 2 + 1


async def test_gone_again(waiting: Waiting) -> None:
    """A 404 right after the job was seen is a flicker; the longer grace starts at the last answer that showed it."""
    plan = "ok x30 on=get then 404 x10 on=get then ok x30 on=get then 404 forever on=get"
    async with (
        Emulator(script=ENDLESS, faults=plan) as emulator,
        waiting(emulator, policy=every(2)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        with pytest.raises(NotFoundError):
            await wait(created.ref)
    assert len(gets(emulator)) == 30 + 10 + 30 + 30


async def test_refusals_of_seen_jobs(waiting: Waiting) -> None:
    """Once a poll has shown the job, each answer that is not the job, at once and for ever, has the grace, no more."""
    refusals: dict[str, type[AgentJobsError]] = dict.fromkeys(BAD_ANSWERS, ProtocolError)
    refusals |= {str(status): kind for status, kind in ends_polls().items()}
    async with (
        Emulator(script=ENDED) as emulator,
        waiting(emulator, policy=every(5, answer_grace=17.5, not_found_grace=0)) as (session, wait),
    ):
        refs: dict[str, list[JobRef]] = {}
        for refusal in refusals:
            pair = refs[refusal] = [(await session.create_job(refusal)).ref for _ in range(2)]
            for ref, span in zip(pair, ("x3", "forever"), strict=True):
                plan = f"document status=active on=get then {refusal} {span} on=get"
                await emulator.inject(plan, job_id=ref.job_id)
        ends = await asyncio.gather(
            *(wait(ref, timeout=100) for pair in refs.values() for ref in pair), return_exceptions=True
        )
    assert {type(end) for end in ends[::2]} == {AgentJob}
    assert {refusal: type(end) for refusal, end in zip(refs, ends[1::2], strict=True)} == refusals
    asked = [request.job_id for request in gets(emulator)]
    assert {asked.count(ref.job_id) for pair in refs.values() for ref in pair} == {5}


async def test_maintenance_page(waiting: Waiting) -> None:
    """A maintenance page of 55 s ends no wait, whatever it comes as; then each wait has its job."""
    pages = ("body:html", "403", "404", "302 location=/sorry", "501", "204")
    async with (
        Emulator(script=JobScript(duration=90)) as emulator,
        waiting(emulator) as (session, wait),
    ):
        jobs = [await session.create_job(page) for page in pages]
        waits = [asyncio.ensure_future(wait(created)) for created in jobs]
        await asyncio.sleep(20)
        for page in pages:
            await emulator.inject(f"{page} forever on=get", prompt=page)
        await asyncio.sleep(45)
        emulator._plans = Plans()
        assert all(ended.succeeded for ended in await asyncio.gather(*waits))


async def test_refused_connections(waiting: Waiting) -> None:
    """A service that is down is asked until it comes up."""
    async with Emulator(script=ENDED) as emulator, waiting(emulator, policy=every(2)) as (session, wait):
        created = await session.create_job("Fix it")
        async with emulator.refusing():
            pending = asyncio.ensure_future(wait(created.ref))
            await asyncio.sleep(301)
            assert not pending.done()
        assert (await pending).succeeded
    assert len(gets(emulator)) == 1


# The deadline.


async def test_cause_of_a_timeout(waiting: Waiting) -> None:
    """A wait whose connections failed, and whose last poll the deadline cuts, tells that they failed."""
    async with Emulator(faults="reset x2 on=get then hang forever on=get") as emulator:
        async with waiting(emulator, policy=every(2)) as (session, wait):
            created = await session.create_job("Fix it")
            with pytest.raises(WaitTimeoutError) as caught:
                await wait(created.ref, timeout=9)
    assert len(gets(emulator)) == 3
    assert "the exchange broke" in str(caught.value)
    assert "no answer until the wait ended" not in str(caught.value)


@pytest.mark.parametrize("fault", CUT_AT_THE_DEADLINE)
async def test_cut_at_the_deadline(fault: str, waiting: Waiting) -> None:
    """No exchange holds a wait beyond its deadline, however long a read may take by itself."""
    async with (
        Emulator(faults=f"{fault} forever on=get") as emulator,
        waiting(emulator, policy=every(2)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        for timeout in (7.0, 0.5):
            began = clock()
            with pytest.raises(WaitTimeoutError) as caught:
                await wait(created.ref, timeout=timeout)
            assert timeout <= clock() - began <= timeout + 0.25
            assert isinstance(caught.value.last_error, TransportError)
    assert len(gets(emulator)) == 2


@pytest.mark.parametrize("open_listener", [full_listener, lambda: silent_listener("https")])
async def test_connection_never_made(open_listener: Any, waiting: Waiting) -> None:
    """A connection that is never made holds no wait beyond its deadline either."""
    async with Emulator() as emulator, open_listener() as base_url:
        settings: dict[str, Any] = {"base_url": base_url, "policy": every(1), "timeouts": HttpTimeouts(connect=2)}
        async with waiting(emulator, **settings) as (_, wait):
            for timeout in (7.0, 0.5):
                began = clock()
                with pytest.raises(WaitTimeoutError) as caught:
                    await wait(REF, timeout=timeout)
                assert timeout <= clock() - began <= timeout + 0.25
                assert isinstance(caught.value.last_error, TransportError | NotSentError)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 5.0, 10.0, 100.0, 1800.0])
async def test_last_poll(seconds: float, waiting: Waiting) -> None:
    """A last poll starts a second before the deadline, or a tenth of the time when that is less."""
    async with (
        Emulator(script=ENDLESS) as emulator,
        waiting(emulator, policy=every(9999)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        began = clock()
        with pytest.raises(WaitTimeoutError) as caught:
            await wait(created.ref, timeout=seconds)
        assert seconds <= clock() - began <= seconds + 0.25
    assert [r.at - began for r in gets(emulator)] == pytest.approx([0, seconds - min(1, seconds / 10)], abs=0.011)
    assert caught.value.last_job is not None
    assert caught.value.last_error is None


async def test_end_found_by_the_last_poll(waiting: Waiting) -> None:
    """An end that only the last poll sees is given, not a timeout."""
    async with (
        Emulator(script=JobScript(duration=58.5)) as emulator,
        waiting(emulator, policy=every(40)) as (session, wait),
    ):
        created = await session.create_job("Fix it")
        assert (await wait(created.ref, timeout=60)).succeeded


async def test_end_in_hand_at_the_deadline(waiting: Waiting) -> None:
    """An end that came while the loop stood still is given, though the deadline is over when it is read."""

    def stand_still() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LoopTimeEventLoop)
        loop.setup_looptime(start=loop.time() + 20)

    late = Reply(job("completed").data, after=stand_still)
    async with Scripted(job(), late) as server, waiting(server, policy=every(2)) as (_, wait):
        assert (await wait(JobRef("docs", "job_1"), timeout=5)).succeeded


async def test_get_job_that_never_returns(waiting: Waiting) -> None:
    """A get-job callable of the user's that never returns holds no wait beyond its deadline."""
    cancelled: list[JobRef] = []

    async def never(ref: JobRef) -> Mapping[str, object]:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(ref)
        raise AssertionError

    async with Emulator() as emulator, waiting(emulator, get_job=never) as (_, wait):
        began = clock()
        with pytest.raises(WaitTimeoutError):
            await wait(REF, timeout=3)
        assert 3 <= clock() - began <= 3.25
        await asyncio.sleep(1)
        assert cancelled == [REF]
    assert emulator.requests == ()


async def test_exceptions_of_the_users_callable(waiting: Waiting) -> None:
    """What the user's callable raises is ridden out if the policy accepts it, and passes through unchanged if not."""
    raised = [OSError("passing"), TimeoutError(), OSError("passing"), *[OSError()] * 20, KeyError("mine")]

    async def get_job(_ref: JobRef) -> Mapping[str, object]:
        raise raised.pop(0)

    last = raised[-1]
    async with Emulator() as emulator, waiting(emulator, get_job=get_job, policy=every(1)) as (_, wait):
        with pytest.raises(KeyError) as caught:
            await wait(REF)
    assert caught.value is last
    assert raised == []


async def test_loop_that_stood_still(waiting: Waiting) -> None:
    """A loop that stood still for 30 s asks once per job afterwards, not once for each poll it missed."""
    async with (
        Emulator(script=JobScript(duration=100)) as emulator,
        waiting(emulator, policy=every(2)) as (session, wait),
    ):
        refs = [(await session.create_job("Fix it")).ref for _ in range(10)]
        waits = [asyncio.ensure_future(wait(ref)) for ref in refs]
        await asyncio.sleep(9)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LoopTimeEventLoop)
        before = len(gets(emulator))
        loop.setup_looptime(start=loop.time() + 30)
        await asyncio.sleep(0.5)
        assert len(gets(emulator)) - before == len(refs)
        assert all(ended.succeeded for ended in await asyncio.gather(*waits))


# Reading once.


@pytest.mark.parametrize(
    "fault", [*BREAKS, *BAD_ANSWERS, "301", "400", "401", "404", "408", "410", "429", "500", "503"]
)
async def test_one_read(fault: str) -> None:
    """A read that fails is one request, on a fresh connection or a kept one, and ends in time with an error of ours."""
    async with (
        Emulator(script=ENDED) as emulator,
        emulator.session(project_id="docs", timeouts=SOON) as session,
    ):
        created = await session.create_job("Fix it")
        for kept in (False, True):
            if kept:
                assert (await session.get_job(created)).succeeded
            await emulator.inject(f"{fault} on=get")
            before, began = len(gets(emulator)), clock()
            await _fails(session, created)
            assert clock() - began <= 5.25
            assert len(gets(emulator)) - before == 1
        assert (await session.get_job(created)).succeeded


async def _fails(session: AgentJobsSession, created: AgentJob) -> None:
    with pytest.raises(AgentJobsError) as caught:
        await session.get_job(created)
    assert caught.value.outcome is None


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
