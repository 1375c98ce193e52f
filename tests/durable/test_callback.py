import asyncio
from inspect import signature
from typing import Any

import pytest

from agentjobs_async import AgentJob, InvalidInputError
from agentjobs_async.batch import State
from agentjobs_async.durable import DurableEntry, RetryLater, Undeliverable
from agentjobs_async.durable._callback import Callback, Called

JOB = AgentJob("job_1", "docs", "completed")


def entry(key: str = "k") -> DurableEntry:
    return DurableEntry(key, State.COMPLETED, JOB.ref, JOB, {}, None)


async def test_plain_and_async() -> None:
    """A plain function is called, an async one awaited; both get the arguments."""
    called: list[tuple[Any, ...]] = []

    async def wait(*arguments: Any) -> None:
        await asyncio.sleep(0)
        called.append(arguments)

    assert (await Callback("on_end", lambda *arguments: called.append(arguments))(entry("1"), JOB)).is_done
    assert (await Callback("on_end", wait)(entry("2"), JOB)).is_done
    assert called == [(entry("1"), JOB), (entry("2"), JOB)]


async def test_errors(caplog: pytest.LogCaptureFixture) -> None:
    """An error is contained, and the first one of each type logged, a cancellation of the function's own included."""
    errors = [ValueError("no chat"), ValueError("again"), asyncio.CancelledError()]

    async def fail(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        await asyncio.sleep(0)
        raise errors.pop(0)

    callback = Callback("on_end", fail)
    for key in ("a", "b", "c"):
        assert not (await callback(entry(key), JOB)).is_done
    assert [record.getMessage() for record in caplog.records] == [
        f"on_end raised {error}; it is still called, but further errors of this type are not logged"
        for error in ("ValueError for 'a'", "CancelledError for 'c'")
    ]


async def test_cancelled() -> None:
    """The cancellation of the task that calls it goes on."""
    began = asyncio.Event()

    async def hang(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(Callback("on_end", hang)(entry(), JOB))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_undeliverable(caplog: pytest.LogCaptureFixture) -> None:
    """What can never be delivered is done, and each is logged with its reason, in one line."""

    def refuse(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        raise Undeliverable("the bot is\nblocked")

    callback = Callback("on_end", refuse)
    assert await callback(entry("a"), JOB) == Called(is_done=True)
    assert await callback(entry("b"), JOB) == Called(is_done=True)
    assert [record.getMessage() for record in caplog.records] == [
        f"on_end of {key!r} can't be delivered, and is not called again: the bot is\\nblocked" for key in ("a", "b")
    ]


async def test_retried_later(caplog: pytest.LogCaptureFixture) -> None:
    """What is to be told later names the time, from a second to an hour, and is no error in the log."""

    def refuse(entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        raise RetryLater(float(entry.key))

    callback = Callback("on_end", refuse)
    assert await callback(entry("7.5"), JOB) == Called(is_done=False, again_in=7.5)
    assert await callback(entry("86400"), JOB) == Called(is_done=False, again_in=3600.0)
    assert await callback(entry("0"), JOB) == Called(is_done=False, again_in=1.0)
    assert not caplog.records
    with pytest.raises(InvalidInputError, match="seconds"):
        RetryLater(float("nan"))


@pytest.mark.parametrize("seconds", [None, "5", float("nan"), float("inf"), -1.0])
async def test_told_later_by_a_subclass(seconds: Any) -> None:
    """A subclass that names no time, or none that is valid, is told again after the usual time."""

    class Later(RetryLater):
        def __init__(self) -> None:
            if seconds is not None:
                self.seconds = seconds

    def refuse(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        raise Later

    assert await Callback("on_end", refuse)(entry(), JOB) == Called(is_done=False, again_in=None)


async def test_told_later_by_a_property_that_raises() -> None:
    """An error that can't say when it wants to be told again is told again after the usual time, and is not lost."""

    class Later(RetryLater):
        def __init__(self, headers: dict[str, float]) -> None:
            self._headers = headers

        @property
        def seconds(self) -> float:  # type: ignore[override]  # as a careless subclass does
            return self._headers["Retry-After"]

    def refuse(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        raise Later({})

    assert await Callback("on_end", refuse)(entry(), JOB) == Called(is_done=False, again_in=None)


async def test_both() -> None:
    """What says both that it can't be delivered and that it can be later is told again: nothing is lost by that."""

    class Both(Undeliverable, RetryLater):
        pass

    def refuse(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        raise Both(5)

    assert await Callback("on_end", refuse)(entry(), JOB) == Called(is_done=False, again_in=5.0)


@pytest.mark.parametrize("error", [Undeliverable("blocked"), RetryLater(5)])
async def test_group(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """A group of errors is logged and told again, whatever is in it: what else it cut short was not delivered."""

    async def fail() -> None:
        raise error

    async def tell(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.Event().wait())

    assert await Callback("on_end", tell)(entry(), JOB) == Called(is_done=False, again_in=None)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_other_arguments() -> None:
    """A function that can't be called with an entry and a job is refused at once, not when the first job ends."""
    wrong: list[Any] = [lambda: None, lambda _entry: None, lambda _a, _b, _c: None, abs]
    for function in wrong:
        with pytest.raises(InvalidInputError, match="on_end must accept two arguments: the entry, and the job"):
            Callback("on_end", function)


def test_function_that_does_not_say_what_it_accepts() -> None:
    """Some functions in C have no signature; they are taken as they are."""
    with pytest.raises(ValueError, match="no signature"):
        signature(max)
    assert callable(Callback("on_end", max))
