"""Which job is polled next, and when."""

import asyncio
from collections.abc import Iterable
from typing import Final

import pytest

from agentjobs_async._polling.queue import PollQueue
from agentjobs_async._polling.timers import Timers
from agentjobs_async._polling.tracked import Tracked
from agentjobs_async.models import JobRef
from tests.polled import clock, gaps, peak, refs

pytestmark = pytest.mark.looptime

IN_A_BUCKET: Final = 0.0101


class Polling:
    """A queue, and what goes out from it as soon as it may: each with its time, in seconds from the making."""

    def __init__(self, count: int, per_second: float | None = None) -> None:
        self.made = clock()
        self.out: list[tuple[float, Tracked]] = []
        self.pumps = 0
        self.jobs = [Tracked(ref, None, self.made, 0) for ref in refs(count)]
        self.queue = PollQueue(
            asyncio.get_running_loop(), {job.ref: job for job in self.jobs}, per_second, self._dispatch
        )

    def _dispatch(self) -> None:
        self.pumps += 1
        now = clock()
        while (tracked := self.queue.next(now)) is not None:
            self.out.append((round(now - self.made, 3), tracked))

    def place(self, delay: float, jobs: Iterable[Tracked] | None = None) -> None:
        now = clock()
        for job in self.jobs if jobs is None else jobs:
            self.queue.place(job, now + delay, now)

    def taken(self) -> list[tuple[float, int]]:
        """Return what went out since the last call, by the numbers of the jobs."""
        taken = [(at, self.jobs.index(job)) for at, job in self.out]
        self.out.clear()
        return taken


async def test_alarms() -> None:
    """The earliest time of each function wins, and cancelled ones are silent."""
    began, rung = clock(), list[tuple[str, float]]()

    def first() -> None:
        rung.append(("first", clock() - began))

    def second() -> None:
        rung.append(("second", clock() - began))

    alarms = Timers(asyncio.get_running_loop())
    for alarm, after in ((first, 5), (first, 2), (first, 3), (second, 4)):
        alarms.set(alarm, began + after)
    await asyncio.sleep(10)
    assert rung == [("first", 2), ("second", 4)]
    alarms.set(first, clock() + 1)
    alarms.set(second, clock() + 1)
    alarms.cancel()
    await asyncio.sleep(10)
    assert len(rung) == 2
    alarms.set(first, clock() + 1)
    await asyncio.sleep(1)
    assert rung[2:] == [("first", 21)]


async def test_order() -> None:
    """What is ready goes at once; the rest when it is due, the earliest first, whenever it was placed."""
    polling = Polling(4)
    for job, delay in zip(polling.jobs, (3, 1, 2), strict=False):
        polling.place(delay, [job])
    polling.queue.make_ready(polling.jobs[3])
    await asyncio.sleep(10)
    assert polling.taken() == [(0, 3), (1, 1), (2, 2), (3, 0)]


async def test_equal_due_times() -> None:
    """Many that would be due at once are spread over a tenth of their delay, and no more."""
    polling = Polling(1000)
    polling.place(5)
    await asyncio.sleep(10)
    times = [at for at, _ in polling.taken()]
    assert (len(times), times[0]) == (1000, 5)
    assert times[-1] == pytest.approx(5.5, abs=0.05)
    assert peak(times, IN_A_BUCKET) <= 44


async def test_few_are_not_spread() -> None:
    """A few that are due at the same time go at that time."""
    polling = Polling(3)
    polling.place(60, polling.jobs[:1])
    polling.place(60, polling.jobs[1:2])
    await asyncio.sleep(61)
    assert [at for at, _ in polling.taken()] == [60, 60.01]


async def test_long_delays_are_coarse() -> None:
    """What is due in long is due to the ten-thousandth of its delay, to the second at the most, and never early."""
    polling = Polling(3)
    for job, delay in zip(polling.jobs, (99.0, 1234.567, 86_400.5), strict=True):
        polling.place(delay, [job])
    await asyncio.sleep(90_000)
    late = [at - delay for (at, _), delay in zip(polling.taken(), (99.0, 1234.567, 86_400.5), strict=True)]
    assert late == [pytest.approx(bound / 2, abs=bound / 2 + 1e-3) for bound in (0.01, 0.13, 1.01)]


