import csv
import json
import re
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from agentjobs_async import AgentJobsSession, Dialect
from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, Journal, run_batch
from agentjobs_async.cli.main import COMMANDS
from agentjobs_async.testing import Emulator, JobScript
from tests.docs.samples import blocks, shell
from tests.test_docs import ROOT, table_below

FIRST, STEPS, BATCH, TABLE, EXTRA, RESUMING, SETTLING, MANY, RETRYING, LOOP, WITHDRAWING, EXPORT = blocks("cli", "sh")
(SETTLED,) = blocks("cli", "text")


async def test_first_line(tmp_path: Path) -> None:
    """The first line runs two jobs on an emulator."""
    code, printed = await shell(FIRST, tmp_path)
    assert code == 0
    assert printed.count("completed") >= 2


async def test_single_steps(emulator: Emulator, tmp_path: Path) -> None:
    """The single steps create one job, read it, and wait for it."""
    emulator.script(JobScript(duration=0))
    code, printed = await shell(STEPS, tmp_path)
    assert code == 0
    assert "completed" in printed
    assert emulator.agents_started == {"Document the v2 endpoints": 1}


async def test_batch(emulator: Emulator, tmp_path: Path) -> None:
    """The lines of a batch run it, list it, settle an unknown item, and go on to the end."""
    emulator.script(JobScript(duration=0))
    await emulator.inject("500", prompt="Document page 7")
    code, printed = await shell(BATCH, tmp_path)
    assert code == 4
    assert "unknown" in printed
    assert (await shell(RESUMING, tmp_path))[0] == 4
    assert (await shell(SETTLING, tmp_path))[0] == 0
    assert emulator.agents_started["Document page 8"] == 1


async def test_extra(emulator: Emulator, tmp_path: Path) -> None:
    """The lines for more fields of a create send them, from a column and as they are."""
    emulator.script(JobScript(duration=0))
    (tmp_path / "pages.csv").write_text("id,title\npage-7,Index\n", encoding="utf-8")
    assert (await shell(EXTRA, tmp_path))[0] == 0
    assert [json.loads(request.body) for request in emulator.requests if request.method == "POST"] == [
        {"prompt": "Document Index", "branch": "docs/page-7", "model": "large"},
        {"prompt": "Document the v2 endpoints", "branch": "main"},
    ]


async def test_withdrawing(emulator: Emulator, tmp_path: Path) -> None:
    """The line withdraws what is planned and has these words, once it was told to; nothing of it is sent."""
    async with Journal.open(tmp_path / "run.db") as journal:
        prompts = {"page-7": "Document the wrong words", "page-8": "Document it"}
        await journal.add([BatchItem(key, prompt, "docs") for key, prompt in prompts.items()])
    assert (await shell(WITHDRAWING, tmp_path))[0] == 2  # without a terminal it asks nobody
    code, printed = await shell(f"{WITHDRAWING.strip()} --yes; agentjobs status run.db --summary", tmp_path)
    assert (code, printed) == (4, "1 planned, 1 abandoned\n")
    assert emulator.requests == ()


async def test_loop(emulator: Emulator, tmp_path: Path) -> None:
    """The loop tries what fails until it has had its tries, and ends."""
    emulator.script(JobScript(duration=0, outcome="failed"))
    await shell("agentjobs run 'Document page 7' --journal run.db", tmp_path)
    await shell(LOOP.replace("sleep 60", "sleep 0"), tmp_path)
    assert emulator.agents_started == {"Document page 7": 3}


def test_commands() -> None:
    """Before its first section the page has the table of all commands, in the order and in the words of the help."""
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    table = "".join(f"| `{name}` | {words} |\n" for name, (_, words) in COMMANDS.items())
    first_section, _, _ = page.partition("\n## ")
    assert f"\n| command | what it does |\n|---|---|\n{table}\n" in first_section


async def test_retrying(emulator: Emulator, tmp_path: Path) -> None:
    """The lines for failed items show those that the filters name, and plan them again."""
    emulator.script(JobScript(duration=0, outcome="failed"))
    await shell("agentjobs run 'Document page 7' --journal run.db", tmp_path)
    shown, planned = (line.partition(" --grep")[0] for line in RETRYING.splitlines())
    code, printed = await shell(shown, tmp_path)
    assert (code, "Document page 7" in printed) == (1, True)
    assert (await shell(planned, tmp_path))[0] == 0
    assert (await shell("agentjobs status run.db --summary", tmp_path))[1] == "1 planned\n"


