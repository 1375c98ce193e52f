"""One loop, one process, until closed."""

from agentjobs_async._loop.loop_binding import LoopBinding


async def test_what_is_left_to_shut_down() -> None:
    """Only the first close, and a drain, of a binding in use have something to shut down."""
    used, unused = LoopBinding("session"), LoopBinding("session")
    assert used.enter() is used.enter()
    assert [used.drain(), used.close(), used.close(), used.drain()] == [True, True, False, False]
    assert [unused.drain(), unused.close(), unused.closed] == [False, False, True]
