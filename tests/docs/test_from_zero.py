import csv
import re
from pathlib import Path

import pytest

from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import blocks, lines_missing, shell

INSTALL, PLAN, TRIAL, RESUME, STATUS, SETTLE, EXPORT = blocks("from-zero", "sh")
PLANNED, _, _, NEEDED, SETTLED, EXPORTED = blocks("from-zero", "console")
(TABLE,) = blocks("from-zero", "text")
TITLES = {"page-3": "Import 3", "page-4011": "Import 4011", "page-4012": "Billing 4012"}


def write_table(folder: Path, numbers: list[int]) -> None:
    """Write the table of the page, with these rows after its first two."""
    rows = [
        f"page-{number},{TITLES.get(f'page-{number}', f'Page {number}')},docs/{number}.md,ann\n" for number in numbers
    ]
    (folder / "pages.csv").write_text(TABLE + "".join(rows), encoding="utf-8")


async def test_plan(emulator: Emulator, tmp_path: Path) -> None:
    """The plan of 10,000 rows is what the page shows, but for the time at which a run of now ends."""
    write_table(tmp_path, list(range(3, 10_001)))
    code, printed = await shell(PLAN, tmp_path)
    end = re.compile(r"^Begun now, it ends about .*\n", re.MULTILINE)
    assert (code, end.sub("", printed)) == (0, end.sub("", PLANNED))
    assert emulator.agents_started == {}


async def test_commands(emulator: Emulator, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The commands start each row's agent once, name what needs a person, settle it, and write the results."""
    emulator.script(JobScript(duration=0))
    emulator.script(JobScript(duration=0, job_id="job_k3f9x2_004012"), prompt="Document Billing 4012 in docs/4012.md")
    await emulator.inject("500 agent=no", prompt="Document Import 4011 in docs/4011.md")
    await emulator.inject("500 agent=yes", prompt="Document Billing 4012 in docs/4012.md")
    write_table(tmp_path, [*range(3, 11), 4011, 4012, 4013])
    code, printed = await shell(TRIAL, tmp_path)
    assert (code, printed.count(" completed: ")) == (4, 10)
    assert "3 planned, 10 completed\n" in capfd.readouterr().err
    assert emulator.agents_started.total() == 10
    assert (await shell(f"{RESUME.strip()} --limit 2", tmp_path))[0] == 4
    capfd.readouterr()
    code, printed = await shell(STATUS, tmp_path)
    printed += capfd.readouterr().err
    assert (code, lines_missing(NEEDED.split("\n", 1)[1], printed)) == (4, [])
    code, printed = await shell(SETTLE, tmp_path)
    assert (code, lines_missing(SETTLED, printed + capfd.readouterr().err)) == (0, [])
    code, printed = await shell(EXPORT, tmp_path)
    assert (code, capfd.readouterr().err) == (0, EXPORTED.replace("10,000", "13"))
    with (tmp_path / "results.csv").open(encoding="utf-8") as results:
        ends = {row["key"]: (row["state"], row["owner"]) for row in csv.DictReader(results)}
    assert (len(ends), set(ends.values())) == (13, {("completed", "cy"), ("completed", "ann")})
    assert set(emulator.agents_started.values()) == {1}
