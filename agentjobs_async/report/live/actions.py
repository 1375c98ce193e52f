"""Changes of items that a page asks for."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, TypeGuard

from attrs import frozen

from agentjobs_async import InvalidInputError, JournalError
from agentjobs_async._text import one_line
from agentjobs_async.batch import Journal, JournalRow, State
from agentjobs_async.batch._pages import pages_of
from agentjobs_async.batch._planning import retry_found
from agentjobs_async.batch._store.queries import Query
from agentjobs_async.batch._store.settling import abandon_found
from agentjobs_async.batch.states import RETRIED_BY_KEY, origins
from agentjobs_async.report.commands import found_job

__all__ = ["Action", "act"]

_LOGGER: Final = logging.getLogger("agentjobs_async.report")
_AT_ONCE: Final = 400  # rows: what one query names
_MOST_NUMBERS: Final = 1_000_000  # of rows in one action: more than a page shows
_MOST_REASONS: Final = 5  # a page has room for a few lines
_MOST_TEXT: Final = 200  # characters of what a page sent, in the log
_STATES: Final[dict[str, Collection[State]]] = {
    "retry": RETRIED_BY_KEY,
    "send_again": {State.UNKNOWN},
    "abandon": origins(State.ABANDONED) - {State.PLANNED},
    "withdraw": {State.PLANNED},
    "set_job": {State.UNKNOWN, State.ACTIVE},
}
"""The actions, and the states of the rows that each is for."""
_CHANGES_OF_MANY: Final = {"retry": retry_found, "withdraw": abandon_found}
"""What changes some hundred rows at once, and returns the keys of those that had not changed since they were read."""


@frozen
class Shown:
    """What a page showed of a row: its state, and which of its tries that was."""

    state: State
    tries: int


@frozen
class Action:
    """A change that a page asks for, and what the page showed: a row that has changed since is left as it is.

    Attributes:
        name: `retry`, `send_again`, `abandon`, `withdraw` or `set_job`.
        journal: The identity of the journal.
        rows: What the page showed of each row, by its number.
        job: The job that was found, its id or its token, with `set_job`.
    """

    name: str
    journal: str
    rows: Mapping[int, Shown]
    job: str | None = None

    @classmethod
    def of(cls, document: Any) -> "Action":
        """Return the action of a JSON document.

        Raises:
            InvalidInputError: `document` is not an action; the message says what is valid.
        """
        fields = document if isinstance(document, dict) else {}
        name, journal, rows, job = (fields.get(field) for field in ("action", "journal", "rows", "job"))
        if not isinstance(name, str) or name not in _STATES:
            raise InvalidInputError(f"action must be one of {', '.join(_STATES)}")
        if not isinstance(journal, str) or not _are_rows(rows):
            words = "journal must be its identity, and rows an object of each row's number and try by state"
            raise InvalidInputError(words)
        named = {number: Shown(State(state), tries) for state, pairs in rows.items() for number, tries in pairs}
        if not 0 < len(named) <= _MOST_NUMBERS:
            raise InvalidInputError(f"rows must have 1 to {_MOST_NUMBERS:,} numbers")
        if (name == "set_job") != (isinstance(job, str) and bool(job)) or (name == "set_job" and len(named) != 1):
            raise InvalidInputError("set_job needs a job and one row, and no other action has a job")
        return cls(name, journal, named, job)


def _are_rows(value: object) -> TypeGuard[dict[str, list[tuple[int, int]]]]:
    return isinstance(value, dict) and all(
        state in set(State) and isinstance(pairs, list) and all(map(_is_number_and_try, pairs))
        for state, pairs in value.items()
    )


def _is_number_and_try(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))  # noqa: PLR2004 - a number and a try are a pair


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


async def act(journal: Journal, action: Action, who: str) -> dict[str, Any]:
    """Carry out an action, log it with `who` asked for it, and return how it ended, as JSON.

    `done` and `refused` are the numbers of rows that were changed, and that were not; `reasons` says why some of these
    were left as they are.

    Args:
        journal: The journal, open; one that is read-only is opened once more to be written.
        action: What to do.
        who: The address of the caller.

    Raises:
        JournalError: The journal can't be written: for a file, another process owns it (`locked`); or it is not the one
            that the page showed (`moved`).
    """
    done, reasons = 0, list[str]()
    async with AsyncExitStack() as stack:
        opened = journal if not journal.read_only else await stack.enter_async_context(journal._writable())
        if (await opened.store.meta()).identity != action.journal:
            raise JournalError(f"{opened.name} is not the journal that the page shows: load the page anew", "moved")
        try:
            for numbers in pages_of(action.rows, _AT_ONCE):
                found = await _act_on(opened, numbers, action)
                reasons += found
                done += len(numbers) - len(found)
        finally:
            _log(action, done, len(reasons), who)
    return {"done": done, "refused": len(reasons), "reasons": reasons[:_MOST_REASONS]}


async def _act_on(journal: Journal, numbers: Sequence[int], action: Action) -> list[str]:
    """Change those rows that are as the page showed them, and return why each of the others is left as it is."""
    rows = {row.number: row for row in await journal.store.select(Query(numbers=numbers, size=None))}
    reasons = {number: _reason(rows.get(number), number, action) for number in numbers}
    as_shown = [row for row in rows.values() if reasons[row.number] is None]
    if (change := _CHANGES_OF_MANY.get(action.name)) is not None:
        changed = await change(journal.store, as_shown)
        late: list[str | None] = ["it has changed meanwhile"] * (len(as_shown) - len(changed))
    else:
        # At once, so that the writes share their commits.
        late = await asyncio.gather(*(_settle(journal, row, action) for row in as_shown))
    return [reason for reason in (*reasons.values(), *late) if reason is not None]


def _reason(row: JournalRow | None, number: int, action: Action) -> str | None:
    """Return why a row is left as it is; `None` if it is as the page showed it, and the action is for such rows."""
    shown, states = action.rows[number], _STATES[action.name]
    if row is None:
        return f"there is no row {number}"
    if row.tries != shown.tries:
        return f"{row.key} was tried again meanwhile: the page showed try {shown.tries}, and this is try {row.tries}"
    if row.state != shown.state:
        return f"{row.key} is {row.state} by now, and was {shown.state} on the page"
    return None if row.state in states else f"{row.key} is {row.state}, not {' or '.join(sorted(states))}"


async def _settle(journal: Journal, row: JournalRow, action: Action) -> str | None:
    """Settle a row as the command line does, unless it has changed since it was read; return why it was not settled."""
    try:
        if action.name == "abandon":
            await journal._abandon(row)
        else:
            await journal._resolve(row, None if action.job is None else found_job(action.job))
    except InvalidInputError as error:
        return str(error)
    return None


def _log(action: Action, done: int, refused: int, who: str) -> None:
    job = "" if action.job is None else f" {one_line(action.job, _MOST_TEXT)}"
    which = f"row {next(iter(action.rows))}" if len(action.rows) == 1 else f"{len(action.rows)} rows"
    _LOGGER.info("%s%s of %s for %s: %d done, %d refused", action.name, job, which, who, done, refused)
