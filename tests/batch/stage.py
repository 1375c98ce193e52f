"""A session without a network, and short ways to run a batch."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Connection, select

from agentjobs_async import (
    AgentJob,
    AgentJobsError,
    AgentJobsSession,
    AuthError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    History,
    JobRef,
    JobTracker,
    NotSentError,
    PollPolicy,
    RateLimitedError,
    RejectedError,
    ServerError,
    WaitTimeoutError,
    wait_learned,
)
from agentjobs_async._loop.shutdown import Shutdown
from agentjobs_async._polling.limiters import PollLimits
from agentjobs_async.batch import BatchItem, BatchResult, Journal, JournalRow, State, run_batch
from agentjobs_async.batch._database.connections import AnyConnection
from agentjobs_async.batch._database.schema import ITEMS
from agentjobs_async.batch._run.records import Records
from agentjobs_async.batch._store.owning import free_own
from agentjobs_async.batch._store.store import Store
from agentjobs_async.batch.states import CREATED, Move
from agentjobs_async.errors import NotSentReason

FOREVER = 1e9
NO_KEYS: list[Any] = ["", "\ud800", "\0", "a\nb", "x" * 513, "#" * 513 + "#2", b"k", ["k"], 3]
"""What can be no key of an item."""


@asynccontextmanager
async def connected(journal: Journal) -> AsyncIterator[AnyConnection]:
    """A connection of the journal's own, as it makes them for its reads."""
    database = journal._opened.database
    assert database is not None
    connection = await database.connector.open()
    try:
        yield connection
    finally:
        await connection.close()


@contextmanager
def unused(journal: Journal) -> Iterator[None]:
    """A block in which nothing reads or writes the journal."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the journal was used")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("read", "write"):
            patch.setattr(journal.store._database, name, refuse)
        yield


async def set_pragma(journal: Journal, setting: str) -> None:
    """Change a setting of the connection by which a journal in a file writes."""
    database = journal._opened.database
    assert database is not None
    assert database._changes.connection is not None
    await database._changes.connection.run_sync(_set_pragma, setting)


def _set_pragma(connection: Connection, setting: str) -> None:
    connection.exec_driver_sql(f"PRAGMA {setting}")
    connection.rollback()


def rejected(status: int = 422) -> AgentJobsError:
    return with_outcome(RejectedError(status, None, None, "no"), CreateOutcome.REJECTED)


def refused_key(status: int = 401) -> AgentJobsError:
    return with_outcome(AuthError(status), CreateOutcome.REJECTED)


def rate_limited(seconds: float | None) -> AgentJobsError:
    return with_outcome(RateLimitedError(429, None, seconds), CreateOutcome.REJECTED)


def gateway_refusal(seconds: float | None) -> AgentJobsError:
    return with_outcome(ServerError(503, None, seconds), CreateOutcome.REJECTED)


def not_sent(reason: NotSentReason = "refused") -> AgentJobsError:
    return with_outcome(NotSentError("nobody listens", reason), CreateOutcome.NOT_SENT)


def unknown() -> AgentJobsError:
    return CreateOutcomeUnknownError("it broke")


BY_HAND = "by hand"
"""The owner that tests are as they move rows by hand."""


def records_of(journal: Journal, owner: str = BY_HAND) -> Records:
    """Return what records the moves of an owner, without a mask."""
    return Records(journal.store, owner, str)


async def sent_by_hand(journal: Journal, key: str) -> str:
    """Claim a row as its create is sent, and return the claim."""
    claim = await journal.store.claim(key, BY_HAND)
    assert isinstance(claim, str)
    return claim


async def created_by_hand(journal: Journal, key: str, ref: JobRef, *, is_polled: bool = False) -> None:
    """Record the job of a row's create; nobody polls it then, unless the tests themselves do."""
    assert await records_of(journal).created(key, await sent_by_hand(journal, key), ref, None)
    if not is_polled:
        await free_own(journal.store, BY_HAND)


