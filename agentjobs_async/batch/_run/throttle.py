"""When creates may go: the rate and the server's answers, for each project and for all of them together."""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextvars import Context
from typing import Final

from attrs import define, field

from agentjobs_async import CreateOutcomeUnknownError, ResponseError
from agentjobs_async._loop.backoff import Backoff
from agentjobs_async.batch._store.row_store import RowStore
from agentjobs_async.batch.limits import Rate
from agentjobs_async.errors import log_text

_SLACK_SECONDS: Final = 1e-4  # loops run timers a moment early
_UNKNOWN_IN_A_ROW: Final = 3  # one or two are a hiccup; from the third on it is an outage
_FIRST_PROBE_SECONDS: Final = 1.0  # most hiccups are over by then
_LONGEST_PROBE_SECONDS: Final = 60.0  # so an outage of ten minutes costs 15 creates
REFUSED_SECONDS: Final = 60.0  # then one create tries again: the key may have been given its permission
_SHORTEST_RETRY_AFTER_SECONDS: Final = 1.0
LONGEST_RETRY_AFTER_SECONDS: Final = 3600.0  # a longer one holds creates back no longer than this

_logger: Final = logging.getLogger("agentjobs_async.batch")


class CreateThrottle:
    """Allows creates, one after the other, as a rate and the server's answers permit. Times are those of the loop.

    The rate is a sliding window, as servers count: a leaky bucket would allow twice the count in its first span. A
    create counts as soon as it is allowed, whatever it still waits for, and until `per` seconds after it was answered
    or given up, which is no earlier than when the server counted it.

    After three unknown creates in a row without a definite answer between them, and once a refusal of the key has
    expired, one create at a time is allowed until one is answered definitely.

    Args:
        rate: `None` for no bound.
        ages: How many seconds ago earlier creates were sent.

    Attributes:
        holds: How many times creates were held back so far. A create that was allowed before the last time and has not
            been sent yet must be held back as well.
    """

    def __init__(self, rate: Rate | None, ages: Iterable[float] = ()) -> None:
        self._rate = rate
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        now = self._clock()
        self._sent = deque(sorted(now - age for age in ages))
        self._under_way = 0
        self._paused_until = now
        self._reason: Exception | None = None
        self._backoff = Backoff()
        self._held_until = now
        self.holds = 0
        self._unknown_in_a_row = 0
        self._one_at_a_time = False
        self._probe_at = now
        self._probe_delay = 0.0
        self._probe_reason: Exception | None = None
        self._refusal: Exception | None = None
        self._refused_until = now
        self._order = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def next_at(self) -> float | None:
        """When the next create may go; `None` when that depends on one that is under way."""
        now = self._clock()
        earliest = max(now, self._paused_until, self._held_until)
        if self._one_at_a_time:
            if self._under_way:
                return None
            earliest = max(earliest, self._probe_at)
        if self._rate is None:
            return earliest
        self._forget(now)
        free = self._rate.count - self._under_way - len(self._sent)
        if free > 0:
            return earliest
        if len(self._sent) < 1 - free:
            return None
        return max(self._sent[-free] + self._rate.per, earliest)

    @property
    def paused(self) -> bool:
        """Whether a pause holds all creates back."""
        return self._clock() < self._paused_until

    @property
    def paused_for(self) -> float:
        """For how many seconds more a pause holds all creates back."""
        return max(self._paused_until - self._clock(), 0.0)

    @property
    def refused_by(self) -> Exception | None:
        """Why the server refuses the creates at present; `None` when it does not."""
        return self._refusal if self._clock() < self._refused_until else None

    async def take(self) -> int | None:
        """Wait until a create may go, and count it as under way; `spend` or `refund` must follow.

        Returns `holds` as it was then, or `None` when the creates are refused: then nothing is counted.
        """
        async with self._order:
            while self.refused_by is None and ((due := self.next_at) is None or due > self._clock()):
                self._changed.clear()
                await self._wait(due)
            if self.refused_by is not None:
                return None
            self._under_way += 1
            return self.holds

    def spend(self) -> None:
        """Count a create that the server answered, or may have answered."""
        self._under_way -= 1
        if self._rate is not None:  # without one nothing would ever remove them
            self._sent.append(self._clock())
        self._changed.set()

    def refund(self) -> None:
        """Discard a create that never reached the server."""
        self._under_way -= 1
        self._changed.set()

    @property
    def paused_by(self) -> Exception | None:
        """Why creates are held back; `None` when nothing but the rate does so, or when an earlier run began it."""
        if self._one_at_a_time:
            return self._probe_reason
        return self._reason if self.paused else None

    def pause(self, seconds: float, reason: Exception | None = None) -> None:
        """Pause creates for `seconds`; a longer pause stands."""
        self._reason = reason
        self._paused_until = max(self._paused_until, self._clock() + seconds)
        self._hold_back()

    def limit(self, began: float, retry_after: float | None, reason: Exception) -> None:
        """Pause creates because the server refused one for now.

        Args:
            began: Loop time at which that create began.
            retry_after: Seconds for which the server asks; they count as 1 at least, and as 3600 at most. For `None` or
                0, the pauses are those of a `Backoff`, until a create gives a job.
            reason: The server's answer.
        """
        now = self._clock()
        if retry_after:
            seconds = min(max(retry_after, _SHORTEST_RETRY_AFTER_SECONDS), LONGEST_RETRY_AFTER_SECONDS)
        else:
            seconds = self._backoff.refused(began, now) - now
        self.pause(seconds, reason)

    def defer(self, seconds: float) -> None:
        """Defer further creates for `seconds`; unlike a pause, this does not hold back one that was let go."""
        self._held_until = max(self._held_until, self._clock() + seconds)
        self._changed.set()

    def count_unknown(self, holds: int, reason: Exception, retry_after: float) -> bool:
        """Count a create that may have started an agent; return whether it begins an outage.

        Args:
            holds: What `take` returned for it. Creates that were under way before do not lengthen the delay.
            reason: Its error.
            retry_after: Seconds that the server asked for with it; 0 when it did not.
        """
        self._unknown_in_a_row += 1
        if self._unknown_in_a_row < _UNKNOWN_IN_A_ROW and not self._one_at_a_time:
            return False
        begins, self._one_at_a_time, self._probe_reason = not self._one_at_a_time, True, reason
        if holds == self.holds:
            self._probe_delay = min(max(2 * self._probe_delay, _FIRST_PROBE_SECONDS), _LONGEST_PROBE_SECONDS)
        self._probe_at = max(self._probe_at, self._clock() + self._probe_delay)
        # Kept apart from the delay, which a late definite answer ends: what a server asks for holds in any case.
        self._paused_until = max(self._paused_until, self._clock() + retry_after)
        self._hold_back()
        return begins

    def count_definite(self) -> None:
        """Count an answer that shows whether its create started an agent; creates no longer go one at a time."""
        self._unknown_in_a_row, self._one_at_a_time, self._probe_delay = 0, False, 0.0
        self._probe_at = self._clock()
        self._changed.set()

    def refuse(self, reason: Exception, seconds: float) -> None:
        """Refuse all creates for `seconds`, those that wait included; then allow one at a time."""
        self._refusal, self._refused_until = reason, self._clock() + seconds
        self._one_at_a_time, self._probe_reason = True, reason
        self._hold_back()

    def accept(self) -> None:
        """End a refusal, since a create with the same key has succeeded; the next pause is the first of a row."""
        self._backoff.answered()
        self._refused_until = self._clock()

    def _hold_back(self) -> None:
        self.holds += 1
        self._changed.set()

    async def _wait(self, due: float | None) -> None:
        """Wait until `due`, or until something changes."""
        # Without the slack, a timer that runs early would make this a busy wait.
        timer = None if due is None else self._loop.call_at(due + _SLACK_SECONDS, self._changed.set, context=Context())
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _forget(self, now: float) -> None:
        assert self._rate is not None  # noqa: S101 - only called with one
        while self._sent and now - self._sent[0] >= self._rate.per:
            self._sent.popleft()


