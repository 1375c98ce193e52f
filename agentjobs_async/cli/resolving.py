"""The command that settles many items, as the lines of a file say."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async._text import one_line
from agentjobs_async.batch import Journal
from agentjobs_async.cli.outcomes import ExitCode, described
from agentjobs_async.cli.process import Context
from agentjobs_async.cli.prompts import read_text
from agentjobs_async.cli.records import Record, apparent_format, records_of

__all__ = ["Resolution", "found_job", "resolutions_of", "resolve_all", "settle"]

SEND_AGAIN: Final = "send-again"
ABANDON: Final = "abandon"
_OPTION: Final = "--from"
_DONE: Final = {SEND_AGAIN: "planned again", ABANDON: "abandoned"}
_NAMES: Final = {"key", "job"}
_WITH_JOB: Final = "with their jobs"


@frozen
class Resolution:
    """What a line of the file says.

    Attributes:
        place: Where it is, such as `line 7`.
        key: The key of its item.
        what: A job's id or token, `send-again` or `abandon`.
        defect: Why it can't be read; empty if it can.
    """

    place: str
    key: str = ""
    what: str = ""
    defect: str = ""


def resolutions_of(file: str) -> list[Resolution]:
    """Return what the lines of a file say; `-` is standard input.

    Raises:
        InvalidInputError: It can't be read as a whole, or says nothing.
    """
    found = [_resolution(record) for record in _records(file, read_text(file, _OPTION))]
    if not found:
        raise InvalidInputError(f"{_OPTION}: there is no line of a key and a job, {SEND_AGAIN} or {ABANDON}")
    return found


def _records(file: str, text: str) -> list[Record]:
    form = apparent_format(file, text)
    if form == "lines" and set(text.partition("\n")[0].strip().split(",")) >= _NAMES:
        form = "csv"  # such as a table from standard input, which has no suffix
    records = records_of(file, text, form, _OPTION)
    if form in {"csv", "tsv"} and not all(record.fields is None or set(record.fields) >= _NAMES for record in records):
        raise InvalidInputError(f"{_OPTION}: the first line of a table must name its columns, key and job among them")
    return records


def _resolution(record: Record) -> Resolution:
    fields = record.fields
    if isinstance(fields, str):
        words = fields.rsplit(maxsplit=1)
        fields = dict(zip(("key", "job"), words, strict=False))
    if record.defect or fields is None:
        return Resolution(record.place, defect=record.defect)
    key, what = (str(fields.get(name) or "").strip() for name in ("key", "job"))
    if not key or not what:
        return Resolution(record.place, defect=f"it has no key, or neither a job nor {SEND_AGAIN} nor {ABANDON}")
    return Resolution(record.place, key, what)


async def resolve_all(context: Context, journal: str, resolutions: Sequence[Resolution]) -> int:
    """Carry out each line; show those that can't be, each with the reason, and how many were carried out."""
    done = Counter[str]()
    async with Journal.open(journal) as opened:
        for resolution in resolutions:
            defect = resolution.defect or await _refusal(opened, resolution)
            if defect:
                name = f"{resolution.place} {one_line(resolution.key, 200)}".rstrip()
                context.screen.notice(f"{name} ", ("refused", "bold red"), f": {defect}")
            else:
                done[_DONE.get(resolution.what, _WITH_JOB)] += 1
    refused = len(resolutions) - done.total()
    settled = "".join(f", {number:,} {words}" for words, number in done.items())
    context.screen.notice(f"{done.total():,} settled{settled}; {refused:,} refused.")
    return ExitCode.FAILED if refused else ExitCode.COMPLETED


async def _refusal(journal: Journal, resolution: Resolution) -> str:
    """Carry out one line; return why it can't be, or nothing."""
    try:
        await settle(journal, resolution.key, resolution.what)
    except InvalidInputError as error:
        return described(error)
    return ""


async def settle(journal: Journal, key: str, what: str) -> None:
    """Settle an item by a job's id or token, by `send-again` or by `abandon`.

    Raises:
        InvalidInputError: The item can't be settled so.
    """
    if what == ABANDON:
        await journal.abandon(key)
    elif what == SEND_AGAIN:
        await journal.resolve(key, send_again=True)
    else:
        await journal.resolve(key, job_id=found_job(what))


def found_job(text: str) -> JobRef | str:
    """Return the job that a person found, from its token or its id.

    Raises:
        InvalidInputError: It is no token, or the word that stands for a job in the commands that are shown.
    """
    if text == "JOB":
        raise InvalidInputError("JOB stands for the job that you found: put its id there, or its token project/job")
    return JobRef.from_token(text) if "/" in text else text