async def test_many_items(emulator: Emulator, tmp_path: Path) -> None:
    """The loop settles each item of the file as its line says."""
    emulator.script(JobScript(duration=0))
    await emulator.inject("500 forever on=create")
    lines = [f'{{"key": "page-{number}", "prompt": "Document page {number}"}}\n' for number in (7, 8, 9)]
    (tmp_path / "prompts.jsonl").write_text("".join(lines), encoding="utf-8")
    await shell("agentjobs run --file prompts.jsonl --journal run.db", tmp_path)
    (tmp_path / "settled.txt").write_text(SETTLED, encoding="utf-8")
    assert (await shell(MANY, tmp_path))[0] == 0
    assert (await shell("agentjobs status run.db --summary", tmp_path))[1] == "1 active, 1 planned, 1 abandoned\n"


async def test_table(emulator: Emulator, tmp_path: Path) -> None:
    """The lines of a table show its plan, which sends nothing, and run it."""
    emulator.script(JobScript(duration=0))
    (tmp_path / "pages.csv").write_text("id,title,body\n7,Start,Install it\n8,End,Remove it\n", encoding="utf-8")
    plan, run = TABLE.splitlines()
    code, printed = await shell(plan, tmp_path)
    assert code == 0
    assert "Document Start: Install it" in printed
    assert emulator.agents_started == {}
    assert (await shell(f"{run} --journal run.db", tmp_path))[0] == 0
    assert (await shell(EXPORT, tmp_path))[0] == 0
    with (tmp_path / "results.csv").open(encoding="utf-8") as results:
        ends = [(row["key"], row["state"], row["prompt"]) for row in csv.DictReader(results)]
    assert ends == [
        ("7", "completed", "Document Start: Install it"),
        ("8", "completed", "Document End: Remove it"),
    ]
    assert (tmp_path / "failed.jsonl").read_text(encoding="utf-8") == ""
    assert emulator.agents_started == {"Document Start: Install it": 1, "Document End: Remove it": 1}


async def test_spreadsheet(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The error is that of a file as a German Excel saves it."""
    (tmp_path / "pages.csv").write_text("id;title;body\n7;Größe;Maß\n", encoding="cp1252")
    assert (await shell(TABLE.splitlines()[0], tmp_path))[0] == 2
    assert [capfd.readouterr().err] == blocks("cli", "console")


CALLABLES: dict[str, Callable[..., Any]] = {
    "session": AgentJobsSession,
    "create_job": AgentJobsSession.create_job,
    "run_job": AgentJobsSession.run_job,
    "run_batch": run_batch,
    "Dialect": Dialect,
}


def test_parity() -> None:
    """The table names each parameter of what Python has, no other, and what the shell has for it, or why it has not."""
    rows = table_below(ROOT / "docs" / "cli.md", "Parameters in Python and at the shell")
    shown = [(name, each) for row in rows for name in row[1].split(", ") for each in re.findall(r"`(\w+)`", row[0])]
    parameters = {name: list(signature(found).parameters) for name, found in CALLABLES.items()}
    wanted = [(name, each) for name, found in parameters.items() for each in found if each != "self"]
    assert sorted(shown) == sorted(wanted)
    unsaid = [row for row in rows if not re.fullmatch(r".*`.+|.*service file.*|- \(.+\)", row[2])]
    assert unsaid == []


def test_settings_of_the_service_file() -> None:
    """What the table leaves to the service file is a setting of it."""
    rows = table_below(ROOT / "docs" / "cli.md", "Parameters in Python and at the shell")
    left = {name for row in rows if row[2] == "service file" for name in re.findall(r"`(\w+)`", row[0])}
    assert left == {each.name for each in fields(Dialect)}


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the exit codes of the help, and says the same of 0."""
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    of_help = re.findall(r"(?:^    |; )(\d+)\b", shown, re.MULTILINE)
    rows = table_below(ROOT / "docs" / "cli.md", "Exit codes")
    assert [code for row in rows for code in row[0].split(", ")] == of_help
    assert f"\n    0    {rows[0][1]}\n" in shown
