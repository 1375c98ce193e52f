"""How a journal stands, in one sentence: what runs and when it ends, what has stopped, or how it ended."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from attrs import asdict, field, frozen

from agentjobs_async._text import span
from agentjobs_async.batch import Journal, State
from agentjobs_async.batch._monitoring import Outlook, is_at_work, outlook_of, owners_of
from agentjobs_async.batch._service import options_to
from agentjobs_async.batch._store.measures import Activity, activity
from agentjobs_async.batch.states import FAILED, open_in
from agentjobs_async.report.commands import resume_command
from agentjobs_async.report.texts import shown, span_text

__all__ = ["NEEDING_A_PERSON", "Facts", "Standing", "StandingKind", "standing", "standing_of", "unseen_words"]

NEEDING_A_PERSON: Final = (State.UNKNOWN, *FAILED)
"""The states about which a person has to decide something."""
_ACTIVE: Final = (State.ACTIVE, State.SENDING)
_NOW_SECONDS: Final = 5.0  # since it stopped: within these, it says "just now"
_SOON_SECONDS: Final = 1.0  # a shorter time to the end is no number


class StandingKind(StrEnum):
    """Which of the sentences it is: a page has a colour for each."""

    EMPTY = "empty"
    RUNNING = "running"
    TROUBLED = "troubled"
    STOPPED = "stopped"
    ENDED = "ended"
    NEEDING = "needing"
    """It has ended, and a person has to decide about some items."""
    MOVED = "moved"


@frozen
class Facts:
    """What the sentence is made of.

    Attributes:
        counts: The number of items in each state.
        is_at_work: Whether a process works on the journal.
        outlook: When it ends; needed only while a process works on open items.
        activity: When it was worked on.
        moved_to: The address to which it was moved; `None` where it was not.
        resume: The command that continues with it.
    """

    counts: Mapping[State, int]
    is_at_work: bool = False
    outlook: Outlook = field(factory=Outlook)
    activity: Activity = field(factory=Activity)
    moved_to: str | None = None
    resume: str = ""


@frozen
class Standing:
    """How a journal stands.

    Attributes:
        kind: Which sentence it is.
        words: The sentence.
        command: The command that continues with it; `None` where nothing has stopped.
    """

    kind: StandingKind
    words: str
    command: str | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


async def standing_of(journal: Journal) -> Standing:
    """Return how an open journal stands.

    Raises:
        JournalError: The journal can't be read.
    """
    return standing(await _facts_of(journal))


async def _facts_of(journal: Journal) -> Facts:
    owners = await owners_of(journal)  # before the counts: what ends in between leaves no work without a process
    counts, meta = await journal.counts(), await journal.store.meta()
    works = is_at_work(owners)
    return Facts(
        counts,
        works,
        await outlook_of(journal, counts) if works and open_in(counts) else Outlook(),
        await activity(journal.store),
        meta.moved_to,
        resume_command(journal.address, options_to(meta.service)),
    )


def standing(facts: Facts) -> Standing:
    """Return the sentence that some facts make: the one place where it is decided."""
    counts = facts.counts
    if facts.moved_to is not None:
        words = f"Moved to {shown(facts.moved_to)}: continue there, since this journal can only be read"
        return Standing(StandingKind.MOVED, words)
    if not any(counts.values()):
        return Standing(StandingKind.EMPTY, "No items yet")
    if not open_in(counts):
        kind = StandingKind.NEEDING if _number(counts, NEEDING_A_PERSON) else StandingKind.ENDED
        return Standing(kind, _ended(facts))
    if not facts.is_at_work:
        return Standing(StandingKind.STOPPED, _with_needs(_stopped(facts), counts), facts.resume)
    if facts.outlook.unseen_seconds is not None:
        words = f"Running, but {unseen_words(facts.outlook.unseen_seconds)}"
        return Standing(StandingKind.TROUBLED, _with_needs(words, counts))
    return Standing(StandingKind.RUNNING, _with_needs(f"Running: {_end(facts)}", counts))


def unseen_words(seconds: float) -> str:
    """Return in words for how long no active job was seen, and why that may be."""
    return f"no active job was seen for {span(seconds)}: no run polls them, or no server answers"


def _end(facts: Facts) -> str:
    """Return when all items will have ended, and while some are planned, what decides it."""
    end, planned = facts.outlook.end, facts.counts.get(State.PLANNED, 0)
    if end is None or (end.seconds < _SOON_SECONDS and (end.is_least or planned)):
        return "no estimate of the end yet"
    if end.seconds < _SOON_SECONDS:
        return "ends soon"
    words = f"ends {'in more than' if end.is_least else 'in about'} {span(end.seconds)}"
    return f"{words}; {end.decision}" if planned else words


def _stopped(facts: Facts) -> str:
    counts, silent_for = facts.counts, facts.activity.silent_for
    active = _number(counts, _ACTIVE)
    parts = [f"{counts.get(State.PLANNED, 0):,} planned"] * bool(counts.get(State.PLANNED))
    parts += [f"{active:,} active, polled by nobody"] if active else []
    return f"{_stop(silent_for)}: {', '.join(parts)}"


def _stop(silent_for: float | None) -> str:
    if silent_for is None:
        return "Not begun"
    return f"Stopped {span(silent_for)} ago" if silent_for >= _NOW_SECONDS else "Stopped just now"


def _ended(facts: Facts) -> str:
    counts, seconds = facts.counts, facts.activity.seconds
    ended = "Ended" if seconds is None else f"Ended in {span_text(seconds)}"
    needing = _number(counts, NEEDING_A_PERSON)
    if needing:
        return f"{ended}: {_need_you(needing)}"
    total, completed = sum(counts.values()), counts.get(State.COMPLETED, 0)
    return f"{ended}: {'all completed' if completed == total else 'nothing needs you'}"


def _with_needs(words: str, counts: Mapping[State, int]) -> str:
    needing = _number(counts, NEEDING_A_PERSON)
    return f"{words}; {_need_you(needing)}" if needing else words


def _need_you(number: int) -> str:
    return f"{number:,} need{'s' if number == 1 else ''} you"


def _number(counts: Mapping[State, int], states: Sequence[State]) -> int:
    return sum(counts.get(state, 0) for state in states)
