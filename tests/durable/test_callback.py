import asyncio
from inspect import signature
from typing import Any

import pytest

from agentjobs_async import AgentJob, InvalidInputError
from agentjobs_async.batch import State
from agentjobs_async.durable import DurableEntry
from agentjobs_async.durable._callback import Callback

JOB = AgentJob("job_1", "docs", "completed")


def entry(key: str = "k") -> DurableEntry:
    return DurableEntry(key, State.COMPLETED, JOB.ref, JOB, {}, None)


async def test_plain_and_async() -> None:
    """A plain function is called, an async one awaited; both get the arguments."""
    called: list[tuple[Any, ...]] = []

    async def wait(*arguments: Any) -> None:
        await asyncio.sleep(0)
        called.append(arguments)

    assert await Callback("on_end", lambda *arguments: called.append(arguments))(entry("1"), JOB)
    assert await Callback("on_end", wait)(entry("2"), JOB)
    assert called == [(entry("1"), JOB), (entry("2"), JOB)]


async def test_errors(caplog: pytest.LogCaptureFixture) -> None:
    """An error is contained, and the first one of each type logged, a cancellation of the function's own included."""
    errors = [ValueError("no chat"), ValueError("again"), asyncio.CancelledError()]

    async def fail(_entry: DurableEntry, _ended: AgentJob | Exception) -> None:
        await asyncio.sleep(0)
        raise errors.pop(0)

    callback = Callback("on_end", fail)
    for key in ("a", "b", "c"):
        assert not await callback(entry(key), JOB)
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
