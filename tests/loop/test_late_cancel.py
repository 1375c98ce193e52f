"""A coroutine that a cancellation reaches some iterations of the loop late."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentjobs_async._loop.late_cancel import LateCancel
from tests.polled import in_memory, let_go


def always() -> bool:
    return True


def never() -> bool:
    return False


class Exchange:
    """Waits for an answer and stores it, as a create does.

    Attributes:
        read: The answer, once it was read.
        cancelled: Whether a cancellation has reached it.
    """

    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.read: str | None = None
        self.cancelled = False

    async def run(self) -> str:
        try:
            head = await self.answer
            await asyncio.sleep(0)
            self.read = f"{head} and body"
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.read

    def begin(self, may_last: Callable[[], bool] = always) -> asyncio.Task[str]:
        async def call() -> str:
            return await LateCancel(self.run(), may_last)

        return asyncio.ensure_future(call())


async def test_without_a_cancellation() -> None:
    """What the coroutine returns or raises is returned or raised."""

    async def broken() -> None:
        await asyncio.sleep(0)
        raise LookupError

    exchange = Exchange()
    call = exchange.begin()
    await let_go()
    exchange.answer.set_result("head")
    assert await call == "head and body"
    with pytest.raises(LookupError):
        await LateCancel(broken(), always)


@pytest.mark.parametrize("order", ["answer, cancel", "cancel, answer", "cancel, iteration, answer"])
@pytest.mark.parametrize("times", [1, 3])
async def test_cancelled_with_the_answer(order: str, times: int) -> None:
    """An answer that comes with the cancellation, or an iteration later, is read to its end; then it is cancelled."""
    exchange = Exchange()
    call = exchange.begin()
    await let_go()
    for step in order.split(", "):
        if step == "answer":
            exchange.answer.set_result("head")
        elif step == "iteration":
            await asyncio.sleep(0)
        else:
            for _ in range(times):
                call.cancel("by me")
    with pytest.raises(asyncio.CancelledError, match="by me") as caught:
        await call
    assert (exchange.read, exchange.cancelled, call.cancelled()) == ("head and body", False, True)
    assert caught.value.__context__ is None


async def test_cancelled_in_each_iteration() -> None:
    """A task that is cancelled in each iteration of the loop, as by anyio's scopes, reads an answer that is there."""
    exchange = Exchange()
    call = exchange.begin()
    await let_go()
    exchange.answer.set_result("head")
    while not call.done():
        call.cancel()
        await asyncio.sleep(0)
    assert (exchange.read, call.cancelled()) == ("head and body", True)


@pytest.mark.parametrize("may_last", [always, never])
async def test_cancelled_without_an_answer(may_last: Callable[[], bool]) -> None:
    """Without an answer, the coroutine is cancelled within some iterations, and so is what it awaits."""
    exchange = Exchange()
    call = exchange.begin(may_last)
    await let_go()
    call.cancel("by me")
    await let_go(7)
    assert call.done()
    with pytest.raises(asyncio.CancelledError, match="by me"):
        await call
    assert (exchange.cancelled, exchange.answer.cancelled()) == (True, True)


async def test_cancelled_at_once() -> None:
    """Where it may not last, an answer that comes with the cancellation is not read."""
    exchange = Exchange()
    call = exchange.begin(never)
    await let_go()
    exchange.answer.set_result("head")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (exchange.read, exchange.cancelled) == (None, True)


async def test_what_it_awaits_may_take_its_time_to_end() -> None:
    """A task that the coroutine awaits is cancelled with it, and waited for until it has ended."""
    steps: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await let_go(10)
            steps.append("inner")

    async def outer() -> None:
        try:
            await asyncio.ensure_future(inner())
        finally:
            await asyncio.sleep(0)
            steps.append("outer")

    async def call() -> None:
        await LateCancel(outer(), always)

    task = asyncio.ensure_future(call())
    await let_go()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["inner", "outer"]


@in_memory
async def test_time_out_within() -> None:
    """A time-out within the coroutine ends its block alone, also where the block ends by itself at that moment."""

    async def work(seconds: float) -> str:
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(seconds)
        except TimeoutError:
            return "timed out"
        return "done"

    found = [await LateCancel(work(seconds), may) for may in (always, never) for seconds in (1, 5, 9)]
    assert {found[0], found[3]} == {"done"}
    assert {found[2], found[5]} == {"timed out"}
    task: asyncio.Task[Any] | None = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


def test_the_end_of_the_loop() -> None:
    """When the loop ends, which cancels all tasks, an answer that is there is read."""
    exchanges: list[Exchange] = []

    async def main() -> None:
        exchanges.append(Exchange())
        call = exchanges[0].begin()
        await let_go()
        exchanges[0].answer.set_result("head")
        assert not call.done()

    asyncio.run(main())
    assert (exchanges[0].read, exchanges[0].cancelled) == ("head and body", False)
