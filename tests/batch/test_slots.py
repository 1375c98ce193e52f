import asyncio

import pytest

from agentjobs_async.batch._run.slots import Slot, Slots

pytestmark = pytest.mark.looptime


def slots_of(count: int) -> Slots:
    return Slots(count, asyncio.Event())


async def test_first_come_first_served() -> None:
    """Within a project slots go to items in the order of arrival; one that is cancelled takes none."""
    slots = slots_of(1)
    waiting = [slots.enter("a") for _ in range(3)]
    tasks = [asyncio.ensure_future(slots.take(slot)) for slot in waiting]
    await asyncio.sleep(1)
    assert [slot.taken for slot in waiting] == [True, False, False]
    tasks[1].cancel()
    slots.leave(waiting[1])
    slots.leave(waiting[0])
    await asyncio.sleep(1)
    assert [slot.taken for slot in waiting] == [True, False, True]
    assert slots.free("a") == 0


async def test_each_project_for_itself() -> None:
    """As many items of each project may wait as there are slots that nobody has taken."""
    slots = slots_of(2)
    first = slots.enter("a")
    slots.enter("a")
    assert (slots.has_room("a"), slots.has_room("b"), slots.room_for_jobs) == (False, True, 0)
    await slots.take(first)
    slots.enter("b")
    assert not slots.has_room("b")
    assert dict(slots.waiting()) == {"a": 1, "b": 1}


async def test_a_slot_that_is_put_back() -> None:
    """Who puts a slot back waits again, and leaving twice changes nothing."""
    slots = slots_of(1)
    slot = slots.enter("a")
    await slots.take(slot)
    slots.put_back(slot)
    assert (slots.free("a"), dict(slots.waiting())) == (1, {"a": 1})
    await slots.take(slot)
    slots.leave(slot)
    slots.leave(slot)
    assert (slots.free("a"), dict(slots.waiting())) == (1, {})


async def test_each_change_is_told() -> None:
    """Whatever may let another item begin is told: a slot that is taken, put back or left, and a kept one's end."""
    changed = asyncio.Event()
    slots = Slots(1, changed)
    slot = slots.enter("a")
    assert not changed.is_set()
    await slots.take(slot)
    assert changed.is_set()
    changed.clear()
    slots.put_back(slot)
    assert changed.is_set()
    changed.clear()
    slots.leave(slot)
    assert changed.is_set()
    changed.clear()
    slots.keep("a", 1.0)
    await changed.wait()
    assert slots.free("a") == 1


async def test_slots_that_are_kept() -> None:
    """A slot that is kept frees itself; who has a job already does not wait for that."""
    slots, loop = slots_of(1), asyncio.get_running_loop()
    slots.keep("a", 100)
    assert slots.next_free_at("a") == loop.time() + 100
    slot = slots.enter("a")
    await slots.take(slot, has_job=True)
    slots.leave(slot, keep_for=200)
    await asyncio.sleep(101)
    assert slots.next_free_at("a") == loop.time() + 99
    slot = slots.enter("a")
    await slots.take(slot)
    assert loop.time() == pytest.approx(200, abs=0.01)
    assert slots.next_free_at("a") is None
    slots.keep("a", 50)
    slots.close()
    await asyncio.sleep(100)
    assert slots.free("a") == -1


def test_slots_that_end_together_on_another_loop() -> None:
    """Two slots that are kept to the same moment need no order of the loop's timers: those of uvloop have none."""

    async def keep() -> int:
        slots = slots_of(2)
        slots.keep("a", 1.0)
        slots.keep("a", 1.0)
        free = slots.free("a")
        slots.close()
        return free

    with asyncio.Runner(loop_factory=pytest.importorskip("uvloop").new_event_loop) as runner:
        assert runner.run(keep()) == 0


async def test_slots_of_a_run_that_is_left() -> None:
    """An item that ends as unknown while its run is left keeps no slot: no timer holds the run."""
    slots = slots_of(1)
    slot = slots.enter("a")
    await slots.take(slot)
    slots.close()
    slots.leave(slot, keep_for=600)
    assert (slots.free("a"), slots.next_free_at("a")) == (1, None)


async def order_of(slots: Slots, names: str) -> str:
    """Let items of these projects wait in this order; return their projects in the order in which they got a slot."""
    order = []

    async def work(slot: Slot) -> None:
        await slots.take(slot)
        order.append(str(slot.project))
        await asyncio.sleep(1)
        slots.leave(slot)

    await asyncio.gather(*(work(slots.enter(name)) for name in names))
    return "".join(order)


async def test_projects_by_turns() -> None:
    """Slots go to the projects by turns, however many items of one wait; the first one is free."""
    assert await order_of(slots_of(1), "aaaabbc") == "aabcaba"


async def test_a_project_whose_slots_are_kept() -> None:
    """A project that waits for kept slots does not hold up another one that came later."""
    slots = slots_of(4)
    for _ in range(4):
        slots.keep("a", 100)
    assert await order_of(slots, "aabb") == "bbaa"


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 1), (5, 3)])
async def test_slots_that_another_project_keeps(count: int, left: int) -> None:
    """Slots that unknown items keep count whole for their project, and as half of all at most for any other one."""
    slots, loop = slots_of(count), asyncio.get_running_loop()
    for number in range(count):
        slots.keep("a", 100 + number)
    slots.keep("b", 50)
    assert slots.free("a") == -min(1, count // 2)
    assert (slots.free("b"), slots.free("c")) == (left - 1, left)
    for _ in range(left):
        await slots.take(slots.enter("c"))
    assert slots.free("c") == 0
    # Of what others keep, only the last half counts: the first one to go changes nothing.
    expected = sorted([50, *(100 + number for number in range(count))])[-(count // 2) :] if count > 1 else [None]
    at = slots.next_free_at("c")
    assert (None if at is None else at - loop.time()) == expected[0]
    slots.close()


async def test_a_waiter_cancelled_as_it_gets_its_slot() -> None:
    """An item that is cancelled in the iteration in which a slot becomes free loses no slot, before or after that."""
    for cancels_first in (True, False):
        slots = slots_of(1)
        first, second, third = (slots.enter("a") for _ in range(3))
        await slots.take(first)
        tasks = [asyncio.ensure_future(slots.take(slot)) for slot in (second, third)]
        await asyncio.sleep(0)
        if cancels_first:
            tasks[0].cancel()
        slots.leave(first)
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
        slots.leave(second)
        await tasks[1]
        assert (third.taken, slots.free("a")) == (True, 0)
