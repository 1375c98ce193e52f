import asyncio

import pytest

from agentjobs_async.batch._slots import Places

pytestmark = pytest.mark.looptime


async def test_first_come_first_served() -> None:
    """Places go to those who wait in their order; one that is cancelled takes none."""
    places = Places(1)
    waiting = [places.enter(name) for name in "abc"]
    tasks = [asyncio.ensure_future(places.take(place)) for place in waiting]
    await asyncio.sleep(1)
    assert [place.taken for place in waiting] == [True, False, False]
    tasks[1].cancel()
    places.leave(waiting[1])
    places.leave(waiting[0])
    await asyncio.sleep(1)
    assert [place.taken for place in waiting] == [True, False, True]
    assert places.free == 0


async def test_each_project_for_itself() -> None:
    """As many items of each project may wait as there are places that nobody has taken."""
    places = Places(2)
    first = places.enter("a")
    places.enter("a")
    assert (places.has_room("a"), places.has_room("b"), places.has_room_for_job()) == (False, True, False)
    await places.take(first)
    places.enter("b")
    assert not places.has_room("b")
    assert dict(places.waiting()) == {"a": 1, "b": 1}


async def test_a_place_that_is_put_back() -> None:
    """Who puts a place back waits again, and leaving twice changes nothing."""
    changes = []
    places = Places(1, lambda: changes.append(places.free))
    place = places.enter("a")
    await places.take(place)
    places.put_back(place)
    assert (places.free, dict(places.waiting())) == (1, {"a": 1})
    await places.take(place)
    places.leave(place)
    places.leave(place)
    assert (places.free, dict(places.waiting()), changes) == (1, {}, [0, 1, 0, 1])


async def test_places_that_are_kept() -> None:
    """A place that is kept frees itself; who has a job already does not wait for that."""
    places, loop = Places(1), asyncio.get_running_loop()
    places.keep(100)
    assert places.next_free_at == loop.time() + 100
    place = places.enter("a")
    await places.take(place, has_job=True)
    places.leave(place, keep_for=200)
    await asyncio.sleep(101)
    assert places.next_free_at == loop.time() + 99
    place = places.enter("a")
    await places.take(place)
    assert loop.time() == pytest.approx(200, abs=0.01)
    assert places.next_free_at is None
    places.keep(50)
    places.close()
    await asyncio.sleep(100)
    assert places.free == -1


async def test_places_of_a_run_that_is_left() -> None:
    """An item that ends as unknown while its run is left keeps no place: no timer holds the run."""
    places = Places(1)
    place = places.enter("a")
    await places.take(place)
    places.close()
    places.leave(place, keep_for=600)
    assert (places.free, places.next_free_at) == (1, None)
