"""What holds creates back, and whom: outages, refused keys, limits of a project."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from agentjobs_async import AgentJob, AgentJobsError, AuthError, CreateOutcomeUnknownError
from agentjobs_async.batch import Batch, BatchItem, BatchResult, BatchWorker, Journal, Rate, run_batch
from tests.batch.stage import (
    FakeSession,
    created_by_hand,
    failing,
    items,
    outcomes,
    rate_limited,
    refused_key,
    rejected,
    run,
    states,
)
from tests.polled import gaps

pytestmark = [pytest.mark.looptime, pytest.mark.slow]

Answer = Callable[[str, str | None, float], AgentJobsError | None]


class Service(FakeSession):
    """A session whose service answers by what is asked, for which project, and when.

    Attributes:
        times: When creates were sent, by project.
    """

    def __init__(self, answer: Answer, *, takes: float = 0.1, duration: float = 0.0) -> None:
        super().__init__(duration)
        self.times: dict[str | None, list[float]] = {}
        self._answered = answer
        self._takes = takes
        self._began = asyncio.get_running_loop().time()

    async def _create(self, prompt: str, project_id: str | None) -> AgentJob:
        now = asyncio.get_running_loop().time() - self._began
        self.times.setdefault(project_id, []).append(now)
        await asyncio.sleep(self._takes)
        error = self._answered(prompt, project_id, now)
        if error is not None:
            raise error
        return await super()._create(prompt, project_id)


def gateway(status: int, retry_after: float | None = None) -> AgentJobsError:
    return CreateOutcomeUnknownError(f"HTTP {status}", "response", status, retry_after)


def of_projects(count: int, *names: str, blocks: bool = False) -> list[BatchItem]:
    """Return items of some projects by turns, or all of the first one, then all of the second one, and so on."""
    all_items = [BatchItem(f"{name}{number}", f"{name}{number}", name) for number in range(count) for name in names]
    return sorted(all_items, key=lambda item: str(item.project_id)) if blocks else all_items


async def test_one_at_a_time(file_journal: Journal) -> None:
    """After three unknown creates in a row, one at a time is sent, after 1 s doubling to 60 s, until one has a job."""
    service = Service(lambda _, __, now: gateway(504) if now < 400 else None, takes=0.0)
    await run(service, items(40), file_journal, max_active=1, unknown_for=0.0)
    times = service.times["docs"]
    gaps = [round(later - earlier) for earlier, later in itertools.pairwise(times)]
    assert gaps[:12] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert set(gaps[14:]) == {0}


async def test_as_the_server_asks(file_journal: Journal) -> None:
    """While one create at a time goes, the next waits as long as the server asked, up to an hour."""
    waits = iter([None, None, 90.0, 30.0, 86_400.0])
    service = Service(lambda *_: gateway(503, wait) if (wait := next(waits, -1.0)) != -1.0 else None, takes=0.0)
    await run(service, items(8), file_journal, max_active=1, unknown_for=0.0)
    times = service.times["docs"]
    assert [round(later - earlier) for earlier, later in itertools.pairwise(times)][:5] == [0, 0, 90, 30, 3600]


async def test_a_definite_answer_between(file_journal: Journal) -> None:
    """Unknown creates with definite answers between them hold nothing back, be these refusals."""
    faults = {number: rejected() if number % 3 == 2 else gateway(502) for number in range(30)}
    service = Service(lambda prompt, *_: faults[int(prompt[1:])], takes=0.0)
    await run(service, items(30), file_journal, max_active=1, unknown_for=0.0)
    assert service.times["docs"][-1] < 1


@pytest.mark.parametrize("blocks", [True, False])
async def test_an_outage_of_one_project(file_journal: Journal, *, blocks: bool) -> None:
    """An outage behind one project leaves the others alone, in whatever order their items come."""
    service = Service(lambda _, project, now: gateway(504) if project == "bad" and now < 300 else None)
    todo = of_projects(50, "bad", "good", blocks=blocks)
    results = await run(service, todo, file_journal, max_active=5, unknown_for=0.0)
    assert {result.outcome for result in results if result.item.project_id == "good"} == {"completed"}
    assert service.times["good"][-1] < 20
    assert service.agents.total() >= 80


async def test_unknown_items_keep_their_slots(file_journal: Journal) -> None:
    """An unknown item keeps its slot of max_active for unknown_for seconds, since its agent may be at work."""
    service = Service(lambda prompt, *_: gateway(504) if prompt in {"p0", "p1"} else None, takes=0.0)
    await run(service, items(4), file_journal, max_active=2, unknown_for=100.0)
    first, second, third, fourth = service.times["docs"]
    assert second - first < 1
    assert third - first >= 100
    assert fourth - first < 102


async def test_unknown_items_of_an_earlier_run(virtual_journal: Journal) -> None:
    """What became unknown in an earlier run keeps its slot for the rest of its time; what has a job is waited for."""
    wall = asyncio.get_running_loop().time
    service = Service(lambda prompt, *_: gateway(504) if prompt == "p0" else None, takes=0.0)
    await run(service, items(1), virtual_journal)
    await asyncio.sleep(400)
    await virtual_journal.add(items(2, first=1))
    job = await service.create_job("p1", timeout=1.0, retry=False, label="k1")
    await created_by_hand(virtual_journal, "k1", job.ref)
    before = wall()
    async with run_batch(service.session, (), journal=virtual_journal, max_active=1) as batch:
        assert (await anext(batch)).item.key == "k1"
        assert wall() - before < 1
        assert batch.stats().next_create == pytest.approx(200, abs=2)
        await asyncio.sleep(1)
        assert str(batch.stats().paused_by).startswith("unknown items keep all slots")
        assert (await anext(batch)).item.key == "k2"
        assert wall() - before == pytest.approx(200, abs=2)


async def test_the_next_create_beside_an_unknown_item(file_journal: Journal) -> None:
    """While a job is at work, the next create is not said to wait for the slot that an unknown item keeps."""
    service = Service(lambda prompt, *_: gateway(504) if prompt == "p0" else None, takes=0.0, duration=100.0)
    async with run_batch(service.session, items(3), journal=file_journal, max_active=2) as batch:
        assert (await anext(batch)).item.key == "k0"
        await service.creates(2)
        await asyncio.sleep(10)
        assert batch.stats().next_create is None
        assert str(batch.stats().paused_by) == "max_active is used up by this run: 1 active, 1 unknown"
        assert [result.item.key for result in await results_of(batch)] == ["k1", "k2"]


async def results_of(batch: Batch) -> list[BatchResult]:
    return [result async for result in batch]


async def test_an_outage_is_told(file_journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """The stats tell what holds the creates back all the time, and one warning does so once."""
    service = Service(lambda _, __, now: gateway(503, 30.0) if now < 300 else None)
    async with run_batch(service.session, items(30), journal=file_journal, max_active=1, unknown_for=0.0) as batch:
        reading = asyncio.ensure_future(results_of(batch))
        reasons = []
        for _ in range(20):
            await asyncio.sleep(10)
            reasons.append(batch.stats().paused_by)
        assert {type(reason) for reason in reasons} == {CreateOutcomeUnknownError}
        assert len(await reading) == 30
        assert batch.stats().paused_by is None
    warnings = [message for message in caplog.messages if "held back" in message]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "creates of project docs are held back, and sent one at a time until one is answered definitely: "
    )
    assert "HTTP 503" in warnings[0]


async def test_rates_over_restarts(virtual_journal: Journal) -> None:
    """What earlier runs sent counts for its project only."""
    service = Service(lambda *_: None)
    await run(service, of_projects(3, "a"), virtual_journal, create_rate=Rate(3, per=1000))
    await run(service, of_projects(4, "a", "b"), virtual_journal, create_rate=Rate(3, per=1000))
    assert service.times["b"][2] < 5
    assert service.times["a"][3] == pytest.approx(1000, abs=5)
    assert service.times["b"][3] == pytest.approx(1000, abs=5)


async def test_a_429_of_one_project(virtual_journal: Journal) -> None:
    """A 429 holds its project back, over a restart too, and no other."""
    answers = {"a0": [rate_limited(500)]}
    service = Service(lambda prompt, *_: answers[prompt].pop() if answers.get(prompt) else None)
    async with run_batch(service.session, of_projects(3, "a"), journal=virtual_journal, max_active=1) as batch:
        while batch.stats().paused_by is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
    results = await run(service, of_projects(3, "a", "b", blocks=True), virtual_journal, max_active=1)
    assert set(outcomes(results).values()) == {"completed"}
    assert service.times["b"][-1] < 10
    assert service.times["a"][1] == pytest.approx(500, abs=3)


async def test_a_claim_that_is_answered_after_a_429(virtual_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item whose claim is answered while its project is held back is not sent before the server allows it."""
    real, slow = virtual_journal.store.claim, ["a1"]

    async def claim(key: str, *rest: Any) -> Any:
        if key in slow:
            slow.remove(key)
            await asyncio.sleep(1)
        return await real(key, *rest)

    monkeypatch.setattr(virtual_journal.store, "claim", claim)
    answers = {"a0": [rate_limited(500)]}
    service = Service(lambda prompt, *_: answers[prompt].pop() if answers.get(prompt) else None)
    await run(service, of_projects(2, "a"), virtual_journal, max_active=2, max_sending=2)
    assert [round(time / 100) for time in service.times["a"]] == [0, 5, 5]


