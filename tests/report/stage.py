"""Journals to report on: of a real run, and of hostile items."""

from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final

from agentjobs_async import JobRef
from agentjobs_async.batch import BatchItem, Journal, JournalRow, run_batch
from agentjobs_async.batch._run.records import Records
from agentjobs_async.report import write_report
from agentjobs_async.testing import Emulator, Fault, JobScript

HOSTILE = (
    "</template><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</style></title><svg onload=alert(1)>",
    '"><a href="javascript:alert(1)">x</a>',
    "{{ 7 * 7 }}${7*7}",
    "=HYPERLINK('http://evil.example','x')",
    "abc \u202egnp.exe \u2066x \x1b[31m red \x00 null \x07",
    "a line \u2028 break \x00 null \u05d0\u05d1 \u0627\u0644",
    "emoji 👩‍💻 \U0001f600 and so on",
    "emoji 👩‍💻 \U0001f601 and so on",
    "x" * 1_000_000,
)
HOSTILE_KEYS = ("<b>key</b>", "it's; rm -rf $HOME", "-h", "=1+1", "key\u202egnp", "ключ")
OUTCOMES: Final[tuple[Any, ...]] = (
    "completed",
    "completed",
    "failed",
    "unknown",
    "completed",
    "rejected",
    "archived",
    "completed",
)


async def run_some(path: Path) -> None:
    """Run eight items to the outcomes above, in turn in each project, on a journal; a ninth stays planned."""
    items = [
        BatchItem(f"page-{number}", f"Document the page {number}", "billing" if number % 2 else "docs")
        for number in range(1, len(OUTCOMES) + 1)
    ]
    async with Emulator(script=JobScript(duration=0)) as emulator, Journal.open(path) as journal:
        for item, outcome in zip(items, OUTCOMES, strict=True):
            if outcome == "unknown":
                await emulator.inject(Fault.parse("500"), prompt=item.prompt)
            elif outcome == "rejected":
                await emulator.inject(Fault.parse("422"), prompt=item.prompt)
            else:
                emulator.script(JobScript(duration=0, outcome=outcome), prompt=item.prompt)
        async with (
            emulator.session() as session,
            run_batch(session, items, journal=journal, unknown_for=0) as results,
        ):
            assert [result.outcome async for result in results] != []
        await journal.add([BatchItem("page-9", "Document the page 9", "docs")])


async def fail_all(path: Path, items: Sequence[BatchItem]) -> None:
    """Run items that all fail."""
    async with Emulator(script=JobScript(duration=0, outcome="failed")) as emulator, Journal.open(path) as journal:
        async with emulator.session(project_id="docs") as session:
            async with run_batch(session, items, journal=journal, max_active=200) as results:
                assert {result.outcome async for result in results} == {"failed"}


async def fail_hostile(path: Path) -> None:
    """Run items whose prompts and keys would do harm, if a page or a shell read them as anything but text."""
    items = [BatchItem(f"hostile-{number}", text) for number, text in enumerate(HOSTILE)]
    await fail_all(path, [*items, *(BatchItem(key, "Document it") for key in HOSTILE_KEYS)])


async def answered_late(path: Path, key: str, job_id: str) -> None:
    """Let the create of a planned item be answered once the item was sent again, since its outcome was unknown."""
    async with Journal.open(path) as journal:
        records = Records(journal.store, "another", str)
        claim = str(await records.claim(key))
        assert await records.unknown(key, claim, OSError("no answer"))
        await journal.resolve(key, send_again=True)
        assert await records.created(key, claim, JobRef("docs", job_id), None) is None


async def report_of(path: Path, **options: Any) -> str:
    """Return a report of a journal that is only read."""
    stream = StringIO()
    async with Journal.open(path, read_only=True) as journal:
        await write_report(journal, stream, **options)
    return stream.getvalue()


def summed(differences: Iterable[int | None]) -> list[int | None]:
    """Return the numbers of a column of a page."""
    last, values = 0, []
    for less in differences:
        last += less or 0
        values.append(None if less is None else last)
    return values


async def rows_of(path: Path) -> list[JournalRow]:
    """Return the rows of a journal."""
    async with Journal.open(path, read_only=True) as journal:
        return await journal.rows()
