"""A limit of the polls per second that follows from the server's refusals: none before the first 429, then CUBIC."""

from collections import deque
from math import inf
from typing import Final

_CUT: Final = 0.7  # the part of the measured rate that a refusal leaves, as in CUBIC (RFC 9438)
_PLATEAU: Final = 0.98  # of the refused rate: where the curve is flat, so that polls stay just below the quota
_REGROWTH_SECONDS: Final = 8.0  # to the plateau; the shorter, the less of the quota is left unused
_SEARCH_SECONDS: Final = 50.0  # the scale of the growth beyond; each refusal leaves quota unused, also by its pause
_SEARCH_SPANS: Final = 6.0  # or so many spans: within one, the rate must not grow beyond the quota by much
_DOUBLES_BEYOND: Final = 1.05  # of the refused rate: a server that does not refuse this much allows more than before
_AT_DOUBLES: Final = ((_DOUBLES_BEYOND - _PLATEAU) / (_PLATEAU - _CUT)) ** (1 / 3)  # of the search, to reach that
_DOUBLING_SECONDS: Final = 6.0  # in which the limit doubles from then on: four times the quota is found within a minute
_MAX_DOUBLINGS: Final = 64.0  # as much as no limit
_FIRST_POLLS: Final = 5.0  # may be in flight at first, or start in a second
_AHEAD: Final = 1.1  # polls that may start for each good answer: when the first is refused, so are all in flight
_FLOOR: Final = 0.2  # polls per second where none was answered: slower ones would not notice that the server allows any
_CAUGHT_UP_SECONDS: Final = 0.03
"""How late a start may be for the next one to make up for it: timers are late, and would leave a quota unused.

On a busy machine, 10 ms left a tenth of the quota unused, and with 50 ms twice as many polls were refused.

A limit that the user has set is kept to more strictly: two starts are never closer than it allows.
"""

_BIN_SECONDS: Final = 0.05  # of the counts
_MOST_BINS: Final = 4096
_LEAST_SPAN_SECONDS: Final = 1.0
_SPAN_OF_REFUSALS: Final = 1.1  # times the time in which all polls were refused: what was answered came before it
_SPAN_LEFT: Final = 0.97  # of the span, at each refusal that did not last for as long
_MEASURED_SPANS: Final = (1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 4.0, 10.0)
"""The busiest of these is the measured rate: a mean would count time without demand."""

_TRIAL_SECONDS, _MOST_TRIAL_SECONDS = 10.0, 60.0
"""Between two trials, while all polls are refused: less than the first at first, and at most the second after long."""


