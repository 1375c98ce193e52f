"""Whether a poll may start: what is allowed from outside, and what the answers to earlier polls ask for.

The only place that learns from refusals and failures whether others may start. Where an answer concerns one project
only, the gate returns until when, and the queue's lanes pass over the project's jobs.
"""

from collections import defaultdict
from collections.abc import Hashable, Sized
from math import inf
from typing import Final

from agentjobs_async._loop.backoff import Backoff
from agentjobs_async._polling.auto import AutoRate
from agentjobs_async._polling.limiters import ROUNDING_SECONDS, PollLimits
from agentjobs_async.errors import NotSentError, RateLimitedError, ResponseError
from agentjobs_async.models import JobRef

_LIMITED: Final = 429
_UNAVAILABLE: Final = 503
_ALL_POLLS: Final = 2  # jobs or projects in a row that asked for a pause
_JOBS_NOT_REACHED: Final = 10  # in a row: an outage; fewer failures may be those of single connections
_FASTER: Final = 1.1  # than the healthy pace: else what piled up would never be made up for
_MOST_FASTER: Final = 3.0  # than that, where this is not enough: a job of one delay takes two polls, and new ones come
_CAUGHT_UP_SECONDS: Final = 0.01  # by which a poll may be late without delaying those after it: timers are late
_SMOOTHING: Final = 0.02  # the share of the newest delay in the usual one
_MAX_PROJECTS: Final = 1024  # that were refused: more would add up for ever


