import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem
from agentjobs_async.cli._output.screen import continued, styled_status
from tests.cli.checks import Captured, plan, screen
from tests.cli.stage import Child, EmulatorThread

pytestmark = pytest.mark.slow

LINK = "https://code.example/acme/demo/pull/job_000001"
COMPLETED = f"document status=completed prLink={LINK} forever on=get"
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m")


def narrow(child: Child, columns: int = 40) -> str:
    """Return what a terminal got, checked: no line is wider than it but for single words that can't be broken."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", re.sub(r"\x1b\[[0-9;]*m", "", child.stdout))
    wide = [
        line for line in re.split("[\r\n]+", plain) if len(line) > columns and len(line.removesuffix("\\").split()) > 1
    ]
    assert wide == []
    return plain


def test_lines_are_printable(capsys: Captured) -> None:
    """Lines hold no control character, and nothing in them is read as markup, an emoji or a style."""
    shown = screen()
    shown.line("[red]a[/red] :smile: \x1b[31m", ("\r\n\u202e", "green"), " 'b' 12")
    shown.notice("[bold]\x07")
    shown.command("  wait [a]")
    assert capsys.readouterr() == ("[red]a[/red] :smile: \\x1b[31m\\r\\n\\u202e 'b' 12\n", "[bold]\\x07\n  wait [a]\n")


def test_lines_are_not_wrapped_without_a_terminal(capsys: Captured) -> None:
    """In a log or a pipe one line is one line, however long."""
    shown = screen()
    shown.line("word " * 100)
    shown.notice("word " * 100)
    assert shown.width is None
    assert [text.count("\n") for text in capsys.readouterr()] == [1, 1]


@pytest.mark.parametrize("size", ["0", "000", "²", "-1", "", "9" * 30])
def test_a_size_that_is_none(size: str, db: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """COLUMNS and LINES that are no size, such as 0, change nothing."""
    plan(db, BatchItem("k0", "Document the v2 endpoints", "docs"))
    assert main(["status", db, "--state", "planned"]) == 4
    expected = capsys.readouterr()
    assert "planned  k0   Document the v2 endpoints\n" in expected.out
    for name in ("COLUMNS", "LINES"):
        monkeypatch.setenv(name, size)
    assert main(["status", db, "--state", "planned"]) == 4
    assert capsys.readouterr() == expected
    arguments = ("status", db, "--state", "planned")
    with Child(*arguments, terminal=True, env={"COLUMNS": size, "LINES": size}) as child:
        assert child.ended() == 4
    assert narrow(child, 80).split()[:2] == ["1", "planned"]


def test_styled_status() -> None:
    """Known outcomes have a colour, any other status another one."""
    assert styled_status("timed_out") == ("timed out", "yellow")
    assert styled_status("completed") == ("completed", "green")


def test_a_run_on_a_terminal(service: EmulatorThread) -> None:
    """A run's lines, its live view and its table have colours, and are no wider than it; the cursor comes back.

    The view ends with an empty line, where a terminal shows ^C: behind a line that is full it would move the others up.
    """
    prompts = ("Document the v2 endpoints of thehole service", "Fix the broken links")
    service.live(duration=3600)
    arguments = ("run", "--yes", "--project", "demo", *prompts)
    with (
        Child(*arguments, env=service.environment, terminal=True) as usual,
        Child(*arguments, env=service.environment, terminal=True, columns=40) as small,
    ):
        for child in (usual, small):
            child.until("2 active")
        service.inject(COMPLETED)
        for child in (usual, small):
            assert child.ended() == 0
            assert COLOUR.search(child.stdout)
            assert child.stdout.rfind("\x1b[?25h") > child.stdout.rfind("\x1b[?25l")
            assert not re.search(r"[^\n]\r\x1b\[2K", child.stdout)
    plain = narrow(usual, 80)
    assert re.search(r"STATE      KEY, PROMPT\s+PULL REQUEST OR REASON", plain)
    assert "2 completed" in plain
    plain = narrow(small)
    assert re.search(r"\ncompleted  1  Document the v2[ a-z]*…\s+https://code.example/acme/demo/pull/job_", plain)


def test_a_table_on_a_terminal(service: EmulatorThread, tmp_path: Path, db: str) -> None:
    """A table has its colours, whole keys and links, and prompts of whole words, and escapes what is no text."""
    prompts = tmp_path / "prompts.jsonl"
    key = f"docs/{'x' * 20}/chapter-7"
    prompts.write_text(json.dumps({"key": key, "prompt": "word \x1b[31m " + "word " * 30}), encoding="utf-8")
    assert main(["run", "--file", str(prompts), "--journal", db]) == 0
    with Child("status", db, "--state", "completed", terminal=True, env=service.environment) as child:
        assert child.ended() == 0
    assert re.search(rf"\x1b\[32mcompleted.*{key}", child.stdout)
    assert f"/pull/{service.job_ids[0]}" in child.stdout
    assert "\x1b[31m" not in child.stdout
    assert "word \\x1b[31m word" in child.stdout
    assert " word…" in child.stdout


def test_no_colour_on_a_terminal(service: EmulatorThread) -> None:
    """NO_COLOR leaves the live view, and removes the colours."""
    with Child("run", "a", terminal=True, env=service.environment | {"NO_COLOR": "1"}) as child:
        assert child.until("0 of 1").ended() == 0
    assert not COLOUR.search(child.stdout)


def test_no_escape_sequences(service: EmulatorThread) -> None:
    """A terminal that obeys none, or that nobody has named, gets none; nor does a pipe, whatever is forced."""
    for terminal, name, value in (
        (True, "TERM", "dumb"),
        (True, "TERM", "unknown"),
        (True, "TERM", ""),
        (False, "FORCE_COLOR", "1"),
        (False, "TTY_COMPATIBLE", "1"),
    ):
        with Child("run", "a", terminal=terminal, env=service.environment | {name: value}) as child:
            assert child.ended() == 0
        assert "\x1b" not in child.stdout + child.stderr, (name, value)
        assert terminal or "active" not in child.stdout


def test_a_resize(service: EmulatorThread) -> None:
    """The live view follows the size of the terminal."""
    service.live(duration=3600)
    with Child("run", "a", terminal=True, env=service.environment | {"NO_COLOR": "1"}) as child:
        child.until("KEY  STATE        AGE  POLLS  PROMPT").resize(12, 40).until("KEY      AGE  PROMPT")
        child.resize(24, 80)
        child.stdout = ""
        child.until("KEY  STATE        AGE  POLLS  PROMPT").send(signal.SIGINT)
        assert child.ended() == 130


def test_notices_above_the_live_view(service: EmulatorThread) -> None:
    """A notice that comes while the live view is there is shown above it."""
    env = service.environment | {"AGENTJOBS_BASE_URL": "http://127.0.0.1:1"}
    with Child("run", "a", env=env, terminal=True) as child:
        assert child.until("so far; still trying.\r\n").send(signal.SIGINT).ended() == 130
    assert "0 of 1" in child.stdout


def test_errors_on_a_narrow_terminal() -> None:
    """Errors are wrapped between words on a terminal of 40 columns."""
    for command in ("run", "run --max-active 0 x", "get x"):
        with Child(*command.split(), terminal=True, columns=40) as child:
            child.ended()
        assert len(narrow(child)) > 40, command


def test_a_batch_on_a_narrow_terminal(service: EmulatorThread, tmp_path: Path, db: str) -> None:
    """The live view, its end, the resume command and the status are no wider than a terminal of 40 columns."""
    service.live(duration=3600)
    service.inject('422 error="it is all wrong, as far as anybody can tell"', prompt="bad")
    prompts = tmp_path / "prompts"
    prompts.write_text("".join(f'{{"key": "{name * 5}", "prompt": "{name}"}}\n' for name in ("task ", "bad", "c")))
    arguments = ("--journal", db)
    with Child(
        *("run", "--file", str(prompts), *arguments, "--max-active", "2"),
        env=service.environment | {"AGENTJOBS_PROJECT_ID": "docs"},
        terminal=True,
        columns=40,
    ) as child:
        child.until("2 active").until("rejected").until("AGE").send(signal.SIGINT)
        assert child.ended() == 130
    assert " \\\n" in narrow(child).replace("\r", "")
    with Child("status", *arguments, terminal=True, columns=40) as child:
        assert child.ended() == 4
    assert "STATE" in narrow(child)


def test_continued() -> None:
    """A command is broken so that a shell puts it together; its lines fit where its words do."""
    words = ["agentjobs", "wait", "--base-url", "https://api.example.com", "a 'quoted' word", "b~'", "--", "-docs~.x"]
    for columns in (10, 40, 60, 500):
        lines = continued(f"  {shlex.join(words)}", columns)
        script = "\n".join(lines).strip()
        shell = ["/bin/sh", "-c", f"printf '%s\\0' {script}"]
        said = subprocess.run(shell, capture_output=True, text=True, check=True)  # noqa: S603 - a shell is what reads it
        assert said.stdout.split("\0")[:-1] == words
        wide = [line for line in lines if len(line) > columns]
        assert {line.strip().removesuffix(" \\") for line in wide} <= set(map(shlex.quote, words))
        assert (len(lines) == 1) is (columns == 500)