async def test_deadlines_first() -> None:
    """Who is near a deadline goes before who is ready, at the pace that holds for all."""
    polling = Polling(5, per_second=1)
    for job in polling.jobs:
        polling.queue.make_ready(job)
    assert (polling.queue.backlog(), polling.queue.waiting()) == (4, 4)
    polling.queue.make_urgent(polling.jobs[4], clock())
    polling.queue.make_urgent(polling.jobs[3], clock())
    polling.queue.make_urgent(polling.jobs[4], clock())
    await asyncio.sleep(10)
    assert polling.taken() == [(0, 0), (1, 4), (2, 3), (3, 1), (4, 2)]


async def test_hasten() -> None:
    """A deadline brings forward what is due later, but nothing before the server wishes it, and nothing in flight."""
    polling = Polling(4)
    plain, wished, flying, wished_sooner = polling.jobs
    polling.place(50, [plain, wished])
    polling.place(5, [wished_sooner])
    wished.not_before = wished_sooner.not_before = clock() + 9
    for job in (plain, wished, flying, wished_sooner):
        polling.queue.make_urgent(job, clock())
    await asyncio.sleep(100)
    assert polling.taken() == [(0, 0), (5, 3), (9, 1)]


async def test_bring_forward() -> None:
    """What is due later is brought forward; what is due earlier, ready or in flight stays where it is."""
    polling = Polling(4, per_second=0.5)
    later, sooner, ready, flying = polling.jobs
    polling.place(50, [later])
    polling.place(5, [sooner])
    polling.queue.make_ready(flying)
    polling.queue.make_ready(ready)
    for job in polling.jobs:
        polling.queue.reschedule_earlier(job, clock() + 10, clock())
    await asyncio.sleep(100)
    assert polling.taken() == [(0, 3), (2, 2), (5, 1), (10, 0)]


async def test_removed() -> None:
    """What was removed never goes out, wherever it lay."""
    polling = Polling(3, per_second=0.1)
    polling.queue.make_ready(polling.jobs[0])
    polling.queue.make_ready(polling.jobs[1])
    polling.place(5, polling.jobs[2:])
    for job in polling.jobs[1:]:
        polling.queue.remove(job)
        assert job.bucket == Tracked.NOWHERE
    await asyncio.sleep(100)
    assert polling.taken() == [(0, 0)]
    assert polling.queue.waiting() == 0


async def test_pace() -> None:
    """No two polls start closer than the pace allows, however many are due."""
    polling = Polling(30, per_second=10)
    polling.place(1)
    await asyncio.sleep(10)
    times = [at for at, _ in polling.taken()]
    assert len(times) == 30
    assert min(gaps(times)) >= 0.099
    assert times[-1] == pytest.approx(1 + 2.9, abs=0.02)


async def test_left_alone() -> None:
    """Nothing goes out while the server wishes to be left alone, not even for a deadline; then all goes, spread."""
    polling = Polling(100)
    for number, job in enumerate(polling.jobs[:50]):
        polling.place(1 + number / 100, [job])
    await asyncio.sleep(0.5)
    polling.queue.pause_until(clock() + 4, clock())
    for job in polling.jobs[50:]:
        polling.queue.make_ready(job)
    polling.queue.make_urgent(polling.jobs[99], clock())
    assert (polling.queue.backlog(), polling.queue.waiting()) == (0, 50)
    await asyncio.sleep(3.9)
    assert polling.taken() == []
    await asyncio.sleep(6)
    taken = polling.taken()
    assert len({number for _, number in taken}) == len(taken) == 100
    assert taken[0] == (4.5, 99)
    assert [number for at, number in taken if 50 <= number < 99] == list(range(50, 99))
    assert peak([at for at, number in taken if number >= 50], 1) <= 16
    assert [at for at, number in taken if number < 50] == pytest.approx([5 + n / 100 for n in range(50)], abs=0.02)


async def test_longest_wish() -> None:
    """Of several wishes the longest holds."""
    polling = Polling(1)
    polling.place(1)
    for seconds in (5, 9, 3):
        polling.queue.pause_until(clock() + seconds, clock())
    await asyncio.sleep(8.9)
    assert polling.taken() == []
    await asyncio.sleep(5)
    assert polling.taken() == [(10, 0)]


async def test_placed_while_left_alone() -> None:
    """What is placed meanwhile is due when it would be anyway, but not before the wish is over."""
    polling = Polling(2)
    polling.queue.pause_until(clock() + 4, clock())
    await asyncio.sleep(2)
    polling.place(1, polling.jobs[:1])
    polling.place(5, polling.jobs[1:])
    await asyncio.sleep(10)
    assert polling.taken() == [(4, 0), (7, 1)]


