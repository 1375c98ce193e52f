"""A journal at one moment, and what is said of it in words: the share done, its probable end, its counts."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from attrs import frozen

from agentjobs_async._text import span
from agentjobs_async.batch import State
from agentjobs_async.batch._estimates import End
from agentjobs_async.batch.states import open_in

ACTIVE: Final = (State.ACTIVE, State.SENDING)
_LEAST_SECONDS: Final = 1.0  # a shorter time to come, or that has passed, is rounded to none
_LATE_SECONDS: Final = 1.0  # beyond the usual time of a job; polls are seconds apart
_SOON_SECONDS: Final = 12 * 3600.0  # a time further away needs its day


@frozen
class Active:
    """An item under way.

    Attributes:
        key: Its key.
        prompt: Its prompt.
        state: active or sending.
        age: Seconds that it has been in this state.
        polls: How often its job was polled.
        pr_link: The pull request of its job; `None` without one.
    """

    key: str
    prompt: str
    state: State
    age: float
    polls: int = 0
    pr_link: str | None = None


@frozen
class View:
    """A journal at one moment, as the run that works on it sees it, or as any other process does.

    Attributes:
        counts: The number of items in each state.
        now: The wall clock, in seconds since the epoch.
        active: The items under way, or the oldest of them.
        end: When all have ended; `None` while that is not known.
        usual: The seconds that half of the jobs took at most, and nine of ten; `None` while that is not known.
        elapsed: Seconds since the run began; `None` for another process.
        next_create: Seconds until the next create may go; `None` if that is not known.
        held_by: What holds back creates, in words; empty for nothing but a rate.
        trouble: Why nothing goes on, in words; empty as long as something may.
    """

    counts: Mapping[State, int]
    now: float
    active: Sequence[Active] = ()
    end: End | None = None
    usual: tuple[float, float] | None = None
    elapsed: float | None = None
    next_create: float | None = None
    held_by: str = ""
    trouble: str = ""

    @property
    def total(self) -> int:
        """The number of items."""
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        """The number of items whose end is known, whichever it is."""
        return self.total - self.open - self.number(State.UNKNOWN)

    @property
    def open(self) -> int:
        """The number of items that have not ended."""
        return open_in(self.counts)

    def number(self, *states: State) -> int:
        """Return the number of items in some states."""
        return sum(self.counts.get(state, 0) for state in states)


def in_one_line(view: View) -> str:
    """Return the view as one line of a log."""
    share = f"{clock(view.now, view.now)} {share_done(view)}: {', '.join(counts_in_words(view.counts))}"
    if not view.open:
        return share if view.number(State.UNKNOWN) else f"{share}; all have ended"
    return f"{share}; {end_in_words(view)}"


def clock(moment: float, now: float) -> str:
    """Return a moment, in seconds since the epoch as `now` is, as local time; from 12 h after `now` on with its day."""
    local = datetime.fromtimestamp(moment, UTC).astimezone()
    return f"{local:%H:%M:%S}" if moment - now < _SOON_SECONDS else f"{local:%a %H:%M}"


def share_done(view: View) -> str:
    """Return the share of the items that have ended, and for the run itself the time since it began."""
    percent = f"{100 * view.done // max(view.total, 1)} %"
    is_long = view.elapsed is not None and view.elapsed >= _LEAST_SECONDS
    return f"{percent} in {span(view.elapsed or 0.0)}" if is_long else percent


def counts_in_words(counts: Mapping[State, int]) -> Iterator[str]:
    """Yield how many items are in each state that occurs, in the order of the states; sending counts as active."""
    active = sum(counts.get(state, 0) for state in ACTIVE)
    for state in State:
        number = active if state is State.ACTIVE else counts.get(state, 0)
        if number and state is not State.SENDING:
            yield f"{number:,} {state}"


def end_in_words(view: View) -> str:
    """Return why nothing goes on; else when the run ends, what decides it, and when the next create may go."""
    if view.trouble:
        return view.trouble
    planned, due = view.number(State.PLANNED), view.next_create
    words = [_end(view) or "no estimate of the end yet"]
    next_create = f"next create {clock(view.now + due, view.now)}" if due else ""
    if view.held_by:
        words.append(f"{next_create}: {view.held_by}" if next_create else view.held_by)
    elif planned:
        words += [view.end.decision] if view.end is not None else []
        words += [next_create] if next_create else []
    return "; ".join(words)


def _end(view: View) -> str | None:
    """Return the end of the run; `None` while it is not known. No run is said to end in 0 s: it has not ended."""
    found = view.end
    if found is None:
        return None
    if found.seconds >= _LEAST_SECONDS:
        how = "ends after" if found.is_least else "ends about"
        return f"{how} {clock(view.now + found.seconds, view.now)}, in {span(found.seconds)}"
    if found.is_least or view.number(State.PLANNED):  # what is planned and not to be sent has no end
        return None
    usual = 0.0 if view.usual is None else view.usual[0]
    is_late = any(item.age - usual > _LATE_SECONDS for item in view.active)
    return "jobs take longer than usual" if is_late else "ends soon"