async def test_a_slot_that_is_waited_for_takes_no_part_of_a_rate(virtual_journal: Journal) -> None:
    """Of a rate for all projects, an item that waits for a slot takes no part from an item of another project."""
    service = Service(lambda prompt, *_: gateway(504) if prompt in {"a0", "a1"} else None, takes=0.0)
    todo, rate = [*of_projects(3, "a"), *of_projects(1, "b")], Rate(3, per=1000, scope="all")
    await run(service, todo, virtual_journal, max_active=2, create_rate=rate, unknown_for=600.0)
    assert service.times["b"][0] < 1
    assert service.times["a"][2] >= 600


async def test_an_item_withdrawn_before_its_claim_takes_no_part_of_a_rate(
    virtual_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An item that is abandoned right before it is claimed leaves its part of a rate to the next one."""
    real = virtual_journal.store.claim

    async def claim(key: str, *rest: Any) -> Any:
        if key == "k0":
            await virtual_journal.abandon(key)
        return await real(key, *rest)

    monkeypatch.setattr(virtual_journal.store, "claim", claim)
    session = FakeSession()
    async with asyncio.timeout(100):
        results = await run(session, items(2), virtual_journal, max_sending=1, create_rate=Rate(1, per=1000))
    assert outcomes(results) == {"k0": "abandoned", "k1": "completed"}
    told = [result.error.public_message for result in results if isinstance(result.error, AgentJobsError)]
    assert told == ["The job was withdrawn before it was started."]
    assert session.agents == {"p1": 1}


async def test_429_without_a_wish(virtual_journal: Journal) -> None:
    """It holds the creates of its project back for 1 s, doubling, whichever item is sent next; others go on."""
    service = Service(lambda _, project, now: rate_limited(None) if project == "a" and now < 100 else None)
    results = await run(service, of_projects(30, "a", "b"), virtual_journal, max_active=5, max_sending=5)
    assert set(outcomes(results).values()) == {"completed"}
    assert service.times["b"][-1] < 10
    pauses = [gap for gap in gaps(service.times["a"]) if gap > 0.5]
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 60], abs=0.3)


@pytest.mark.parametrize(
    ("kind", "status", "max_active"),
    [
        ("list", 401, 3),
        ("iterator", 403, 3),
        ("async", 401, 3),
        ("planned", 403, 3),
        ("begun", 403, 1),
        ("begun", 401, 2),
    ],
)
async def test_a_key_refused_for_one_project(file_journal: Journal, kind: str, status: int, max_active: int) -> None:
    """Items of a project whose creates are refused stay planned; the others go on, and the error comes last of all."""
    service = Service(lambda _, project, __: refused_key(status) if project == "a" else None, duration=50)
    todo: Any = of_projects(20, "a", "b", blocks=True)
    if kind == "planned":
        await file_journal.add(todo)
        todo = ()
    elif kind == "begun":
        await file_journal.add([todo[0], *todo[-2:]])
    elif kind == "iterator":
        todo = iter(todo)
    elif kind == "async":
        todo = at_hand(todo)
    results = await failing(AuthError, service, todo, file_journal, max_active=max_active)
    assert outcomes(results) == {f"b{number}": "completed" for number in range(20)}
    assert len(service.times["a"]) <= 3
    assert {key: state for key, state in states(await file_journal.rows()).items() if key.startswith("a")} == {
        f"a{number}": "planned" for number in range(20)
    }


async def at_hand(todo: list[BatchItem]) -> AsyncIterator[BatchItem]:
    for item in todo:
        yield item


async def test_a_wrong_key_ends_an_endless_source(file_journal: Journal) -> None:
    """A key that never worked ends a run of one project at once, also when its source never ends or is silent."""

    def endless() -> Iterator[BatchItem]:
        yield from (BatchItem(f"k{number}", "p") for number in range(10**9))

    async def silent() -> AsyncIterator[BatchItem]:
        yield BatchItem("s", "p")
        await asyncio.Event().wait()

    for source in (endless(), silent()):
        service = Service(lambda *_: refused_key())
        async with asyncio.timeout(60):
            with pytest.raises(AuthError):
                await run(service, source, file_journal, max_active=100, max_sending=1)
        assert len(service.sent) == 1


async def test_an_item_that_ends_a_silence(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source whose item is being planned is no longer silent: what the server refuses meanwhile ends no run."""
    plan = file_journal.store.plan

    async def slowly(*arguments: Any) -> Any:
        await asyncio.sleep(1)
        return await plan(*arguments)

    async def source() -> AsyncIterator[BatchItem]:
        yield BatchItem("a0", "a0", "a")
        await asyncio.sleep(3)
        yield BatchItem("b0", "b0", "b")

    monkeypatch.setattr(file_journal.store, "plan", slowly)
    service = Service(lambda _, project, __: refused_key() if project == "a" else None, takes=2.5)
    assert outcomes(await failing(AuthError, service, source(), file_journal)) == {"b0": "completed"}


async def test_a_refusal_that_is_over(file_journal: Journal) -> None:
    """A create that succeeds after a 403 lets the next one of its project go at once, not when a job has ended."""
    session = FakeSession(duration=100.0)
    session.answers = {"p0": [refused_key(403)], "p1": [1.0]}
    results = await failing(AuthError, session, items(3), file_journal, max_active=2)
    assert outcomes(results) == {"k1": "completed", "k2": "completed"}
    assert session.sent[2][0] - session.sent[0][0] < 2


async def test_a_worker_whose_key_is_refused_for_one_project(file_journal: Journal) -> None:
    """A worker goes on with other projects, gives back what stays planned, and tries that again after a while."""
    allowed_from = 200.0
    service = Service(lambda _, project, now: refused_key(403) if project == "a" and now < allowed_from else None)
    await file_journal.add(of_projects(20, "a", "b"))
    chunks = [[f"{name}{number}" for number in range(20)] for name in ("a", "b")]
    async with BatchWorker(service.session, file_journal, max_sending=2) as worker:
        refused, done = await asyncio.gather(*map(worker.run, chunks))
        assert (len(refused), done) == (20, ())
        for _ in range(20):
            if not (refused := await worker.run(chunks[0])):
                break
            await asyncio.sleep(30)
        assert refused == ()
    assert len([time for time in service.times["a"] if time < allowed_from]) <= 6


async def test_a_worker_whose_key_is_wrong(file_journal: Journal) -> None:
    """A worker ends with the error when its key never worked and nothing else could go, not before that."""
    service = Service(lambda *_: refused_key())
    await file_journal.add(of_projects(3, "a", "b"))
    async with BatchWorker(service.session, file_journal) as worker:
        assert await worker.run(["a0", "a1"]) == ("a0", "a1")  # others are planned
        with pytest.raises(AuthError):
            await worker.run(["b0"])
    assert set(states(await file_journal.rows()).values()) == {"planned"}


async def test_a_slot_of_a_long_job(file_journal: Journal) -> None:
    """What waits for a slot is begun when an item ends, and no more are active than allowed, over all projects."""
    service = Service(lambda *_: None, duration=30)
    most = 0
    async with run_batch(service.session, of_projects(6, "a", "b", "c"), journal=file_journal, max_active=4) as batch:
        async for _ in batch:
            most = max(most, batch.stats().active)
    assert most <= 4
    assert service.agents.total() == 18