@define(eq=False)
class Permit:
    """The permit of one create, valid unless creates were held back since."""

    project: str
    _own: CreateThrottle
    _common: CreateThrottle
    _own_holds: int
    _common_holds: int | None = field(default=None, init=False)
    _open: bool = field(default=True, init=False)

    @property
    def is_current(self) -> bool:
        """Whether the create may still go."""
        return (self._own_holds, self._common_holds) == (self._own.holds, self._common.holds)

    async def take_common(self) -> None:
        """Wait until a create of any project may go, too."""
        self._common_holds = await self._common.take()

    def spend(self) -> None:
        """Count a create that the server answered, or may have answered."""
        if self._open:
            self._open = False
            self._own.spend()
            if self._common_holds is not None:
                self._common.spend()

    def refund(self) -> None:
        """Discard a create that never reached the server; do nothing if it is counted already."""
        if self._open:
            self._open = False
            self._own.refund()
            if self._common_holds is not None:
                self._common.refund()

    def limit(self, error: Exception, began: float) -> float:
        """Count a create, begun at `began`, that the server refused for now; return how long others are paused."""
        self.spend()
        self._own.limit(began, error.retry_after if isinstance(error, ResponseError) else None, error)
        return self._own.paused_for

    def count_unknown(self, error: Exception) -> bool:
        """Count a create that may have started an agent; return whether this begins an outage."""
        self.spend()
        asked = error.retry_after if isinstance(error, CreateOutcomeUnknownError) else None
        retry_after = min(asked or 0.0, LONGEST_RETRY_AFTER_SECONDS)
        return self._own.count_unknown(self._own_holds, error, retry_after)