async def unknown_by_hand(journal: Journal, *keys: str) -> None:
    """Send the creates of some rows, and record that their outcomes are unknown."""
    for key in keys:
        claim = await sent_by_hand(journal, key)
        assert await records_of(journal).unknown(key, claim, ValueError("broke"))


async def rejected_by_hand(journal: Journal, *keys: str) -> None:
    """Let the server refuse the creates of some rows."""
    for key in keys:
        claim = await sent_by_hand(journal, key)
        assert await records_of(journal).rejected(key, claim, ValueError("no"))


async def state_of(journal: Journal, key: str) -> State:
    return (await journal.store.rows_of([key]))[key].state


async def claim_of(store: Store, key: str) -> str:
    """Return the claim under which a row was sent last; an empty text if it has none."""
    claims = await store.read(select(ITEMS.c.claim).where(ITEMS.c.key == key))
    return claims[0][0] or ""


def with_outcome(error: AgentJobsError, outcome: CreateOutcome) -> AgentJobsError:
    error.outcome = outcome
    return error


class FakeSession:
    """Creates and watches jobs in memory.

    Attributes:
        answers: By prompt, what its next creates raise, or for how many seconds they are under way.
        ends: By prompt, the status its job ends with, or what the wait raises.
        duration: Seconds until a job ends.
        agents: How many agents were started for each prompt.
        sent: Loop time of each create, in order, with its prompt.
        labels: By prompt, the label of its last create.
    """

    def __init__(self, duration: float = 0.0, key: str = "the-key-itself") -> None:
        self.duration = duration
        self._key = key
        self.project_id: str | None = "docs"
        self.answers: dict[str, list[Exception | float]] = {}
        self.ends: dict[str, str | BaseException] = {}
        self.agents: Counter[str] = Counter()
        self.sent: list[tuple[float, str]] = []
        self.prompts: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.under_way = 0
        self._limits = PollLimits(None)
        self._shutdown: Shutdown[JobRef] = Shutdown()
        self.most_under_way = 0

    @property
    def polls_per_second(self) -> float | None:
        """The limit that a journal has set."""
        return min((share.per_second for share in self._limits._shares.values()), default=None)

    async def create_job(
        self,
        prompt: str,
        *,
        project_id: str | None = None,
        timeout: float,  # noqa: ASYNC109 - the session's face
        retry: bool,
        label: str,
        before_send: Callable[[], bool] = lambda: True,
    ) -> AgentJob:
        assert timeout > 0
        self.labels[prompt] = label
        assert not retry
        await self.connect()
        if not before_send():
            raise not_sent("withheld")
        self.sent.append((asyncio.get_running_loop().time(), prompt))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            return await self._create(prompt, project_id)
        finally:
            self.under_way -= 1

    async def connect(self) -> None:
        """Do what comes before the first byte of a create."""

    def mask(self, text: str) -> str:
        return text.replace(self._key, "***")

    async def creates(self, count: int) -> None:
        """Wait until so many creates were sent."""
        while len(self.sent) < count:  # noqa: ASYNC110 - nobody tells of them
            await asyncio.sleep(0.001)

    async def _create(self, prompt: str, project_id: str | None) -> AgentJob:
        answer = self.answers[prompt].pop(0) if self.answers.get(prompt) else 0.0
        if isinstance(answer, Exception):
            await asyncio.sleep(0)
            raise answer
        self.agents[prompt] += 1
        job_id = f"job_{len(self.prompts)}"
        self.prompts[job_id] = prompt
        await asyncio.sleep(answer)
        return AgentJob(job_id, project_id or "docs", "active")

    def watch(self, job: AgentJob | JobRef | str, *, timeout: float | None) -> asyncio.Future[AgentJob]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[AgentJob] = loop.create_future()
        ref = job.ref if isinstance(job, AgentJob) else JobRef("docs", job) if isinstance(job, str) else job
        end = self.ends.get(self.prompts.get(ref.job_id, ""), "completed")
        if timeout is not None and timeout < self.duration:
            error = WaitTimeoutError(ref, AgentJob(ref.job_id, ref.project_id, "active"), None, 1, timeout)
            loop.call_later(timeout, _settle, found, error)
        else:
            link = "https://code.example/pull/1"
            ended = end if isinstance(end, BaseException) else AgentJob(ref.job_id, ref.project_id, end, pr_link=link)
            loop.call_later(self.duration, _settle, found, ended)
        return found

    @property
    def session(self) -> AgentJobsSession:
        return cast("AgentJobsSession", self)