ENOUGH: Final = 10


def outage(polling: Polling, jobs: Iterable[Tracked], delay: float = 5) -> None:
    """Let polls of `jobs` find nobody listening; of so many it takes `ENOUGH`."""
    now = clock()
    for job in jobs:
        polling.queue.outage.not_reached(job, now + delay, now)
        polling.queue.place(job, now + delay, now)


async def test_one_probe_for_all() -> None:
    """When nobody listens, one job is polled for all, at a job's own pace; once the server answers, all go on."""
    polling = Polling(30)
    polling.place(1, polling.jobs[ENOUGH:])
    outage(polling, polling.jobs[:ENOUGH])
    probes = []
    for _ in range(10):
        await asyncio.sleep(5.01)
        ((_, number),) = polling.taken()
        probes.append(number)
        outage(polling, [polling.jobs[number]])
    assert all(gaps(probes))  # never the one that has just failed
    polling.queue.outage.reached()
    assert polling.taken() == []
    await asyncio.sleep(20)
    assert sorted(number for _, number in polling.taken()) == list(range(30))


@pytest.mark.parametrize("failed", [[*range(ENOUGH - 1)], [5] * 50])
async def test_no_outage_yet(failed: list[int]) -> None:
    """A few that find nobody don't make an outage, nor does one job alone, nor more with answers between them."""
    polling = Polling(30)
    polling.place(1, polling.jobs[20:])
    outage(polling, [polling.jobs[number] for number in failed])
    polling.queue.outage.reached()
    outage(polling, polling.jobs[ENOUGH : 2 * ENOUGH - 1])
    await asyncio.sleep(4)
    assert [number for _, number in polling.taken()] == list(range(20, 30))


async def test_outage_of_few() -> None:
    """Where there are fewer jobs than it takes otherwise, all of them make an outage."""
    polling = Polling(3)
    outage(polling, polling.jobs[:2])
    assert polling.queue.backlog() == 0
    outage(polling, polling.jobs[2:])
    await asyncio.sleep(6)
    assert len(polling.taken()) == 1


async def test_lone_job_is_its_own_probe() -> None:
    """With one job there is nobody to spare: it is polled at its pace."""
    polling = Polling(1)
    for _ in range(5):
        outage(polling, polling.jobs)
        await asyncio.sleep(5.01)
    assert [at for at, _ in polling.taken()] == pytest.approx([5, 10.01, 15.02, 20.03, 25.04], abs=0.02)


async def test_last_job_is_the_probe() -> None:
    """When all others have left in an outage, the last job goes on as the probe, at its own pace."""
    polling = Polling(2)
    outage(polling, polling.jobs)
    for other in polling.jobs[:1]:
        polling.queue._jobs.pop(other.ref)
        polling.queue.remove(other)
    for at in (1, 6, 11):
        await asyncio.sleep(polling.made + at + 0.02 - clock())
        assert [number for _, number in polling.taken()] == [1]
        outage(polling, polling.jobs[1:])


async def test_probe_leaves() -> None:
    """When the job that is the probe leaves, another takes its part, soon."""
    polling = Polling(5)
    outage(polling, polling.jobs, delay=20)
    gone = polling.queue.outage._probe
    assert gone is not None
    polling.queue._jobs.pop(gone.ref)
    polling.queue.remove(gone)
    await asyncio.sleep(15)
    ((at, number),) = polling.taken()
    assert at == 1
    assert polling.jobs[number] is not gone


async def test_probe_whose_poll_hangs() -> None:
    """A probe whose poll does not come back is replaced by another job after half a minute."""
    polling = Polling(5)
    outage(polling, polling.jobs)
    await asyncio.sleep(100)
    taken = polling.taken()
    assert [at for at, _ in taken] == [5, 35, 65, 95]
    assert len({number for _, number in taken}) == 4


async def test_nobody_to_probe() -> None:
    """When the polls of all jobs hang in an outage, the first that is placed again is the next probe."""
    polling = Polling(3)
    outage(polling, polling.jobs)
    for number in (2, 0, 1):
        polling.queue.make_urgent(polling.jobs[number], clock())
    assert [number for _, number in polling.taken()] == [2, 0, 1]
    await asyncio.sleep(50)
    polling.place(1, polling.jobs[1:2])
    await asyncio.sleep(50)
    assert polling.taken() == [(65, 1)]


