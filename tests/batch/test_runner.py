import asyncio
import gc
import itertools
import pickle
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from sqlalchemy import update

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AuthError,
    InvalidInputError,
    JobFailedError,
    JobRef,
    JournalError,
    NotFoundError,
    NotSentError,
    ServerError,
    SessionClosedError,
    WaitTimeoutError,
)
from agentjobs_async.batch import BatchItem, BatchWorker, Journal, JournalRow, Limits, Rate, State, run_batch
from agentjobs_async.batch._database.schema import ITEMS
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store import measures
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.states import CREATED, REJECT, RELEASE, Move
from tests.batch.stage import (
    BY_HAND,
    FOREVER,
    FakeSession,
    claim_of,
    failing,
    gateway_refusal,
    hang,
    items,
    not_sent,
    outcomes,
    rate_limited,
    records_of,
    refused_key,
    rejected,
    rows_of,
    run,
    sent_by_hand,
    states,
    unknown,
)

pytestmark = [pytest.mark.looptime, pytest.mark.slow]


async def test_planned_rows_fill_every_slot(file_journal: Journal) -> None:
    """A run of rows that were planned before ends although its last row took the last slot."""
    await file_journal.add(items(3))
    async with asyncio.timeout(600):
        results = await run(FakeSession(1.0), (), file_journal, max_active=1)
    assert outcomes(results) == dict.fromkeys(["k0", "k1", "k2"], "completed")


async def test_each_its_own_fate(journal: Journal) -> None:
    """Rejected, unknown, failed, archived and unreadable items disturb nobody, and rows say why."""
    session = FakeSession()
    session.answers = {"p0": [rejected()], "p1": [unknown()], "p2": [ValueError("a bug")], "p7": [rejected(451)]}
    session.ends = {"p3": "failed", "p4": "archived", "p5": ServerError(501), "p6": OSError("my get_job")}
    results = await run(session, items(10), journal)
    assert outcomes(results) == {
        **dict.fromkeys(["k0", "k7"], "rejected"),
        **dict.fromkeys(["k1", "k2"], "unknown"),
        "k3": "failed",
        "k4": "archived",
        **dict.fromkeys(["k5", "k6"], "active"),
        **dict.fromkeys(["k8", "k9"], "completed"),
    }
    assert set(session.agents.values()) == {1}
    rows = {row.key: row async for row in journal.rows()}
    assert {result.item.key: result.row for result in results} == rows
    assert session.labels == {row.prompt: key for key, row in rows.items()}
    assert all(row.job_id and row.pr_link and row.project_id == "docs" for row in (rows["k8"], rows["k9"]))
    assert (rows["k5"].state, rows["k0"].state, rows["k3"].error) == ("active", "rejected", None)
    assert str(rows["k0"].error).startswith("HTTP 422: no")
    assert [row.key for row in await journal.unknown()] == ["k1", "k2"]
    assert rows["k6"].error == "OSError: my get_job"
    errors = {result.item.key: result.error for result in results}
    assert isinstance(errors["k3"], JobFailedError)
    assert errors["k3"].job in [result.job for result in results]
    assert (errors["k4"], errors["k8"]) == (None, None)


async def test_duplicates_and_bad_items(journal: Journal) -> None:
    """A key met before in the run, and an item that can't be sent, give rejected results and leave no trace."""
    session = FakeSession()
    one = BatchItem("a", "first")
    bad = [BatchItem("", "x"), BatchItem("b", " "), BatchItem("c", "\ud800"), BatchItem("d", "x", "..")]
    bad += [BatchItem("e", 7), BatchItem(7, "x"), BatchItem("f\n", "x"), BatchItem("g" * 513, "x"), "a prompt"]  # type: ignore[arg-type,list-item]  # what a user may get wrong
    results = await run(session, iter([one, one, *bad, BatchItem("a", "second")]), journal, max_active=2)
    rejections = [result for result in results if result.outcome == "rejected"]
    assert len(rejections) == 2 + len(bad)
    assert {(type(result.error), result.row) for result in rejections} == {(InvalidInputError, None)}
    assert session.agents == {"first": 1}
    assert states([row async for row in journal.rows()]) == {"a": "completed"}
    assert outcomes(await run(session, iter([one, one]), journal)) == {"a": "rejected"}  # also where its row has ended
    assert await run(session, [one], journal) == []


async def test_lazy_reading(file_journal: Journal) -> None:
    """A source is read only as there is room, and not before results are taken."""
    read: list[int] = []

    def source() -> Iterator[BatchItem]:
        for item in items(1000):
            read.append(1)
            yield item

    async with run_batch(
        FakeSession().session, source(), journal=file_journal, max_active=3, create_rate=None
    ) as results:
        assert (await anext(results)).outcome == "completed"
        for _ in range(200):
            await asyncio.sleep(0.001)
        assert len(read) <= 10
    assert len(read) <= 10


async def test_a_source_of_its_own_kind(file_journal: Journal) -> None:
    """Any async iterable serves, also one that knows no closing."""

    class Source:
        def __init__(self) -> None:
            self._left = items(3)

        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> BatchItem:
            if not self._left:
                raise StopAsyncIteration
            return self._left.pop()

    assert len(await run(FakeSession(), Source(), file_journal)) == 3


