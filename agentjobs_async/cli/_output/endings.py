"""What a run says at its end, and its exit code: a pure function of the facts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from agentjobs_async import AuthError, JobRef, NotFoundError
from agentjobs_async.batch import State
from agentjobs_async.batch.states import FAILED, open_in
from agentjobs_async.cli._output.hints import (
    EMULATOR_ENDS,
    advices,
    continuing_jobs,
    resume_command,
    retry_of,
    unknown_items,
)
from agentjobs_async.cli._output.notices import Command, Hint, Notice, Results, Sentence, Summary
from agentjobs_async.cli._output.outcomes import Outcome, advice_of, exit_code, names_unrecorded
from agentjobs_async.cli._output.results import Result, outcomes_of

if TYPE_CHECKING:
    from agentjobs_async.batch import JournalRow

_EMPTY: Final = "The journal holds no items. If it is a copy, copy the file of the original that ends in -wal as well."
_GONE: Final = "the jobs of an earlier emulator ended with it; --retry-failed creates such jobs again"


@frozen
class HowItRuns:
    """What is settled before a run begins.

    Attributes:
        address: The journal, as a command names it.
        is_own: Whether the journal is the run's own, which is shown as a table, and removed when all has ended.
        to_resume: The options with which `agentjobs resume` continues in the same way.
        to_wait: Those with which `agentjobs wait` waits for a job; `None` for an emulator of this command.
        max_tries: The tries that an item may have; `None` for any number, 1 where none is tried again.
    """

    address: str
    is_own: bool = False
    to_resume: Sequence[str] = ()
    to_wait: Sequence[str] | None = ()
    max_tries: int | None = 1

    @property
    def is_emulated(self) -> bool:
        """Whether the service is an emulator of this command, whose jobs end with it."""
        return self.to_wait is None

    @property
    def can_be_resumed(self) -> bool:
        """Whether a later command can continue: the own journal of an emulated run is removed with the command."""
        return not (self.is_own and self.is_emulated)


@frozen
class Contents:
    """What the journal holds at the end.

    Attributes:
        counts: How many items are in each state.
        unknown: The unknown items.
        retried: How many failed items this command, given again, would try again.
        results: All items, where the journal is the run's own; otherwise each had its line as it ended.
    """

    counts: Mapping[State, int]
    unknown: Sequence["JournalRow"] = ()
    retried: int = 0
    results: tuple[Result, ...] = ()


@frozen
class Facts:
    """All that decides what a run says at its end.

    Attributes:
        how: What was settled before the run began.
        contents: What the journal holds; `None` where it can't be read.
        is_at_its_place: Whether the journal's file is still where it was; always true of a database.
        open_jobs: The jobs known to continue, where the journal can't tell them: it can't be read, or is not at its
            place.
        refused_prompts: How many prompts were refused before they were planned.
        timed_out: The results of this run whose time was up.
        advice: What to do about the errors of this run, and for how many items each advice is.
        key_error: The error of a job that can't be read since the key is refused; `None` without one.
        fault: What ended the run early; `None` for nothing.
        stopped_with: The exit code of the signal that stopped the run; `None` without one.
    """

    how: HowItRuns
    contents: Contents | None
    is_at_its_place: bool = True
    open_jobs: Sequence[JobRef] = ()
    refused_prompts: int = 0
    timed_out: Sequence[Result] = ()
    advice: Mapping[str, int] = field(factory=dict)
    key_error: AuthError | None = None
    fault: Exception | None = None
    stopped_with: int | None = None


@frozen
class Ended:
    """What a run says at its end, in this order, and its exit code."""

    notices: tuple[Notice, ...]
    exit_code: int


def ended(facts: Facts) -> Ended:
    """Return what a run says at its end, and its exit code."""
    outcomes = outcomes_of({} if facts.contents is None else facts.contents.counts, facts.timed_out)
    outcomes[Outcome.REFUSED] += facts.refused_prompts
    code = _exit_code(facts, +outcomes)
    notices = [*_of_the_journal(facts), *_of_refused_prompts(facts.refused_prompts), Summary(outcomes, code)]
    return Ended(tuple(notices), code)


def tally(counts: Mapping[State, int]) -> str:
    """Return in words how many items are in each state."""
    shown = [f"{number:,} {state}" for state, number in counts.items() if number]
    return ", ".join(shown) or _EMPTY


def resume_hint(how: HowItRuns, words: str) -> list[Hint]:
    """Return the command that continues, after the words that introduce it."""
    return [Sentence(words), Command(resume_command(how.address, how.to_resume))]


def _exit_code(facts: Facts, outcomes: Counter[Outcome]) -> int:
    """Return the exit code: that of a signal, unless the last lines name jobs that no journal has."""
    if facts.stopped_with is not None and not names_unrecorded(facts.fault):
        return facts.stopped_with
    is_left_open = facts.contents is None or facts.contents.retried
    return exit_code([*outcomes, *([Outcome.ACTIVE] if is_left_open else [])], facts.fault or facts.key_error)


def _of_the_journal(facts: Facts) -> list[Notice]:
    """Return what the journal holds and what to do next, or that it can't be read."""
    contents = facts.contents
    if contents is None:
        return [*_journal_of_no_use("The journal can't be read.", facts), *_resume_later(facts)]
    return [
        *_what_it_holds(facts, contents),
        *advices(_advice(facts)),
        *_unknown(facts, contents),
        *_what_is_next(facts, contents),
    ]