async def test_all_leave_in_an_outage() -> None:
    """When nobody is left, the outage is forgotten: who comes then is polled at once."""
    polling = Polling(3)
    outage(polling, polling.jobs)
    for job in polling.jobs:
        del polling.queue._jobs[job.ref]
        polling.queue.remove(job)
    await asyncio.sleep(2)
    polling.queue._jobs[polling.jobs[0].ref] = polling.jobs[0]
    polling.queue.make_ready(polling.jobs[0])
    assert polling.taken() == [(2, 0)]


async def test_deadline_in_an_outage() -> None:
    """A deadline's last poll goes out in an outage, and may find the server back."""
    polling = Polling(20)
    outage(polling, polling.jobs[:ENOUGH], delay=20)
    polling.place(1, polling.jobs[ENOUGH:])
    await asyncio.sleep(3)
    assert polling.taken() == []
    polling.queue.make_urgent(polling.jobs[15], clock())
    assert polling.taken() == [(3, 15)]
    polling.queue.outage.reached()
    await asyncio.sleep(5)
    assert sorted(number for _, number in polling.taken()) == [10, 11, 12, 13, 14, 16, 17, 18, 19]


async def test_wish_in_an_outage() -> None:
    """A wish that comes in an outage holds; what is asked then is asked after it."""
    polling = Polling(4)
    outage(polling, polling.jobs, delay=2)
    polling.queue.pause_until(clock() + 7, clock())
    await asyncio.sleep(6.9)
    assert polling.taken() == []
    await asyncio.sleep(20)
    assert sorted(number for _, number in polling.taken()) == [0, 1, 2, 3]


async def test_release_takes_no_longer_than_10_s() -> None:
    """After a long outage, what has waited goes out over 10 s, and does not wait as long again."""
    polling = Polling(100)
    outage(polling, polling.jobs[:ENOUGH], delay=1000)
    for job in polling.jobs[ENOUGH:]:
        polling.queue.make_ready(job)
    await asyncio.sleep(500)
    polling.queue.outage.reached()
    await asyncio.sleep(11)
    times = [at for at, _ in polling.taken()]
    assert len(times) == 90
    assert times[-1] - times[0] == pytest.approx(10, abs=0.2)
    assert peak(times) <= 11


async def test_ghosts() -> None:
    """What was removed or moved while it was ready does not fill the memory, nor count as waiting."""
    polling = Polling(1000)
    polling.queue.pause_until(clock() + 10, clock())
    for job in polling.jobs[:900]:
        polling.queue.make_ready(job)
        polling.queue.remove(job)
    for job in polling.jobs[900:]:
        polling.queue.make_ready(job)
        polling.queue.make_urgent(job, clock())
    assert polling.queue.waiting() == 100
    assert len(polling.queue._due.ready) + len(polling.queue._due.urgent) <= 300
    await asyncio.sleep(30)
    assert [number for _, number in polling.taken()] == list(range(900, 1000))
    assert polling.queue.waiting() == polling.queue._due.stale == 0


async def test_paused_project() -> None:
    """Polls of a paused project are put off, some thousands as well, and none of another project waits for them."""
    polling = Polling(3000)
    other = Tracked(JobRef("elsewhere", "job"), None, clock(), 0)
    polling.jobs.append(other)
    polling.queue.pause(polling.jobs[0].ref, 429, clock() + 20, clock() + 20, clock())
    polling.place(0)
    polling.place(5, polling.jobs[:1])
    await asyncio.sleep(6)
    assert [number for _, number in polling.taken()] == [3000]
    assert polling.queue.waiting() == 0
    polling.queue.make_urgent(polling.jobs[1], clock())
    assert polling.taken() == []
    await asyncio.sleep(40)
    taken = polling.taken()
    assert sorted(number for _, number in taken) == list(range(3000))
    assert taken[0][0] >= 20
    assert next(at for at, number in taken if number == 1) <= 21
    assert polling.queue._due.stale == 0


async def test_closed() -> None:
    """A closed queue rings no more."""
    polling = Polling(3)
    polling.place(1)
    polling.queue.pause_until(clock() + 5, clock())
    polling.queue.make_ready(polling.jobs[0])
    polling.queue.close()
    pumps = polling.pumps
    await asyncio.sleep(10)
    assert (polling.taken(), polling.pumps, polling.queue.backlog(), polling.queue.waiting()) == ([], pumps, 0, 0)
