import asyncio
from typing import Any

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.durable._callback import Callback


async def test_plain_and_async() -> None:
    """A plain function is called, an async one awaited; both get the arguments."""
    called: list[tuple[Any, ...]] = []

    async def wait(*arguments: Any) -> None:
        await asyncio.sleep(0)
        called.append(arguments)

    assert await Callback("on_end", lambda *arguments: called.append(arguments))(1, 2)
    assert await Callback("on_end", wait)(3, 4)
    assert called == [(1, 2), (3, 4)]


async def test_errors(caplog: pytest.LogCaptureFixture) -> None:
    """An error is contained, and the first one logged, a cancellation that the function made itself included."""

    async def fail(error: BaseException) -> None:
        await asyncio.sleep(0)
        raise error

    callback = Callback("on_end", fail)
    for error in (ValueError("no chat"), ValueError("again"), asyncio.CancelledError()):
        assert not await callback(error)
    assert [record.getMessage() for record in caplog.records] == [
        "on_end raised ValueError; it is still called, but further errors of it are not logged"
    ]


async def test_cancelled() -> None:
    """The cancellation of the task that calls it goes on."""
    began = asyncio.Event()

    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(Callback("on_end", hang)())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("function", [3, None, "on_end", Callback])
def test_no_function(function: Any) -> None:
    """What can't be called, and a class, is refused."""
    with pytest.raises(InvalidInputError, match="on_end must be"):
        Callback("on_end", function)