class AdaptiveRate:
    """How many polls may start per second, learnt from the answers.

    Before the first refusal there is no limit, but at first few polls are in flight, and more with each good answer.

    A refusal cuts the measured rate. From then on the limit regrows along the curve of CUBIC: fast at first, hardly
    near the rate that was refused. Once it is beyond that rate, or where no poll was answered before the refusal, the
    server's limit is not known: this one doubles again and again, as in TCP's slow start, until the next refusal.

    While all polls are refused, the quota of some span of time is used up: single polls try whether there is a new one.
    How long that lasts says how long the span is. The rate is measured over it, and a long one makes the limit grow
    more slowly, so that one span never has many more polls than the last.
    """

    def __init__(self) -> None:
        self._ahead = _FIRST_POLLS  # polls that may start at once, before there is a limit
        self._next_start = -inf
        self._peak = inf  # the refused rate; there is no limit before the first refusal
        self._refused_at: float | None = None  # when the refusals began that no good answer has ended
        self._decided_at = self._last_refused_at = self._paused_until = self._regrows_from = self._doubles_from = -inf
        self._trial_seconds = 0.0
        self._span = _LEAST_SPAN_SECONDS
        self._answered = False  # whether any poll was, in the time over which the rate was measured
        self._counts: deque[list[int]] = deque(maxlen=_MOST_BINS)
        """Bins of loop time, and the number of jobs that polls showed in each."""

    def count(self, began: float, now: float) -> None:
        """Count a poll that began at the loop time `began` and showed its job `now`."""
        if self._refused_at is not None and began >= self._refused_at:
            self._end_refusals(self._refused_at, now)
        self._ahead += _AHEAD
        number = int(now / _BIN_SECONDS)
        if not self._counts or self._counts[-1][0] != number:
            self._counts.append([number, 0])
        self._counts[-1][1] += 1

    def _end_refusals(self, since: float, now: float) -> None:
        self._refused_at, self._decided_at = None, now
        lasted = _SPAN_OF_REFUSALS * (self._last_refused_at - max(since, self._paused_until))
        if self._answered and lasted > self._span:
            self._span = lasted
            self._peak = min(self._peak, self._measured(now) or inf)
        else:
            self._span = max(self._span * _SPAN_LEFT, _LEAST_SPAN_SECONDS)
        seconds = _REGROWTH_SECONDS + self._search_seconds * _AT_DOUBLES + self._span if self._answered else 0.0
        self._regrows_from, self._doubles_from = now, now + seconds
        self._next_start = now + 1 / self.at(now)

    @property
    def _search_seconds(self) -> float:
        return max(_SEARCH_SECONDS, _SEARCH_SPANS * self._span)

    def _measured(self, now: float) -> float:
        """Return the polls per second that were answered in the busiest time until `now`."""
        rates = []
        for spans in _MEASURED_SPANS:
            begin = int((now - spans * self._span) / _BIN_SECONDS)
            rates.append(sum(count for number, count in self._counts if number >= begin) / (spans * self._span))
        return max(rates)

    def refuse(self, began: float, now: float, until: float) -> None:
        """Cut the limit, since a poll that began at the loop time `began` was refused `now`.

        `until`: when the pause ends that the server asked for; `now` where it asked for none. A poll that began before
        the last cut, or before the last refusals ended, says nothing about the limit since then.
        """
        if began < self._decided_at:
            return
        self._last_refused_at = now
        if until > now:
            self._paused_until = max(self._paused_until, until)
        if self._refused_at is None:
            measured = self._measured(now)
            self._answered = measured > 0
            self._peak = min(measured, self.at(now)) if measured else _FLOOR
            self._refused_at = self._decided_at = now
            self._trial_seconds = 1 / self.at(now)
            self._next_start = now + self._trial_seconds

    def at(self, now: float) -> float:
        """Return the limit at the loop time `now`, in polls per second; infinity before the first refusal."""
        if self._refused_at is not None:
            return self._peak * _CUT
        if now > self._doubles_from:
            doublings = min((now - self._doubles_from) / max(_DOUBLING_SECONDS, self._span), _MAX_DOUBLINGS)
            return self._peak * _DOUBLES_BEYOND * 2**doublings
        beyond = max(now - self._regrows_from, 0.0) - _REGROWTH_SECONDS
        curve = (beyond / (_REGROWTH_SECONDS if beyond < 0 else self._search_seconds)) ** 3
        return min(self._peak * (_PLATEAU + (_PLATEAU - _CUT) * curve), self._peak * _DOUBLES_BEYOND)

    def next_start(self, now: float) -> float:
        """Return when the next poll may start."""
        return self._next_start if self._peak < inf or self._ahead < 1 else now

    def start(self, now: float) -> None:
        """Count one poll as started."""
        self._ahead = max(self._ahead - 1, 0.0)
        if self._peak == inf:
            self._next_start = now + 1 / _FIRST_POLLS
        elif self._refused_at is None:
            self._next_start = max(now - _CAUGHT_UP_SECONDS, self._next_start) + 1 / self.at(now)
        else:
            lasted = now - self._refused_at
            longest = min(lasted / 2, max(_TRIAL_SECONDS, lasted / 8), _MOST_TRIAL_SECONDS)
            self._trial_seconds = max(self._trial_seconds, longest)
            self._next_start = now + self._trial_seconds
