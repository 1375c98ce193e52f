"""Changes of items that a page asks for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from attrs import define, field, frozen

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async._text import one_line
from agentjobs_async.batch import Journal, JournalRow
from agentjobs_async.batch._retries import retry_found
from agentjobs_async.batch.journal import entries_of, writable
from agentjobs_async.batch.states import RETRIED

__all__ = ["Action", "ActionResult", "act"]

_LOGGER: Final = logging.getLogger("agentjobs_async.report")
_AT_ONCE: Final = 400  # rows: what one query names
_MOST_NUMBERS: Final = 1_000_000  # of rows in one action: more than a page shows
_MOST_REASONS: Final = 5  # a page has room for a few lines
_MOST_TEXT: Final = 200  # characters of what a page sent, in the log


@frozen
class Action:
    """A change that a page asks for, and the rows that it is for.

    Attributes:
        name: `retry`, `send_again`, `abandon` or `set_job`.
        numbers: The numbers of the rows: exactly those that the page showed.
        job: The job that was found, its id or its token, with `set_job`.
    """

    name: str
    numbers: tuple[int, ...]
    job: str | None = None

    @classmethod
    def of(cls, document: Any) -> "Action":
        """Return the action of a JSON document.

        Raises:
            InvalidInputError: `document` is not an action; the message says what is valid.
        """
        fields = document if isinstance(document, dict) else {}
        name, numbers, job = fields.get("action"), fields.get("numbers"), fields.get("job")
        if not isinstance(name, str) or name not in _ACTIONS:
            raise InvalidInputError(f"action must be one of {', '.join(_ACTIONS)}")
        if not isinstance(numbers, list) or not 0 < len(numbers) <= _MOST_NUMBERS or not all(map(_is_number, numbers)):
            raise InvalidInputError("numbers must be a list of the numbers of rows")
        if (name == "set_job") != (isinstance(job, str) and bool(job)) or (name == "set_job" and len(numbers) != 1):
            raise InvalidInputError("set_job needs a job and one number, and no other action has a job")
        return cls(name, tuple(dict.fromkeys(numbers)), job)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


@define
class ActionResult:
    """How an action ended.

    Attributes:
        done: The number of rows that were changed.
        refused: The number of rows that were not.
        reasons: Why some of these were refused, at most five.
    """

    done: int = 0
    refused: int = 0
    reasons: list[str] = field(factory=list)

    def refuse(self, reason: str) -> None:
        """Count a row that was refused."""
        self.refused += 1
        if len(self.reasons) < _MOST_REASONS:
            self.reasons.append(reason)


async def act(journal: Journal, action: Action, who: str) -> ActionResult:
    """Carry out an action, and log it with `who` asked for it.

    Args:
        journal: The journal, open; one that is read-only is opened once more to be written.
        action: What to do.
        who: The address of the caller.

    Raises:
        JournalError: The journal can't be written; for a file, another process owns it (`locked`).
    """
    outcome = ActionResult()
    async with AsyncExitStack() as stack:
        opened = journal if not journal.read_only else await stack.enter_async_context(writable(journal))
        try:
            for start in range(0, len(action.numbers), _AT_ONCE):
                numbers = action.numbers[start : start + _AT_ONCE]
                rows = await entries_of(opened).numbered(numbers)
                for number in sorted(set(numbers) - {row.number for row in rows}):
                    outcome.refuse(f"there is no row {number}")
                await _ACTIONS[action.name](opened, rows, action.job, outcome)
        finally:
            _log(action, outcome, who)
    return outcome


def _log(action: Action, outcome: ActionResult, who: str) -> None:
    job = "" if action.job is None else f" {one_line(action.job, _MOST_TEXT)}"
    which = f"row {action.numbers[0]}" if len(action.numbers) == 1 else f"{len(action.numbers)} rows"
    _LOGGER.info("%s%s of %s for %s: %d done, %d refused", action.name, job, which, who, outcome.done, outcome.refused)


async def _retry(journal: Journal, rows: Sequence[JournalRow], job: str | None, outcome: ActionResult) -> None:
    del job
    open_rows = []
    for row in rows:
        if row.retried_as is not None:
            outcome.refuse(f"{row.key} was tried again before, as {row.retried_as}")
        elif row.state not in RETRIED:
            outcome.refuse(f"{row.key} is {row.state}: only what failed, was archived or rejected is tried again")
        else:
            open_rows.append(row)
    planned = len(await retry_found(entries_of(journal), open_rows))
    outcome.done += planned
    for _ in range(len(open_rows) - planned):
        outcome.refuse("it was tried again meanwhile")


async def _send_again(journal: Journal, rows: Sequence[JournalRow], job: str | None, outcome: ActionResult) -> None:
    del job
    await _each(rows, outcome, lambda row: journal.resolve(row.key, send_again=True))


async def _abandon(journal: Journal, rows: Sequence[JournalRow], job: str | None, outcome: ActionResult) -> None:
    del job
    await _each(rows, outcome, lambda row: journal.abandon(row.key))


async def _set_job(journal: Journal, rows: Sequence[JournalRow], job: str | None, outcome: ActionResult) -> None:
    text = job or ""

    async def resolve(row: JournalRow) -> None:
        await journal.resolve(row.key, job_id=JobRef.from_token(text) if "/" in text else text)

    await _each(rows, outcome, resolve)


async def _each(
    rows: Sequence[JournalRow], outcome: ActionResult, change: Callable[[JournalRow], Awaitable[None]]
) -> None:
    # At once, so that the writes share their commits.
    found = await asyncio.gather(*(change(row) for row in rows), return_exceptions=True)
    for error in found:
        if isinstance(error, InvalidInputError):
            outcome.refuse(str(error))
        elif isinstance(error, BaseException):
            raise error
        else:
            outcome.done += 1


_ACTIONS: Final = {"retry": _retry, "send_again": _send_again, "abandon": _abandon, "set_job": _set_job}
