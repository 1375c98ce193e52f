"""Does `PollBudget(per_second="auto")` find a quota, keep to it, and follow its changes?

A session polls jobs that never end, against an emulator (a real HTTP server on a thread of its own) that refuses reads
over a quota. The quota halves, then becomes three times as high. Printed for each phase: the share of the quota that
was used after the first minute, the share of all polls that was refused, and the seconds until nine tenths of the quota
were used for 5 s.
"""

import asyncio
from argparse import Namespace
from itertools import pairwise

from measuring import arguments, print_table
from tenacity import wait_fixed

from agentjobs_async import AgentJobsSession, JobRef, JobTracker, PollBudget, PollPolicy
from agentjobs_async.testing import Emulator, JobScript, RateLimit

PHASES = (1.0, 0.5, 1.5)
SETTLED_SECONDS = 60
WINDOW_SECONDS = 5
ANSWERED, REFUSED = 200, 429


class Counted:
    """A get-job callable that reads through a session, and counts answers and refusals by the second."""

    def __init__(self, session: AgentJobsSession) -> None:
        self._session = session
        self.statuses: list[tuple[float, int]] = []

    async def get_job(self, ref: JobRef) -> object:
        """Read the job."""
        status = ANSWERED
        try:
            return await self._session.get_job(ref)
        except Exception as error:
            status = getattr(error, "status", 0)
            raise
        finally:
            self.statuses.append((asyncio.get_running_loop().time(), status))

    def rate(self, status: int, begin: float, end: float) -> float:
        """Return how many polls per second had this status between two times."""
        return sum(begin <= at < end and found == status for at, found in self.statuses) / (end - begin)


async def run(options: Namespace) -> tuple[Counted, list[float]]:
    """Poll through all phases; return the answers, and when each phase began and the last ended."""
    never = JobScript(duration=10_000_000.0)
    with Emulator.in_thread(script=never) as emulator:
        async with emulator.session(project_id="docs") as session:
            jobs = [await session.create_job(f"Job {number}") for number in range(options.jobs)]
            counted, begins = Counted(session), []
            policy = PollPolicy(wait=wait_fixed(options.interval))
            async with JobTracker(counted.get_job, policy=policy, budget=PollBudget(per_second="auto")) as tracker:
                waits = [tracker.watch(job, timeout=None) for job in jobs]
                for factor in PHASES:
                    reads = round(options.quota * factor * options.per)
                    emulator.limit(RateLimit(1_000_000, per=options.per, reads=reads))
                    begins.append(asyncio.get_running_loop().time())
                    await asyncio.sleep(options.seconds)
                begins.append(asyncio.get_running_loop().time())
                for wait in waits:
                    wait.cancel()
            return counted, begins


def found_after(counted: Counted, quota: float, begin: float, end: float) -> float:
    """Return the seconds until nine tenths of the quota were used for some seconds; infinity for never."""
    for seconds in range(WINDOW_SECONDS, int(end - begin) + 1):
        if counted.rate(ANSWERED, begin + seconds - WINDOW_SECONDS, begin + seconds) >= 0.9 * quota:
            return seconds
    return float("inf")


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--interval", type=float, default=3.0, help="seconds between two polls of a job")
    parser.add_argument("--quota", type=float, default=20.0, help="reads per second")
    parser.add_argument("--per", type=float, default=1.0, help="seconds of the span in which the quota is counted")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each phase; above 60")
    options = parser.parse_args()
    counted, begins = asyncio.run(run(options))
    rows = []
    for factor, (begin, end) in zip(PHASES, pairwise(begins), strict=True):
        quota, settled = options.quota * factor, min(begin + SETTLED_SECONDS, (begin + end) / 2)
        answered, refused = (counted.rate(status, begin, end) for status in (ANSWERED, REFUSED))
        rows.append(
            [
                f"{quota:g} reads/s",
                f"{counted.rate(ANSWERED, settled, end) / quota:.1%}",
                f"{refused / (answered + refused):.1%}",
                f"{found_after(counted, quota, begin, end):.0f} s",
            ]
        )
    print_table("A quota", ["", "used", "refused", "found after"], rows)


if __name__ == "__main__":
    main()
