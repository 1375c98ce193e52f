"""Sleeping until a loop time, at a lower cost than `asyncio.sleep`, which is half of the cost of a poll from memory."""

import asyncio


async def sleep_until(loop: asyncio.AbstractEventLoop, when: float) -> None:
    """Sleep until the loop time `when`, which may have passed."""
    woken = loop.create_future()
    timer = loop.call_at(when, _wake, woken)
    try:
        await woken
    except BaseException:
        timer.cancel()  # only here: cancelling a timer that has fired costs as much as the future
        raise


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():  # else the sleeper was cancelled in the turn of the loop in which its time came
        woken.set_result(None)
