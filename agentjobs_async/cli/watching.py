"""`agentjobs status --watch`: a journal that others work on, until all of its items have ended."""

import asyncio
import time
from typing import Final

from agentjobs_async.batch import Journal, State
from agentjobs_async.batch._active_jobs import ActiveJobs
from agentjobs_async.batch._workers import is_at_work, workers_of
from agentjobs_async.cli._output.fleet_view import FleetView, fleet_line, fleet_lines
from agentjobs_async.cli.ending import tally
from agentjobs_async.cli.item_results import outcomes_of
from agentjobs_async.cli.outcomes import exit_code
from agentjobs_async.cli.process import Context

__all__ = ["watch_status"]

_LOOK_SECONDS: Final = 1.0
_REST_PER_LOOK: Final = 20.0  # looking takes at most a twentieth of the database's time
_LINE_SECONDS: Final = 60.0  # between two lines of a log
_RECENT_SECONDS: Final = 600.0  # the rate counts the ends within it: long enough for jobs of some minutes


async def watch_status(context: Context, journal: str) -> int:
    """Show a journal until all items have ended; return the exit code of all items."""
    screen = context.screen
    async with Journal.open(journal, read_only=True) as opened:
        jobs = ActiveJobs(opened)
        view, took = await _timed_look(opened, jobs)
        line_at = -_LINE_SECONDS
        async with screen.live_view(lambda width, height: fleet_lines(view, width, height)):
            while view.left:
                if not screen.shows_live_view and time.monotonic() - line_at >= _LINE_SECONDS:
                    screen.line(fleet_line(view))
                    line_at = time.monotonic()
                await asyncio.sleep(max(_LOOK_SECONDS, _REST_PER_LOOK * took))
                view, took = await _timed_look(opened, jobs)
    screen.line(tally(view.counts))
    return exit_code(outcomes_of(view.counts))


async def _timed_look(journal: Journal, jobs: ActiveJobs) -> tuple[FleetView, float]:
    started = time.monotonic()
    view = await _look(journal, jobs)
    return view, time.monotonic() - started


async def _look(journal: Journal, jobs: ActiveJobs) -> FleetView:
    entries = journal._entries
    workers = await workers_of(journal)  # before the counts: what ends in between leaves no work without a process
    ended, oldest = await entries.recent_ends(_RECENT_SECONDS)
    counts = await journal.counts()
    limits = await journal.limits()
    rate = ended / max(oldest, _LOOK_SECONDS) if ended else None
    is_polled = counts[State.ACTIVE] and is_at_work(workers)
    left, unseen_for = (await jobs.time_left(), await jobs.unseen_for()) if is_polled else (None, None)
    return FleetView(counts, rate, limits.create_rate, workers, time.time(), left, unseen_for)