def _settle(found: asyncio.Future[AgentJob], end: AgentJob | BaseException) -> None:
    if found.done():
        return
    if isinstance(end, asyncio.CancelledError):
        found.cancel()
    elif isinstance(end, BaseException):
        found.set_exception(end)
    else:
        found.set_result(end)


def items(count: int, first: int = 0) -> list[BatchItem]:
    return [BatchItem(f"k{number}", f"p{number}", "docs") for number in range(first, first + count)]


async def run(
    session: FakeSession | AgentJobsSession, todo: Any, journal: Journal, **settings: Any
) -> list[BatchResult]:
    """Run a batch to its end."""
    real = session.session if isinstance(session, FakeSession) else session
    settings = {"create_rate": None, **settings}
    async with run_batch(real, todo, journal=journal, **settings) as results:
        return [result async for result in results]


async def failing(
    error: type[BaseException], session: FakeSession, todo: Any, journal: Journal, **settings: Any
) -> list[BatchResult]:
    """Run a batch to the error by which it ends, and return the results before it."""
    results = []
    with pytest.raises(error):
        async with run_batch(session.session, todo, journal=journal, **settings) as batch:
            async for result in batch:
                results.append(result)
    return results


async def rows_of(path: Path | str) -> list[JournalRow]:
    async with Journal.open(path, read_only=True) as journal:
        return [row async for row in journal.rows()]


def states(rows: Iterable[JournalRow]) -> dict[str, str]:
    return {row.key: str(row.state) for row in rows}


def outcomes(results: Iterable[BatchResult]) -> dict[str, str]:
    return {result.item.key: str(result.outcome) for result in results}


def set_clock(journal: Journal, seconds: float) -> None:
    """Let a journal's clock stand at this time."""
    journal.store._clock = lambda: seconds


def hang(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let no id be written down any more, as while a database is gone; return what is set once one should be."""
    asked, move = asyncio.Event(), journal.store.move

    async def moved(how: Move, *args: Any, **named: Any) -> JournalRow | None:
        if how is CREATED:
            asked.set()
            await asyncio.Event().wait()
        return await move(how, *args, **named)

    monkeypatch.setattr(journal.store, "move", moved)
    return asked


class PolledSession(FakeSession):
    """Creates jobs in memory, and polls them through a tracker, in virtual time.

    Attributes:
        polled: The age of a job at each poll.
        created_at: When its jobs were created, as it says.
    """

    created_at: datetime | None = None

    def __init__(self, seconds: float, policy: PollPolicy | None = None) -> None:
        super().__init__()
        self.polled: list[float] = []
        self.created: dict[str, float] = {}
        self.tracker = JobTracker(self._read, policy=policy)
        self.learn_from = self.tracker.learn_from
        self._seconds = seconds

    async def _read(self, ref: JobRef) -> AgentJob:
        now = asyncio.get_running_loop().time()
        age = now - self.created.setdefault(ref.job_id, now)
        self.polled.append(age)
        status = "completed" if age >= self._seconds else "active"
        return AgentJob(ref.job_id, ref.project_id, status, created_at=self.created_at)

    def history_of(self, project_id: str) -> History | None:
        """Return the durations by which its jobs are waited for."""
        wait = self.tracker._policy.wait
        return wait.history_of(project_id, None) if isinstance(wait, wait_learned) else None

    def watch(self, job: AgentJob | JobRef | str, *, timeout: float | None) -> asyncio.Future[AgentJob]:
        assert isinstance(job, AgentJob | JobRef)
        return self.tracker.watch(job, timeout=timeout)