async def test_going_on(location: str) -> None:
    """A second run sends what was planned, polls what was created, and leaves out what has ended."""
    session = FakeSession()
    session.ends = {"p0": ServerError(501)}
    async with Journal.open(location) as journal:
        await journal.add(items(3))
        await run(session, items(1), journal, limit=1)
        assert states([row async for row in journal.rows()]) == {"k0": "active", "k1": "planned", "k2": "planned"}
    session.ends.clear()
    async with Journal.open(location) as journal:
        results = await run(session, items(5), journal)
        assert outcomes(results) == {f"k{number}": "completed" for number in range(5)}
        assert await run(session, items(5), journal) == []
    assert session.agents == {f"p{number}": 1 for number in range(5)}


async def test_another_prompt_under_a_known_key(file_journal: Journal) -> None:
    """A key of an earlier run with another prompt or project is refused, for that reason; the row stays as it is."""
    session = FakeSession()
    await run(session, [BatchItem("a", "one", "docs")], file_journal)
    results = await run(session, [BatchItem("a", "two"), BatchItem("a", "one", "web")], file_journal)
    assert [result.outcome for result in results] == ["rejected", "rejected"]
    assert "another prompt" in str(results[0].error)
    assert "another project" in str(results[1].error)
    assert session.agents == {"one": 1}


async def test_timeout_leaves_the_row_resumable(file_journal: Journal) -> None:
    """An item whose time ran out gives timed_out with the job, and its row stays created; the next run waits again."""
    session = FakeSession(duration=100)
    (result,) = await run(session, items(1), file_journal, timeout=10)
    assert (result.outcome, isinstance(result.error, WaitTimeoutError)) == ("timed_out", True)
    assert result.job is not None
    (row,) = [row async for row in file_journal.rows()]
    assert (row.state, row.job_id) == ("active", "job_0")
    (result,) = await run(session, (), file_journal, timeout=None)
    assert (result.outcome, session.agents) == ("completed", {"p0": 1})


async def test_not_sent_is_tried_again(file_journal: Journal) -> None:
    """What was not sent goes again in the same run, after growing pauses of all creates."""
    session = FakeSession()
    session.answers = {"p0": [not_sent(), not_sent(), not_sent()]}
    results = await run(session, items(2), file_journal, max_active=1)
    assert outcomes(results) == {"k0": "completed", "k1": "completed"}
    times = [at for at, prompt in session.sent if prompt == "p0"]
    assert [round(later - earlier) for earlier, later in itertools.pairwise(times)] == [1, 2, 4]


@pytest.mark.parametrize(("share", "most"), [(0, 11), (1, 3)])
async def test_never_sent(file_journal: Journal, share: int, most: int) -> None:
    """What could not be sent in its time, refused at once or late, gives timed_out, stays planned, and is tried rarely.

    Its creates count for its time, and so do the pauses between them, so that it comes to its end.
    """
    tries = []

    class Unreachable(FakeSession):
        async def create_job(self, prompt: str, *, project_id: str | None = None, timeout: float, **_: object) -> Any:  # noqa: ASYNC109 - the session's face
            tries.append((prompt, project_id))
            await asyncio.sleep(share * timeout)
            raise not_sent()

    results = await run(Unreachable(), items(5), file_journal, timeout=300)
    assert {(result.outcome, type(result.error)) for result in results} == {("timed_out", NotSentError)}
    assert states(await file_journal.rows()) == {f"k{number}": "planned" for number in range(5)}
    assert len(tries) <= 5 * most


async def test_what_no_try_would_mend(file_journal: Journal) -> None:
    """An untrusted certificate, a proxy that refuses and a refused key end the run; what was not sent stays planned."""
    for error in (not_sent("certificate"), not_sent("proxy"), refused_key()):
        session = FakeSession()
        session.answers = {"p0": [error]}
        with pytest.raises(type(error)):
            await run(session, items(100), file_journal, max_active=1)
        assert len(session.sent) == 1
        assert states(await file_journal.rows())["k0"] == "planned"


def delay(journal: Journal, late: str, key: str, patch: pytest.MonkeyPatch) -> None:
    """Let the claim of `key`, or the record of its 429, wait until another row is recorded as rejected."""
    is_rejected = asyncio.Event()
    claim, move = journal.store.claim, journal.store.move

    async def wait() -> None:
        await is_rejected.wait()
        await asyncio.sleep(0.01)

    async def claimed(claiming: str, *rest: Any) -> Any:
        if (late, claiming) == ("claim", key):
            await wait()
        return await claim(claiming, *rest)

    async def moved(how: Move, moving: str, *rest: Any, **settings: Any) -> JournalRow | None:
        if how is RELEASE and (late, moving) == ("429", key):
            await wait()
        row = await move(how, moving, *rest, **settings)
        if how is REJECT:
            is_rejected.set()
        return row

    patch.setattr(journal.store, "claim", claimed)
    patch.setattr(journal.store, "move", moved)


