"""The budget of reads: places in flight and starts per second, in virtual time."""

import asyncio

import pytest

from agentjobs_async import PollBudget
from agentjobs_async._gate import Gate


async def _starts(gate: Gate, count: int, seconds: float) -> list[float]:
    clock = asyncio.get_running_loop().time
    began, starts = clock(), list[float]()

    async def visit() -> None:
        async with gate:
            starts.append(round(clock() - began, 3))
            await asyncio.sleep(seconds)

    await asyncio.gather(*(visit() for _ in range(count)))
    return starts


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("budget", "starts"),
    [
        (PollBudget(in_flight=2), [0, 0, 10, 10, 20]),
        (PollBudget(in_flight=9, per_second=2), [0, 0.5, 1, 1.5, 2]),
        (PollBudget(in_flight=1, per_second=2), [0, 10, 20, 30, 40]),
    ],
)
async def test_budget_paces(budget: PollBudget, starts: list[float]) -> None:
    """No more than `in_flight` are in at once, and no more than `per_second` come in per second."""
    assert await _starts(Gate(budget), 5, 10) == starts


@pytest.mark.looptime
@pytest.mark.parametrize("leaves_after", [0, 0.2, 5])
async def test_place_of_a_cancelled_visit_is_free(leaves_after: float) -> None:
    """Who is cancelled in the block, or while being paced, gives the place back."""
    gate = Gate(PollBudget(in_flight=1, per_second=1))
    await _starts(gate, 1, 0)
    visit = asyncio.ensure_future(_starts(gate, 1, 100))
    await asyncio.sleep(leaves_after)
    visit.cancel()
    await asyncio.wait([visit])
    assert len(await asyncio.wait_for(_starts(gate, 1, 0), 3)) == 1


async def test_place_after_an_exception_is_free() -> None:
    """A block that raises gives its place back."""
    gate = Gate(PollBudget(in_flight=1))
    with pytest.raises(LookupError):
        async with gate:
            raise LookupError
    assert await _starts(gate, 1, 0) == [0]