class Gate:
    """Says when the next poll may start.

    - The limits of the budget, of the caller and of a fleet hold for each poll.
    - Where two jobs (503) or projects (429) in a row asked for a pause, all polls pause.
    - In an outage one poll starts per usual delay, until one is answered: whichever is next shows whether the server is
      back.
    - What piled up meanwhile leaves at the healthy pace: as many polls in a usual delay as there are jobs, or were when
      it piled up.

    An urgent poll, before a deadline, waits for the first two only.

    Args:
        limits: Those from outside.
        jobs: All tracked jobs, which the caller keeps.

    Attributes:
        has_piled_up: Whether what is due has piled up while no poll could start.
        started_at: Loop time at which the last poll counts as started: it may have been a little late.
    """

    def __init__(self, limits: PollLimits, jobs: Sized, now: float) -> None:
        self._limits = limits
        self._jobs = jobs
        self._paused_until = -inf
        self._askers: defaultdict[int, set[Hashable]] = defaultdict(set)
        """By status, the projects (429) or jobs (503) that were answered so since the last good answer."""
        self._unreached: set[JobRef] = set()
        """The jobs that were not reached since the server last answered."""
        self.has_piled_up = False
        self._released_at = -inf
        """Loop time from which what has piled up leaves."""
        self._piled_up_jobs = 0
        """How many jobs there were when it piled up."""
        self._longest_interval = inf
        """The most seconds between two polls of what piled up."""
        self._usual_delay = 0.0
        self._delays = 0  # that were counted
        self.started_at = -inf
        self._answered_at = now
        self._backoffs: dict[str, Backoff] = {}
        self._limited: dict[str, float] = {}
        """The loop times of the last refusals of projects that were not answered well since; kept for `auto`."""

    @property
    def _is_outage(self) -> bool:
        jobs = len(self._jobs)
        return jobs > 1 and len(self._unreached) >= min(_JOBS_NOT_REACHED, jobs)

    def _interval(self, now: float) -> float:
        """Return the seconds between two polls in an outage, or while what piled up leaves; else 0.0."""
        if self._unreached and self._is_outage:
            return self._usual_delay
        if self.has_piled_up:
            jobs = max(self._piled_up_jobs, len(self._jobs))  # those that have ended since don't slow the others
            return min(self.release_interval(jobs, now - self._released_at), self._longest_interval)
        return 0.0

    def release_interval(self, jobs: int, lasts: float) -> float:
        """Return the seconds between two polls of so many jobs, which piled up and have been leaving for `lasts`.

        It is a little less than at the healthy pace, for one usual delay. Where that is not enough, since jobs come and
        go that take only a few polls each, it becomes less, down to a third.
        """
        usual = self._usual_delay
        faster = min(max(lasts / usual, 1.0), _MOST_FASTER) if usual else 1.0
        return usual / (_FASTER * faster * max(jobs, 1))

    def opens_at(self, now: float, *, is_urgent: bool = False) -> float:
        """Return the loop time from which the next poll may start; `now` if it may start at once.

        `is_urgent`: a deadline is near.
        """
        limits = self._limits.in_force
        is_spread = self.has_piled_up or self._unreached
        if not (limits or is_spread or self._paused_until > now):
            return now
        latest = max(now, self._paused_until)
        if is_spread and not is_urgent:
            latest = max(latest, self.started_at + self._interval(now))
        for limiter in limits:
            latest = max(latest, limiter.opens_at(now))
        return latest if latest > now + ROUNDING_SECONDS else now

    def start(self, now: float) -> None:
        """Count one poll as started.

        An urgent one did not wait for the interval. In an outage it is the one that tries. What piled up leaves beside
        it: else urgent polls without end would stop all others.
        """
        earliest = max(self.started_at + self._interval(now), now - _CAUGHT_UP_SECONDS)
        if earliest <= now + ROUNDING_SECONDS or self._is_outage:
            self.started_at = min(earliest, now)
        for limiter in self._limits.in_force:
            limiter.start(now)

    def pile_up(self, released_at: float, longest_interval: float = inf) -> None:
        """Record that what is due has piled up: it goes out at the healthy pace, until `clear` is called.

        Args:
            released_at: Loop time from which it goes out.
            longest_interval: Seconds between two polls at most.
        """
        self._released_at, self._piled_up_jobs = released_at, len(self._jobs)
        self.has_piled_up, self._longest_interval = True, longest_interval

    def clear(self) -> None:
        """Record that nothing is due."""
        self.has_piled_up, self._longest_interval = False, inf

    def on_answer(
        self, ref: JobRef, error: BaseException | None, began: float, due: float, not_before: float, now: float
    ) -> float | None:
        """Learn from the answer that came `now` to a poll that `began` at that loop time.

        Args:
            ref: The job.
            error: `None` where the poll showed the job.
            began: When the poll began.
            due: When its next poll is due; `now` where there is none.
            not_before: Until when the server asked for no poll of the job.
            now: The loop time.

        Returns:
            The loop time until which no job of the project is to be polled; `None` where the answer does not concern
            the others.
        """
        if due > now >= not_before:
            self._count_delay(due - now)
        elif due > now and not self._delays:
            self._usual_delay = due - now  # until a delay is known: the release of a first pause is spread, too
        if error is None:
            self._on_job(ref.project_id, now)
            return None
        if isinstance(error, NotSentError):
            if len(self._unreached) < _JOBS_NOT_REACHED:
                self._unreached.add(ref)
            return None
        if self._unreached:
            self._reached(now)
        if isinstance(error, ResponseError):
            return self._on_response(ref, error, began, not_before, now)
        return None

    def _reached(self, now: float) -> None:
        """Learn that the server was reached: no outage, or its end."""
        was_outage = self._is_outage
        self._unreached.clear()
        if was_outage:
            self.pile_up(now)

    def _count_delay(self, seconds: float) -> None:
        """Count a delay of the policy, one for each poll: the number of jobs ÷ their mean is the polls per second."""
        self._delays += 1
        self._usual_delay += max(_SMOOTHING, 1 / self._delays) * (seconds - self._usual_delay)

    def _on_job(self, project_id: str, now: float) -> None:
        """Learn that the server answers: pauses that were asked for before were not meant for all."""
        self._answered_at = now
        self._paused_until = -inf
        if self._unreached:
            self._reached(now)
        if self._askers:
            self._askers.clear()
        if self._backoffs:
            self._backoffs.pop(project_id, None)
        if self._limits.auto is not None:
            self._limits.auto.answered(now)
            self._limited.pop(project_id, None)

    def _on_response(
        self, ref: JobRef, error: ResponseError, began: float, not_before: float, now: float
    ) -> float | None:
        is_limited = isinstance(error, RateLimitedError)
        if is_limited and self._limits.auto is not None:
            self._adapt(self._limits.auto, ref.project_id, now)
        if not_before > now:
            if self._is_for_all(ref, error.status, began):
                self._paused_until = max(self._paused_until, not_before)
                self.pile_up(self._paused_until)
            return not_before if is_limited else None
        return self._back_off(ref.project_id, began, now) if is_limited else None

    def _adapt(self, auto: AutoRate, project_id: str, now: float) -> None:
        """Pass a refusal on to `auto`, unless it concerns its project alone.

        So it does where others were answered well since the project was last refused, and it was not.
        """
        if self._answered_at <= self._limited.pop(project_id, inf):
            auto.refused(now)
        self._limited[project_id] = now
        if len(self._limited) > _MAX_PROJECTS:
            del self._limited[next(iter(self._limited))]

    def _is_for_all(self, ref: JobRef, status: int, began: float) -> bool:
        """Return whether a pause is for all polls: once two jobs (503) or projects (429) have asked for one.

        A good answer that came while this poll was in flight says nothing, nor does this one: their order is not known.
        """
        if began < self._answered_at or status not in {_LIMITED, _UNAVAILABLE}:
            return False
        askers = self._askers[status]
        if len(askers) < _ALL_POLLS:  # an outage may be long, and the jobs in it ever new ones
            askers.add(ref.project_id if status == _LIMITED else ref)
        return len(askers) == _ALL_POLLS

    def _back_off(self, project_id: str, began: float, now: float) -> float:
        """Return until when a project is left alone after a 429 that does not say for how long."""
        if project_id not in self._backoffs:
            if len(self._backoffs) >= _MAX_PROJECTS:
                self._backoffs = {other: backoff for other, backoff in self._backoffs.items() if backoff.until > now}
            self._backoffs[project_id] = Backoff()
        return self._backoffs[project_id].refused(began, now)