@pytest.mark.parametrize("late", ["claim", "429"])
async def test_nothing_is_sent_after_the_halt(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Once nothing more may begin, neither a create goes that was just let go, nor one that was answered with 429."""
    session = FakeSession()
    session.answers = {"p0": [rejected()], "p1": [rate_limited(1)]}
    delay(file_journal, late, "k1", monkeypatch)
    results = await run(session, items(2), file_journal, max_failures=1)
    assert outcomes(results) == {"k0": "rejected"}
    assert [prompt for _, prompt in session.sent] == (["p0"] if late == "claim" else ["p0", "p1"])
    assert states(await file_journal.rows()) == {"k0": "rejected", "k1": "planned"}


async def test_no_result_is_lost_by_a_halt(file_journal: Journal) -> None:
    """What has ended by the time when nothing more may begin gives its result, also where its row stays planned."""
    session = FakeSession()
    error = InvalidInputError("project_id is missing")
    error.outcome = not_sent().outcome
    session.answers = {"p0": [rejected()], **{f"p{number}": [error] for number in range(1, 4)}}
    async with run_batch(session.session, items(4), journal=file_journal, max_active=2, max_failures=3) as batch:
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len([result async for result in batch]) >= 3


async def test_a_retry_after_pauses_all_creates(file_journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    """A 429, or a 5xx that the session was told is a refusal, holds back every create as long as it asks for.

    The stats tell it, and the log has said so. Its item goes again however often that happens.
    """
    session, limited = FakeSession(), rate_limited(500)
    session.answers = {"p0": [limited, gateway_refusal(500)]}
    async with run_batch(session.session, items(4), journal=file_journal, max_sending=1, timeout=30) as batch:
        while batch.stats().paused_by is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        assert batch.stats().paused_by is limited
        results = [result async for result in batch]
        assert batch.stats().paused_by is None
    assert caplog.messages[0].startswith("creates of project docs are held back for 500 s: HTTP 429")
    assert outcomes(results) == {f"k{number}": "completed" for number in range(4)}
    times = [at for at, _ in session.sent]
    assert times[1] - times[0] >= 500
    assert len([gap for gap in (b - a for a, b in itertools.pairwise(times)) if gap >= 499]) == 2


async def test_invalid_input_of_the_session(file_journal: Journal) -> None:
    """What the session refuses before any I/O is a rejected result; the row stays planned for a better session."""
    session = FakeSession()
    error = InvalidInputError("project_id is missing")
    error.outcome = not_sent().outcome
    session.answers = {"p0": [error]}
    (result,) = await run(session, items(1), file_journal)
    assert (result.outcome, result.error) == ("rejected", error)
    assert outcomes(await run(session, (), file_journal)) == {"k0": "completed"}


async def test_a_source_that_raises_while_the_key_is_refused(file_journal: Journal) -> None:
    """The run ends with the refusal where nothing else is left and its source has raised."""

    def plain() -> Iterator[BatchItem]:
        yield from items(5)
        raise OSError("the source broke")

    async def source() -> AsyncIterator[BatchItem]:
        for item in plain():
            yield item

    for kind in (plain, source):
        session = FakeSession()
        session.answers = {"p0": [refused_key(403)], "p1": [refused_key(403)]}
        with pytest.raises(AuthError):
            await run(session, kind(), file_journal, max_active=2)
        assert set(states(await file_journal.rows()).values()) == {"planned"}


class UnusualError(BaseException):
    """What no library raises."""


async def test_a_job_that_is_gone(file_journal: Journal) -> None:
    """A job that is gone, or not there beyond its grace, ends its row as failed; no later run waits for it."""
    session = FakeSession()
    session.ends = {"p0": NotFoundError(404), "p1": NotFoundError(410)}
    results = {result.item.key: result for result in await run(session, items(3), file_journal)}
    assert outcomes(results.values()) == {"k0": "failed", "k1": "failed", "k2": "completed"}
    for number, (row, status) in enumerate(zip(await file_journal.rows(), (404, 410), strict=False)):
        assert isinstance(results[row.key].error, NotFoundError)
        assert (row.state, row.job_id, row.error) == ("failed", f"job_{number}", f"its job is gone: HTTP {status}")
    assert await run(session, items(3), file_journal) == []


async def test_settled_while_its_job_is_waited_for(journal: Journal) -> None:
    """What was abandoned or given another job meanwhile stays so, however the wait ends, and its result says so."""
    session = FakeSession(100.0)
    session.answers = {"p0": [unknown()]}
    session.ends = {"p2": NotFoundError(410), "p3": ServerError(501)}
    await run(session, items(1), journal)
    await journal.resolve("k0", job_id="job_7")
    async with run_batch(session.session, items(4), journal=journal) as results:
        while (await journal.counts())[State.ACTIVE] < 4:  # noqa: ASYNC110 - nobody tells of them
            await asyncio.sleep(1)
        await journal.resolve("k0", job_id="job_8")
        for key in ("k1", "k2", "k3"):
            await journal.abandon(key)
        found = {result.item.key: (str(result.outcome), result.error is None) async for result in results}
    assert found.pop("k0") == ("active", False)
    assert {outcome for outcome, _ in found.values()} == {"abandoned"}
    assert states(await journal.rows()) == {"k0": "active", **dict.fromkeys(found, "abandoned")}


async def test_abandoned_before_it_is_sent(journal: Journal) -> None:
    """An item that is abandoned while it waits for its create is not sent: its result says so, and others get its slot.

    One that is abandoned before the run has read it gives no result, as all that has ended.
    """
    session = FakeSession()
    session.answers = {"p0": [100.0]}
    await journal.add(items(5))
    async with run_batch(session.session, [], journal=journal, max_active=2, max_sending=1) as results:
        await session.creates(1)
        while results.stats().waiting < 1:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.001)
        for key in ("k1", "k2", "k4"):
            await journal.abandon(key)
        found = {result.item.key: result async for result in results}
    assert {key: str(result.outcome) for key, result in found.items() if key in {"k0", "k1", "k3"}} == {
        "k0": "completed",
        "k1": "abandoned",
        "k3": "completed",
    }
    assert {str(found[key].outcome) for key in {"k2", "k4"} & set(found)} <= {"abandoned"}
    assert str(found["k1"].error) == "abandoned while planned"
    assert session.agents == {"p0": 1, "p3": 1}
    abandoned = dict.fromkeys(["k1", "k2", "k4"], "abandoned")
    assert states(await journal.rows()) == {"k0": "completed", "k3": "completed"} | abandoned


async def test_a_closed_session_ends_the_run(file_journal: Journal) -> None:
    """A session that was closed meanwhile ends the run with its error."""
    session = FakeSession()
    session.ends = {"p0": SessionClosedError("closed")}
    with pytest.raises(SessionClosedError):
        await run(session, items(5), file_journal, max_active=1)


async def test_max_failures(file_journal: Journal) -> None:
    """After so many failures nothing more is begun, and those under way are waited for."""
    session = FakeSession()
    session.ends = dict.fromkeys(["p1", "p3"], "failed")
    async with run_batch(
        session.session, items(500), journal=file_journal, max_active=2, max_failures=2, create_rate=None
    ) as batch:
        results = [result async for result in batch]
        assert batch.stats().stopped
    assert list(outcomes(results).values()).count("failed") == 2
    assert len(results) < 20


async def test_leaving_keeps_ids(path: Path) -> None:
    """Leaving the block waits for the answers of creates under way, begins nothing more and ends no wait as an end."""
    session = FakeSession(duration=FOREVER)
    session.answers = {"p1": [5.0]}
    async with Journal.open(path) as journal:
        async with run_batch(session.session, items(9), journal=journal, max_active=2, create_rate=None) as batch:
            await session.creates(2)
            assert {item.key for item in batch.active()} == {"k0", "k1"}
        assert states([row async for row in journal.rows()])["k1"] == "active"
    assert len(session.sent) == 2


async def test_leaving_cuts_what_hangs(file_journal: Journal) -> None:
    """A create that gives no answer within ten seconds of the leaving is unknown."""
    session = FakeSession()
    session.answers = {"p0": [FOREVER]}
    loop = asyncio.get_running_loop()
    async with run_batch(session.session, items(1), journal=file_journal, create_rate=None):
        await session.creates(1)
        left = loop.time()
    assert loop.time() - left == pytest.approx(10, abs=1)
    assert [row.key for row in await file_journal.unknown()] == ["k0"]
    assert outcomes(await run(session, (), file_journal)) == {"k0": "unknown"}
    assert await run(session, (), file_journal) == []


async def test_leaving_early_leaves_no_task(file_journal: Journal) -> None:
    """Leaving with an error, or without a single look at the results, leaves no task of the run."""
    before = asyncio.all_tasks()
    batch = run_batch(FakeSession().session, items(50), journal=file_journal, create_rate=None)
    with pytest.raises(LookupError):
        async with batch:
            raise LookupError
    assert [task for task in asyncio.all_tasks() - before if "_write_all" not in repr(task)] == []
    assert [result async for result in batch] == []
    await batch.aclose()


async def test_full_journal_stops_the_planning(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item that can't be planned ends the run with a JournalError, after those before it."""
    real = file_journal.store.plan

    async def full(page: Sequence[BatchItem], page_id: str, project_id: str | None) -> dict[str, JournalRow]:
        if any(item.key == "k2" for item in page):
            raise JournalError("no room", "full")
        return await real(page, page_id, project_id)

    monkeypatch.setattr(file_journal.store, "plan", full)
    session = FakeSession()
    results = await failing(JournalError, session, items(50), file_journal, max_active=1)
    assert [result.item.key for result in results] == ["k0", "k1"]
    assert session.agents == {"p0": 1, "p1": 1}


async def test_a_row_that_somebody_else_claimed(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is not planned any more when its turn comes is left to whoever took it."""
    real = file_journal.store.claim

    async def late(key: str, *rest: Any) -> Any:
        if key == "k1":
            assert await real(key, BY_HAND)
        return await real(key, *rest)

    monkeypatch.setattr(file_journal.store, "claim", late)
    session = FakeSession()
    async with run_batch(session.session, items(3), journal=file_journal, create_rate=Rate(2, per=1000)) as results:
        found = [await anext(results), await anext(results)]
    assert outcomes(found) == {"k0": "completed", "k2": "completed"}
    assert session.agents == {"p0": 1, "p2": 1}


async def test_an_id_whose_row_was_changed(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An id that its row does not take, because somebody else changed that, is in the error and in the log."""
    real = file_journal.store.move

    async def changed(how: Move, key: str, *rest: Any, **settings: Any) -> JournalRow | None:
        if how is CREATED:
            await file_journal.store.write(update(ITEMS).values(claim="of somebody else"))
        return await real(how, key, *rest, **settings)

    monkeypatch.setattr(file_journal.store, "move", changed)
    with pytest.raises(JournalError, match=r"'k0' is docs~\.job_0") as caught:
        await run(FakeSession(), items(1), file_journal)
    assert caught.value.reason == "locked"
    assert "'k0' is docs~.job_0" in caplog.text


async def test_an_id_whose_row_was_abandoned(file_journal: Journal) -> None:
    """An item that was abandoned before its create was answered has ended so, with its job; the others are run."""
    session = FakeSession()
    session.answers = {"p0": [5.0]}
    running = asyncio.create_task(run(session, items(2), file_journal))
    await session.creates(2)
    claim = await claim_of(file_journal.store, "k0")
    assert await records_of(file_journal).unknown("k0", claim, ValueError("its owner counted as dead"))
    await file_journal.abandon("k0")
    results = {result.item.key: result for result in await running}
    assert outcomes(results.values()) == {"k0": "abandoned", "k1": "completed"}
    row = results["k0"].row
    assert row == (await file_journal.rows(State.ABANDONED))[0]
    assert (row.job_id, row.project_id, results["k0"].ref) == ("job_0", "docs", JobRef("docs", "job_0"))


async def test_a_rate_over_restarts(path: Path) -> None:
    """A rate counts the creates of earlier runs, also where a create waits for a slot."""
    session, wall, rate = FakeSession(duration=450), 1_000_000.0, Rate(1, per=200)
    loop = asyncio.get_running_loop()
    for count in (2, 5):
        async with Journal.open(path, clock=lambda: wall + loop.time()) as journal:
            await run(session, items(count), journal, create_rate=rate, max_active=2)
    times = [at for at, _ in session.sent]
    assert len(times) == 5
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 200


async def test_stats(file_journal: Journal) -> None:
    """The counts of a run tell what waits for the rate, what is active and what has ended."""
    session = FakeSession(duration=FOREVER)
    session.answers = {"p0": [rejected()]}
    rate = Rate(2, per=1000)
    async with run_batch(session.session, items(9), journal=file_journal, max_active=3, create_rate=rate) as batch:
        assert (await anext(batch)).outcome == "rejected"
        while batch.stats().waiting < 2 or not any(item.ref for item in batch.active()):  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.001)
        stats = batch.stats()
        assert (stats.waiting, stats.active, stats.outcomes, stats.stopped) == (2, 1, {"rejected": 1}, False)
        assert stats.next_create is not None
        assert 900 < stats.next_create <= 1000
        assert next((item.key, item.state, item.ref and item.ref.job_id) for item in batch.active()) == (
            "k1",
            "active",
            "job_0",
        )


WRONG_SETTINGS: dict[str, list[Any]] = {
    "max_active": [0, True, 1.5, 10**20],
    "max_sending": [0, 10**20],
    "max_failures": [0, "1"],
    "limit": [0],
    "timeout": [0, -1, float("inf"), float("nan"), True, "1", 1e300],
    "unknown_for": [-1, True, float("inf"), 1e300],
    "create_rate": [100],
    "items": [5, "prompt", ["prompt"], [("key", "prompt")]],
    "session": [None],
    "journal": ["run.db"],
}


def test_wrong_settings(path: Path) -> None:
    """Settings that make no sense are refused before anything happens."""
    accepted = []
    for setting, value in ((setting, value) for setting, values in WRONG_SETTINGS.items() for value in values):
        arguments: dict[str, Any] = {"session": FakeSession(), "items": (), "journal": Journal.open(path)}
        try:
            run_batch(**{**arguments, setting: value})
        except InvalidInputError as error:
            if setting in str(error):
                continue
        accepted.append((setting, value))
    assert accepted == []


async def test_a_journal_of_no_use(path: Path) -> None:
    """A batch on a journal that is read-only is refused at once, and one on a journal that is not open as it begins."""
    with pytest.raises(AgentJobsError, match="not open"):
        await run(FakeSession(), (), Journal.open(path))
    assert not list(path.parent.iterdir())
    with pytest.raises(InvalidInputError, match="read-only"):
        run_batch(FakeSession().session, (), journal=Journal.open(path, read_only=True))


async def test_outside_of_its_block(file_journal: Journal) -> None:
    """A batch that is not used as a block, or twice, is refused instead of hanging."""
    await run_batch(FakeSession().session, items(1), journal=file_journal).aclose()
    batch = run_batch(FakeSession().session, items(1), journal=file_journal)
    with pytest.raises(InvalidInputError, match="use it as async with"):
        await anext(batch)
    for look in (batch.stats, batch.active):
        with pytest.raises(InvalidInputError, match="use it as async with"):
            look()
    async with batch:
        assert len([result async for result in batch]) == 1
        with pytest.raises(InvalidInputError, match="runs once"):
            await batch.__aenter__()
    with pytest.raises(InvalidInputError, match="runs once"):
        await batch.__aenter__()


async def test_interrupted_items_are_told_once(location: str) -> None:
    """Rows that an earlier owner was sending give unknown results in the next run, once, and are not sent.

    One that was resolved before the run is not told as unknown.
    """
    async with Journal.open(location) as journal:
        await journal.add(items(3))
        for key in ("k0", "k2"):
            await sent_by_hand(journal, key)
    session, found = FakeSession(), {"k0": "unknown", "k1": "completed", "k2": "completed"}
    async with Journal.open(location) as journal:
        await journal.resolve("k2", job_id="job_7")
        results = await run(session, items(3), journal)
        assert (len(results), outcomes(results)) == (3, found)
        assert await run(session, items(3), journal) == []
    assert session.agents == {"p1": 1}
    assert states(await rows_of(location)) == found


@pytest.mark.parametrize("resolution", [{"job_id": "job_k3"}, {"send_again": True}], ids=str)
async def test_resolved_after_its_unknown_result(path: Path, resolution: dict[str, Any]) -> None:
    """An item that is resolved after its unknown result gives no second one; the next run continues with it."""
    async with Journal.open(path) as journal:
        await journal.add(items(4))
        for key in ("k0", "k1", "k3"):
            await sent_by_hand(journal, key)
    async with Journal.open(path) as journal:
        for key in ("k0", "k1"):
            await journal.resolve(key, job_id=f"job_{key}")
        session: Any = FakeSession()
        async with run_batch(session, [], journal=journal, max_active=1) as batch:
            results = [await anext(batch)]
            await journal.resolve("k3", **resolution)
            results += [result async for result in batch]
        ended = dict.fromkeys(("k0", "k1", "k2"), "completed")
        assert (len(results), outcomes(results)) == (4, ended | {"k3": "unknown"})
        assert outcomes(await run(FakeSession(), [], journal)) == {"k3": "completed"}


@pytest.mark.parametrize("resolution", [{"job_id": "job_k2"}, {"send_again": True}], ids=str)
async def test_resolved_before_it_is_told(location: str, resolution: dict[str, Any]) -> None:
    """What is resolved before a run has given it as unknown is run to its end by this run."""
    async with Journal.open(location) as journal:
        await journal.add(items(3))
        for key in ("k0", "k1", "k2"):
            await sent_by_hand(journal, key)
    async with Journal.open(location) as journal:
        # No more than two are read before a result is taken.
        async with run_batch(FakeSession().session, [], journal=journal, max_active=1) as batch:
            await journal.resolve("k2", **resolution)
            results = [result async for result in batch]
    assert (len(results), outcomes(results)) == (3, {"k0": "unknown", "k1": "unknown", "k2": "completed"})


class LossyError(Exception):
    """Somebody's own exception that can't be printed."""

    def __str__(self) -> str:
        raise ValueError


async def test_unusual_ends_of_a_wait(file_journal: Journal) -> None:
    """Whatever a `get_job` of the user's raises, a refused key too, its item stays active, and the run goes on."""
    session = FakeSession()
    session.ends = {"p0": asyncio.CancelledError(), "p1": UnusualError(), "p2": LossyError(), "p3": AuthError(401)}
    results = {result.item.key: result for result in await run(session, items(5), file_journal)}
    assert outcomes(results.values()) == {**dict.fromkeys(["k0", "k1", "k2", "k3"], "active"), "k4": "completed"}
    for key, error in (("k0", asyncio.CancelledError()), ("k1", UnusualError())):
        assert str(results[key].error) == f"get_job raised {error!r}"
    refs = [results[f"k{number}"].ref for number in range(4)]
    assert [ref and session.prompts[ref.job_id] for ref in refs] == ["p0", "p1", "p2", "p3"]
    assert (await file_journal.rows())[2].error == "LossyError: LossyError"


async def test_no_key_in_the_journal(file_journal: Journal) -> None:
    """A key that somebody's own way to read jobs echoes is masked in the journal, before anything is cut off."""
    session = FakeSession()
    session.ends = {"p0": ValueError("x" * 1990 + " the-key-itself")}
    await run(session, items(1), file_journal)
    assert "the-key" not in str((await file_journal.rows())[0].error)
    link, records = "https://code.example/the-key-itself", Records(file_journal.store, BY_HAND, session.mask)
    assert await records.ended("k0", AgentJob("job_0", "docs", "completed", pr_link=link), 1)
    assert (await file_journal.rows())[0].pr_link == "https://code.example/***"


async def test_a_silent_source_holds_up_no_end(file_journal: Journal) -> None:
    """A run that begins nothing more does not wait for the next item of a source that gives none, nor does leaving.

    Not even if the source swallows its cancellation.
    """
    silence = asyncio.Event()

    async def source(key: str) -> AsyncIterator[BatchItem]:
        yield BatchItem(key, "p0")
        while not silence.is_set():
            with suppress(asyncio.CancelledError):
                await silence.wait()

    async with asyncio.timeout(60):
        assert len(await run(FakeSession(), source("bad\n"), file_journal, max_failures=1)) == 1
        assert len(await run(FakeSession(), source("good"), file_journal, limit=1)) == 1
        async with run_batch(FakeSession().session, source("left"), journal=file_journal) as results:
            assert (await anext(results)).outcome == "completed"
    silence.set()


async def test_a_source_that_cancels_its_own_task(file_journal: Journal) -> None:
    """A source whose own timer cancels its task, and that goes on, is read to its end."""

    async def source() -> AsyncIterator[BatchItem]:
        yield BatchItem("k0", "p0")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        yield BatchItem("k1", "p1")

    assert len(await run(FakeSession(), source(), file_journal)) == 2


async def test_several_readers(file_journal: Journal) -> None:
    """Several tasks may read one batch: each result goes to one of them, and all of them come to the end."""
    async with run_batch(FakeSession().session, items(5), journal=file_journal) as batch:

        async def read() -> list[str]:
            return [result.item.key async for result in batch]

        async with asyncio.timeout(60):
            read_by_each = await asyncio.gather(read(), read(), read())
    assert sorted(key for keys in read_by_each for key in keys) == [f"k{number}" for number in range(5)]


@pytest.mark.parametrize("reading", [True, False])
async def test_all_lost_ids_are_told(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, reading: bool
) -> None:
    """Creates under way have their answers; the log and one error name every job that the journal could not take.

    Nothing more is sent.
    """
    real = file_journal.store.move

    async def full(how: Move, key: str, *rest: Any, **settings: Any) -> JournalRow | None:
        if how is CREATED:
            raise JournalError(f"no room for {key}", "full")
        return await real(how, key, *rest, **settings)

    monkeypatch.setattr(file_journal.store, "move", full)
    session = FakeSession()
    session.answers = {f"p{number}": [0.01 * number] for number in range(4)}
    with pytest.raises(JournalError) as caught:
        async with run_batch(session.session, items(50), journal=file_journal, max_active=4) as batch:
            await session.creates(4)
            if reading:
                await anext(batch)
    error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes, made in this line
    assert (error.reason, len(session.sent)) == ("full", 4)
    assert {session.prompts[ref.job_id] for ref in error.unrecorded} == {"p0", "p1", "p2", "p3"}
    for words in (f"the job of 'k{number}' is docs~.job_" for number in range(4)):
        assert words in str(error)
        assert words in caplog.text


@pytest.mark.parametrize("leaving", ["block", "aclose", "error", "cancelled"])
async def test_no_id_is_dropped_by_leaving(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, leaving: str
) -> None:
    """An id that is being written down when a run is left comes out in the log and the error, however it is left."""
    asked = hang(file_journal, monkeypatch)

    async def leave() -> None:
        async with run_batch(FakeSession().session, items(9), journal=file_journal, max_active=1) as batch:
            await asked.wait()
            if leaving == "aclose":
                await batch.aclose()
            elif leaving == "error":
                raise LookupError
            elif leaving == "cancelled":
                await asyncio.Event().wait()

    task = asyncio.create_task(leave())
    await asked.wait()
    if leaving == "cancelled":
        await asyncio.sleep(1)
        task.cancel()
    kind = {"error": LookupError, "cancelled": asyncio.CancelledError}.get(leaving, JournalError)
    with pytest.raises(kind) as caught:
        await task
    words = "the job of 'k0' is docs~.job_0: keep it"
    assert words in caplog.text
    if isinstance(caught.value, JournalError):
        assert [ref.to_token() for ref in caught.value.unrecorded] == ["docs~.job_0"]
    if leaving == "error":
        assert words in caught.value.__notes__[0]


async def test_no_id_is_dropped_by_cancelling_twice(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who cancels the leaving as well finds the ids in the log."""
    asked = hang(file_journal, monkeypatch)

    async def flush() -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(file_journal.store, "flush", flush)
        task = asyncio.create_task(run(FakeSession(), items(9), file_journal, max_active=1))
        await asked.wait()
        task.cancel()
        await asyncio.sleep(0.01)  # less than what the leaving waits for the journal
        assert "k0" not in caplog.text
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert "the job of 'k0' is docs~.job_0: keep it" in caplog.text


async def test_an_id_is_written_down_after_a_cancellation(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that is cancelled while a slow journal takes an id gives it that id, and tells of none."""
    real, asked = file_journal.store.move, asyncio.Event()

    async def slow(how: Move, *rest: Any, **settings: Any) -> JournalRow | None:
        if how is CREATED:
            asked.set()
            await asyncio.sleep(0)
        return await real(how, *rest, **settings)

    monkeypatch.setattr(file_journal.store, "move", slow)
    task = asyncio.create_task(run(FakeSession(), items(1), file_journal))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert states(await file_journal.rows()) == {"k0": "active"}
    assert "k0" not in caplog.text


@pytest.mark.parametrize("name", ["run.db", "run.db.lock"])
async def test_a_journal_that_was_moved(path: Path, name: str) -> None:
    """Nothing is sent any more when the journal or its lock was moved away: somebody else may own it now."""
    session = FakeSession()
    async with Journal.open(path) as journal:
        await journal.add(items(1))
        path.with_name(name).rename(path.with_name("moved"))
        with pytest.raises(JournalError) as caught:
            await journal.store.claim("k0", BY_HAND)
        assert caught.value.reason == "locked"
        with pytest.raises(JournalError):
            await run(session, (), journal)
    assert session.sent == []


async def test_faults_of_a_source(file_journal: Journal) -> None:
    """Whatever ends a source early comes out of the iteration, after the items before it; an async one is closed."""
    closed = 0

    def source(first: int, fault: type[BaseException]) -> Iterator[BatchItem]:
        yield from items(2, first)
        raise fault

    async def async_source(first: int, fault: type[BaseException]) -> AsyncIterator[BatchItem]:
        nonlocal closed
        try:
            for item in source(first, fault):
                yield item
        finally:
            closed += 1

    faults = {LookupError: LookupError, UnusualError: UnusualError, asyncio.CancelledError: AgentJobsError}
    kinds: list[Callable[..., Any]] = [source, async_source]
    for number, (kind, (fault, raised)) in enumerate(itertools.product(kinds, faults.items())):
        results = await failing(raised, FakeSession(), kind(2 * number, fault), file_journal)
        assert sorted(outcomes(results)) == [item.key for item in items(2, 2 * number)], (kind, fault)
    assert closed == len(faults)


async def test_an_async_source_is_read_in_groups(file_journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an async source has at hand is looked up together, not one by one."""
    await run(FakeSession(), items(400), file_journal)
    looked_up, real = [], file_journal.store.plan

    async def plan(page: Sequence[BatchItem], page_id: str, project_id: str | None) -> dict[str, JournalRow]:
        looked_up.append(len(page))
        return await real(page, page_id, project_id)

    monkeypatch.setattr(file_journal.store, "plan", plan)

    async def source() -> AsyncIterator[BatchItem]:
        for item in items(400):
            yield item

    assert await run(FakeSession(), source(), file_journal) == []
    assert sum(looked_up) == 400
    assert len(looked_up) < 10


async def test_counts_after_the_block(journal: Journal) -> None:
    """What the journal tells after the block is what stays: writes that were cut off have been carried out by then."""
    session = FakeSession()
    async with run_batch(session.session, items(200), journal=journal, max_active=40):
        await session.creates(20)
    after = await journal.counts()
    await journal.store.flush()
    assert await journal.counts() == after


async def test_the_project_of_an_unknown_row(journal: Journal) -> None:
    """A row keeps the project to which it was sent: one knows where to look, and a later default changes nothing."""
    session = FakeSession()
    session.project_id = "docs"
    session.answers = {"p0": [unknown()]}
    await run(session, items(1), journal)
    assert [row.project_id for row in await journal.unknown()] == ["docs"]
    await journal.resolve("k0", send_again=True)
    session.project_id = "web"
    (result,) = await run(session, (), journal)
    assert result.job is not None
    assert result.job.project_id == "docs"


async def test_another_default_project(journal: Journal) -> None:
    """What was planned under one default project stays there in a run with another, where its key is refused."""
    session = FakeSession()
    await run(session, [BatchItem(f"k{number}", f"p{number}") for number in range(3)], journal, limit=1)
    session.project_id = "web"
    again = BatchItem("k0", "p0")
    results = await run(session, [again], journal)
    assert {result.ref.project_id for result in results if result.ref is not None} == {"docs"}
    assert [(result.item, str(result.error)) for result in results if result.outcome == "rejected"] == [
        (again, "the key 'k0' is that of another project in the journal: use another key or another journal")
    ]
    assert set(session.agents.values()) == {1}
    assert {row.project_id for row in await journal.rows()} == {"docs"}


async def test_a_session_without_a_project(journal: Journal) -> None:
    """An item that names no project is refused where the session has none either; the others are sent."""
    session = FakeSession()
    session.project_id = None
    results = await run(session, [BatchItem("without", "p"), BatchItem("with", "q", "docs")], journal)
    assert outcomes(results) == {"without": "rejected", "with": "completed"}
    assert session.agents == {"q": 1}


async def test_result_names_the_item_as_it_was_given(journal: Journal) -> None:
    """A result's item equals the one that the run was given, though its row has the session's project by then."""
    session = FakeSession()
    session.project_id = "docs"
    session.answers = {"p0": [rejected()], "p1": [unknown()]}
    todo = [BatchItem(f"k{number}", f"p{number}") for number in range(4)]
    results = await run(session, todo, journal)
    assert sorted((result.item for result in results), key=lambda item: item.key) == todo
    assert {result.row.project_id for result in results if result.row is not None} == {"docs"}


async def test_retry_of_the_longest_key(journal: Journal) -> None:
    """An item whose key is as long as a key may be is sent once more, under that key."""
    item = BatchItem("k" * 512, "p")
    session = FakeSession()
    session.ends = {"p": "failed"}
    await run(session, [item], journal)
    assert await journal.retry(item.key) == item.key
    await run(session, [], journal)
    assert (session.agents["p"], session.labels["p"]) == (2, item.key)


async def test_polls_per_second_of_a_file(file_journal: Journal) -> None:
    """The sessions of a journal's runs and workers share its polls per second; an end lifts no limit of another one."""
    one, two = FakeSession(), FakeSession()
    await file_journal.set_limits(Limits(polls_per_second=3.0))
    async with BatchWorker(one.session, file_journal):
        async with BatchWorker(two.session, file_journal):
            await run(one, items(1), file_journal)
            assert (one.polls_per_second, two.polls_per_second) == (1.5, 1.5)
        assert (one.polls_per_second, two.polls_per_second) == (3.0, None)
    assert one.polls_per_second is None


async def test_polls_per_second_of_a_run_that_does_not_begin(
    file_journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails before its block is entered leaves no limit on the session."""

    async def broken(_store: Store, _seconds: float, _most: int) -> None:
        raise JournalError("the disk is gone", "io")

    monkeypatch.setattr(measures, "unknown_ages", broken)
    session = FakeSession()
    await file_journal.set_limits(Limits(polls_per_second=3.0))
    with pytest.raises(JournalError, match="the disk is gone"):
        await run(session, items(1), file_journal)
    assert session.polls_per_second is None


async def test_claim_that_an_earlier_run_left(file_journal: Journal) -> None:
    """A row whose claim an earlier run on the same open journal left without an answer is sent: nothing was."""
    await file_journal.add(items(1))
    claiming = asyncio.create_task(file_journal.store.claim("k0", BY_HAND))
    await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.wait([claiming])
    assert outcomes(await run(FakeSession(), items(0), file_journal)) == {"k0": "completed"}


async def test_a_session_of_the_callers_own(file_journal: Journal) -> None:
    """Without a limit of polls, a run needs the public calls of a session only: a double of it will do."""
    session = FakeSession()
    del session._limits
    assert outcomes(await run(session, items(1), file_journal)) == {"k0": "completed"}


async def test_errors_are_freed_at_once(file_journal: Journal) -> None:
    """The error of a refused create is freed with the last reference, not by the garbage collector."""
    session = FakeSession()
    session.answers = {"p0": [rejected()]}
    gc.collect()
    gc.disable()
    try:
        results = await run(session, items(1), file_journal)
        error = results.pop().error
        assert error is not None
        freed = weakref.ref(error)
        session.answers.clear()
        del error
        assert freed() is None
    finally:
        gc.enable()