def _journal_of_no_use(words: str, facts: Facts) -> list[Hint]:
    """Return why the journal is of no use, which jobs continue, and how to wait for them without it."""
    return [Sentence(words), *continuing_jobs(facts.open_jobs, facts.how.to_wait, is_only_record=True)]


def _resume_later(facts: Facts) -> list[Hint]:
    if facts.is_at_its_place and facts.how.can_be_resumed:
        return resume_hint(facts.how, "When the journal can be read again, resume with:")
    return []


def _what_it_holds(facts: Facts, contents: Contents) -> list[Notice]:
    if facts.how.is_own:
        return [Results(contents.results)]
    if not any(contents.counts.values()) and facts.refused_prompts:
        return [Sentence("Nothing was planned.")]
    return [Sentence(tally(contents.counts))]  # an empty one that was there before may be a copy without its log


def _advice(facts: Facts) -> Mapping[str, int]:
    """Return what to do about the errors of this run; an emulator lacks only what ended with an earlier one.

    The advice on the fault is left out: the line that shows the fault ends with it.
    """
    on_the_fault = "" if facts.fault is None else advice_of(facts.fault)
    advice = {words: number for words, number in facts.advice.items() if words != on_the_fault}
    if not facts.how.is_emulated:
        return advice
    not_found = advice_of(NotFoundError(404))
    return {_GONE if words == not_found else words: number for words, number in advice.items()}


def _unknown(facts: Facts, contents: Contents) -> list[Hint]:
    return unknown_items(contents.unknown, facts.how.address if facts.how.can_be_resumed else None)


def _what_is_next(facts: Facts, contents: Contents) -> list[Hint]:
    """Return which jobs no journal has, else how the run continues, else how failed items are tried again."""
    how = facts.how
    if not facts.is_at_its_place:
        return _journal_of_no_use("The journal was moved, removed or replaced.", facts)
    if open_in(contents.counts):
        return _resume_now(how, contents.counts)
    is_removed = how.is_own and not (contents.unknown or contents.retried)
    return _retry(how, contents) if how.can_be_resumed and not is_removed else []


def _resume_now(how: HowItRuns, counts: Mapping[State, int]) -> list[Hint]:
    emulator = [EMULATOR_ENDS] if how.is_emulated and counts.get(State.ACTIVE) else []
    if not how.can_be_resumed:
        return [*emulator]
    if not how.is_own:
        return [*emulator, *resume_hint(how, "Resume with:")]
    if any(number for state, number in counts.items() if state is not State.PLANNED):
        return resume_hint(how, "Resume with this; the same run again would create all of them again:")
    return resume_hint(how, "Nothing was sent. Resume with:")


def _retry(how: HowItRuns, contents: Contents) -> list[Hint]:
    """Return the command that tries failed and rejected items again, if there are any that may have another try."""
    number = contents.retried
    if how.max_tries == 1:
        number = sum(contents.counts.get(state, 0) for state in FAILED)
    bound = [] if how.max_tries in {1, None} else ["--max-tries", str(how.max_tries)]
    return retry_of(how.address, number, how.to_resume, bound)


def _of_refused_prompts(number: int) -> list[Hint]:
    if not number:
        return []
    # They were shown before the first create, perhaps thousands of lines above.
    refused = "1 prompt was refused, and is" if number == 1 else f"{number:,} prompts were refused, and are"
    return [Sentence(f"{refused} not in the journal: the first lines say why.")]