class CreateThrottles:
    """A throttle for each project, and one for all creates.

    Args:
        rate: How many creates may be sent, of each project or of all.
        sent: The creates of earlier runs, by project and age in seconds.
        refused_for: Seconds for which no create of a project is sent after one was refused with 401 or 403.

    Attributes:
        common: The throttle of all creates: a rate for all of them, and pauses while nothing can be sent.
        succeeded: Whether any create of this run succeeded.
        refusal: The first 401 or 403 to a create; `None` when there was none.
    """

    def __init__(self, rate: Rate | None, sent: Sequence[tuple[str | None, float]], *, refused_for: float) -> None:
        is_common = rate is not None and rate.scope == "all"
        self.common = CreateThrottle(rate, [age for _, age in sent]) if is_common else CreateThrottle(None)
        self.succeeded = False
        self.refusal: Exception | None = None
        self._rate = None if is_common else rate
        self._refused_for = refused_for
        # A session that names no project may send to any of them.
        by_project: dict[str | None, list[float]] = {None: []}
        for project, age in () if self._rate is None else sent:
            by_project.setdefault(project, []).append(age)
            by_project[None].append(age)
        self._throttles = {project: CreateThrottle(self._rate, ages) for project, ages in by_project.items()}

    def of(self, project: str | None) -> CreateThrottle:
        """Return the throttle of a project."""
        if project not in self._throttles:
            self._throttles[project] = CreateThrottle(self._rate)
        return self._throttles[project]

    async def take(self, project: str) -> Permit | None:
        """Wait until a create of a project may go; return `None` when the server refuses its creates.

        `Permit.spend` or `Permit.refund` must follow.
        """
        own = self.of(project)
        holds = await own.take()
        return None if holds is None else Permit(project, own, self.common, holds)

    def accept(self, permit: Permit) -> bool:
        """Count a create that gave a job; return whether this ends a refusal of its project."""
        self.succeeded = True
        permit.spend()
        was_refused = self.is_refused(permit.project)
        self.of(permit.project).accept()
        self.of(permit.project).count_definite()
        return was_refused

    def count_definite(self, permit: Permit) -> None:
        """Count a create that is known to have started no agent."""
        permit.spend()
        self.of(permit.project).count_definite()

    def count_unknown(self, permit: Permit, error: Exception) -> None:
        """Count a create that may have started an agent; after three in a row, they are sent one at a time."""
        if permit.count_unknown(error):
            _logger.warning(
                "%s are held back, and sent one at a time until one is answered definitely: %s",
                _named(permit.project),
                log_text(error),
            )

    def refuse(self, permit: Permit, error: Exception) -> None:
        """Hold back the creates of a project because the server refuses the key for it."""
        permit.spend()
        self.refusal = self.refusal or error
        own = self.of(permit.project)
        if own.refused_by is None:
            _logger.warning("%s are refused, and stay planned: %s", _named(permit.project), log_text(error))
        own.refuse(error, self._refused_for)

    def limit(self, permit: Permit, error: Exception, began: float) -> None:
        """Hold back the creates of a project because the server refused one for now that began at `began`."""
        seconds = permit.limit(error, began)
        self.of(permit.project).count_definite()
        _logger.warning("%s are held back for %.0f s: %s", _named(permit.project), seconds, log_text(error))

    def paused_for(self, project: str) -> float:
        """Return for how many seconds more a pause holds back the creates of a project."""
        return self.of(project).paused_for

    def pause_all(self, seconds: float, reason: Exception) -> None:
        """Hold back all creates because none can be sent."""
        self.common.pause(seconds, reason)
        _logger.warning("all creates are held back for %.0f s: %s", seconds, log_text(reason))

    def is_refused(self, project: str) -> bool:
        """Return whether the server refuses the creates of a project at present."""
        return project in self._throttles and self._throttles[project].refused_by is not None

    def may_go(self, project: str) -> bool:
        """Return whether a create of a project may go right now."""
        due = self.next_at(project)
        return due is not None and due <= asyncio.get_running_loop().time() and not self.is_refused(project)

    def next_at(self, project: str | None) -> float | None:
        """Return when the next create of a project may go; `None` when that depends on one that is under way."""
        own = self._throttles[project].next_at if project in self._throttles else self.common.next_at
        common = self.common.next_at
        return None if own is None or common is None else max(own, common)

    def paused_by(self, projects: Collection[str]) -> Exception | None:
        """Return why creates of some projects are held back; `None` when nothing but a rate does so."""
        found = (self._throttles[project].paused_by for project in projects if project in self._throttles)
        return self.common.paused_by or next((reason for reason in found if reason is not None), None)


async def throttles_of(store: RowStore, rate: Rate | None, *, refused_for: float) -> CreateThrottles:
    """Return throttles that know the creates and the pauses of earlier runs.

    Raises:
        JournalError: The journal can't be read.
    """
    sent = [] if rate is None else await store.sent_ages(rate.per, rate.count)
    throttles = CreateThrottles(rate, sent, refused_for=refused_for)
    for project, seconds in (await store.paused_for()).items():
        throttles.of(project).pause(min(seconds, LONGEST_RETRY_AFTER_SECONDS))
    return throttles


def _named(project: str) -> str:
    return f"creates of project {project}"
