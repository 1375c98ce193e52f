"""One loop, one process, until closed."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agentjobs_async import SessionClosedError
from agentjobs_async._loop.loop_binding import LoopBinding


async def _enter(binding: LoopBinding) -> asyncio.AbstractEventLoop:
    return binding.enter()


async def _close(binding: LoopBinding) -> bool:
    return binding.close()


async def test_binds_to_the_running_loop() -> None:
    """The first use binds to the running loop; later ones in it give the same loop."""
    binding = LoopBinding("session")
    assert binding.enter() is binding.enter() is asyncio.get_running_loop()


async def test_drains() -> None:
    """After `drain` nothing is entered, and the owner can still be closed."""
    binding = LoopBinding("session")
    assert not binding.drain()
    with pytest.raises(SessionClosedError, match=r"the session is shutting down; .* by its token"):
        binding.enter()
    used = LoopBinding("session")
    used.enter()
    assert used.drain()
    assert used.close()
    assert not used.drain()
    with pytest.raises(SessionClosedError, match="the session is closed"):
        used.enter()


async def test_closes_once() -> None:
    """Only the first close of a binding in use has something to take down, and nothing is entered after it."""
    binding = LoopBinding("session")
    binding.enter()
    assert [binding.close(), binding.close()] == [True, False]
    assert binding.closed
    with pytest.raises(SessionClosedError, match="the session is closed; make a new one"):
        binding.enter()


def test_closes_unused_without_a_loop() -> None:
    """What was never used closes anywhere, and there is nothing to take down."""
    binding = LoopBinding("session")
    assert not binding.close()
    assert binding.closed


@pytest.mark.parametrize("use", [_enter, _close])
def test_refuses_another_loop(use: Callable[[LoopBinding], Coroutine[Any, Any, object]]) -> None:
    """Neither entered nor closed in another loop than that of its first use; it stays open there."""
    binding = LoopBinding("tracker")
    asyncio.run(_enter(binding))
    with pytest.raises(SessionClosedError, match="the tracker belongs to another event loop"):
        asyncio.run(use(binding))
    assert not binding.closed


@pytest.mark.parametrize("use", [LoopBinding.enter, LoopBinding.close])
async def test_refuses_another_process(use: Callable[[LoopBinding], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither entered nor closed in a process that was forked from that of its first use."""
    binding = LoopBinding("session")
    binding.enter()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(SessionClosedError, match="the session belongs to the process that forked this one"):
        use(binding)
    assert not binding.closed
