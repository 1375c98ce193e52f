"""Work in slices: how much of it one iteration of the loop may do, and that all of it is done."""

import asyncio
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

from agentjobs_async._loop.slices import PIECES_PER_ITERATION, SlicedWork, run_in_slices, run_slice
from tests.polled import in_memory, stand_still

pytestmark = in_memory


async def test_room_by_time() -> None:
    """An iteration in which each piece takes long has room for few."""
    pieces = repeat(0.001, 1000)
    assert run_slice(asyncio.get_running_loop(), map(stand_still, pieces))
    assert len(list(pieces)) >= 1000 - 64


async def test_room_by_number() -> None:
    """An iteration has room for a number of pieces, however little time they take; the last slice ends them."""
    pieces = iter(range(PIECES_PER_ITERATION + 10))
    assert run_slice(asyncio.get_running_loop(), pieces)
    assert next(pieces) == PIECES_PER_ITERATION
    assert not run_slice(asyncio.get_running_loop(), pieces)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_in_slices(cancelled: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """All pieces are done, a slice in each iteration; the rest at once when the task is cancelled."""
    done: list[int] = []
    work = asyncio.ensure_future(run_in_slices(map(done.append, range(1000))))
    iterations = list[int]()
    while not work.done():
        await asyncio.sleep(0)
        iterations.append(len(done))
        if cancelled:
            work.cancel()
    assert iterations[:2] == [250, 1000 if cancelled else 500]
    assert work.cancelled() is cancelled
    assert done == [*range(1000)]


async def test_added_work() -> None:
    """Work is done in the order in which it came, what is added within a piece and after one that raised as well."""
    work, done = SlicedWork(asyncio.get_running_loop()), list[int]()

    def piece(number: int) -> None:
        done.append(number)
        if number == 1:
            work.add(map(piece, range(1000, 1010)))
        if number == 2:
            raise LookupError

    with pytest.raises(LookupError):
        work.add(map(piece, range(600)))
    assert done == [0, 1, 2]
    work.add(map(piece, range(2000, 2010)))
    await asyncio.sleep(0)
    assert done == [*range(3 + PIECES_PER_ITERATION)]
    await asyncio.sleep(1)
    assert done == [*range(600), *range(1000, 1010), *range(2000, 2010)]
    work.add(map(piece, [7]))
    assert done[-1] == 7


@pytest.mark.parametrize("finished", [False, True])
async def test_stopped_work(finished: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Work that is under way can be finished within a call, generators included, or dropped."""
    work, done = SlicedWork(asyncio.get_running_loop()), list[int]()

    def generated() -> Iterator[None]:
        for number in range(600):
            done.append(number)
            yield

    work.add(generated())
    (work.finish if finished else work.clear)()
    assert len(done) == (600 if finished else PIECES_PER_ITERATION)
    await asyncio.sleep(1)
    assert len(done) == (600 if finished else PIECES_PER_ITERATION)


async def test_work_that_stops_itself() -> None:
    """A piece may finish all work, or clear it, and add new work afterwards: that is done as well."""
    for stop in (SlicedWork.finish, SlicedWork.clear):
        work, done = SlicedWork(asyncio.get_running_loop()), list[int]()

        def piece(number: int, work: SlicedWork = work, done: list[int] = done, stop: Any = stop) -> None:
            done.append(number)
            if number == 1:
                work.add(map(piece, [10, 11]))
                stop(work)
                work.add(map(piece, [20, 21]))

        work.add(map(piece, [0, 1, 2]))
        await asyncio.sleep(1)
        assert sorted(set(done) - {10, 11}) == [0, 1, 2, 20, 21]
        assert done.count(10) == done.count(11) == (stop is SlicedWork.finish)
