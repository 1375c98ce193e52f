"""How much of one kind of work a turn of the loop may do."""

import asyncio

from agentjobs_async._polling.slices import Slice
from tests.polled import in_memory, stand_still

pytestmark = in_memory


async def test_room_by_time() -> None:
    """A turn in which each wait takes long has room for few."""
    turn, taken = Slice(asyncio.get_running_loop()), 0
    while turn.has_room():
        turn.take()
        stand_still(0.001)
        taken += 1
    assert taken <= 64
    assert not turn.has_room()
