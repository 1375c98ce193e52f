import asyncio
import csv
import json
import os
import resource
import signal
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from agentjobs_async import AgentJob, InvalidInputError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchResult, JournalRow, Outcome, State
from agentjobs_async.cli._output.out import Out
from agentjobs_async.cli._output.results import item_document, run_result
from agentjobs_async.report.items import COLUMNS, document
from tests.cli.checks import Captured, unexpected
from tests.cli.stage import Child, EmulatorThread

pytestmark = pytest.mark.slow


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A file of sixty prompts."""
    file = tmp_path / "tasks"
    file.write_text("".join(f"prompt {number}\n" for number in range(60)))
    return file


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where results go."""
    return tmp_path / "results.jsonl"


def keys_of(out: Path) -> Counter[str]:
    return Counter(json.loads(line)["key"] for line in out.read_text().splitlines())


def test_any_end_of_a_run(service: EmulatorThread, tasks: Path, out: Path, db: str) -> None:
    """However often a run is killed or stopped, the next one writes what is missing, and nothing twice."""
    tasks.write_text("".join(f"prompt {number}\n" for number in range(300)))  # more than end before the last kill
    # An unknown item holds its place for ten minutes: four creates at a time leave 24 of them at most.
    places = ["--max-active", "32", "--max-sending", "4"]
    arguments = ["--journal", db, "--out", str(out), *places]
    command = ["run", "--file", str(tasks)]
    for number, kill in enumerate([signal.SIGKILL, signal.SIGINT] * 3):
        with Child(*command, *arguments, env=service.environment) as child:
            for _ in range(number):
                child.until(" completed")
                child.stdout = child.stdout.partition(" completed")[2]
            child.send(kill)
            child.ended()
        if kill == signal.SIGKILL:
            out.write_bytes(out.read_bytes()[: -number * 30 or None] if out.exists() else b"")  # as a disk may lose it
    with Child("resume", *arguments, env=service.environment) as child:
        assert child.ended() == (4 if "unknown" in child.stderr else 0)
    assert keys_of(out) == Counter({str(number): 1 for number in range(1, 301)})


def test_first_named_later(service: EmulatorThread, tasks: Path, out: Path, db: str) -> None:
    """A file that is named for the first time gets the results of earlier runs, those that failed too."""
    service.live("failed", prompt="prompt 3")
    service.inject("422", prompt="prompt 4")
    arguments = ["--journal", db]
    assert main(["run", "--file", str(tasks), *arguments]) == 1
    assert main(["resume", *arguments, "--out", str(out)]) == 1
    ends = {end["key"]: end for end in map(json.loads, out.read_text().splitlines())}
    assert len(ends) == 60
    assert (ends["1"]["state"], ends["1"]["prompt"], ends["1"]["number"]) == ("completed", "prompt 0", 1)
    assert ends["1"]["pr_link"].endswith(f"/pull/{ends['1']['job_id']}")
    assert (ends["4"]["state"], ends["4"]["error"]) == ("failed", "the agent failed")
    assert (ends["5"]["state"], ends["5"]["job_id"], ends["5"]["error"][:13]) == ("rejected", None, "HTTP 422: Unp")


def test_a_full_disk(service: EmulatorThread, tasks: Path, out: Path, db: str) -> None:
    """A full disk is named with the file, and leaves no torn line; the next run writes what is missing."""
    arguments = ["--journal", db, "--out", str(out)]
    small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    out.write_text(f"{'x' * 998_999}\n")  # the journal has room
    with Child("run", "--file", str(tasks), *arguments, env=service.environment, before=small) as child:
        assert child.ended() == 4
    words = f"Error: --out: {out} can't be written: File too large; resume with the same --out writes what is missing\n"
    assert child.stderr.endswith(words)
    assert out.read_bytes().endswith(b"}\n")
    assert main(["resume", *arguments]) == 0
    out.write_text(out.read_text().partition("\n")[2])
    assert keys_of(out) == Counter({str(number): 1 for number in range(1, 61)})


def test_what_can_not_be_written(service: EmulatorThread, db: str, capsys: Captured) -> None:
    """A file that can't be written ends the run."""
    assert main(["run", "x", "--journal", db, "--out", "/dev/full"]) == 4
    words = "Error: --out: /dev/full can't be written: No space left on device"
    assert words in capsys.readouterr().err
    assert len(service.emulator.agents_started) == 1


def test_last_line(out: Path) -> None:
    """A torn last line of JSON is taken away, any other text is kept and its line ended."""

    def written_after(before: bytes) -> bytes:
        out.write_bytes(before)
        with Out.opened(str(out)) as opened:
            opened.write({})
        return out.read_bytes()

    expected = {
        b"": b"{}\n",
        b'{"key": "a"}\n': b'{"key": "a"}\n{}\n',
        b'{"key": "a"}\n{"key": "b': b'{"key": "a"}\n{}\n',
        b'{"key": "' + b"x" * 200_000: b"{}\n",
        b'{"key": "a"}': b'{"key": "a"}\n{}\n',
        b"a note of mine": b"a note of mine\n{}\n",
        b"a note\n{broken}\n": b"a note\n{broken}\n{}\n",
    }
    assert unexpected(expected, written_after) == {}


def test_what_is_no_file() -> None:
    """Into a pipe results are written as they come."""
    reader, writer = os.pipe()
    with Out.opened(f"/dev/fd/{writer}") as opened:
        opened.write({"key": "a"})
    os.close(writer)
    with os.fdopen(reader) as stream:
        assert stream.read() == '{"key": "a"}\n'


def test_known_lines(out: Path) -> None:
    """What is in the file already is not written again; lines of somebody else are passed over."""
    ends: list[dict[str, object]] = [
        {"key": "a", "state": "completed", "project": "p", "job_id": "1", "number": 1},
        {"key": "a", "state": "unknown"},
    ]
    refusal: dict[str, object] = {
        "key": None,
        "state": "refused",
        "job_id": None,
        "number": None,
        "error": "line 3: no",
    }
    out.write_text("".join(f"{line}\n" for line in ["note", "[1]", '{"key": []}', *map(json.dumps, [*ends, refusal])]))
    before = out.read_bytes()
    with Out.opened(str(out)) as opened:
        asyncio.run(opened._read())
        for known in (*ends, refusal):
            opened.write_once(known)
        assert out.read_bytes() == before
        for new in ({**ends[0], "job_id": "2"}, {**refusal, "error": "line 4: no"}):
            for _ in range(2):
                opened.write_once(new)
    assert len(out.read_text().splitlines()) == 8


@pytest.mark.usefixtures("service")
def test_columns(tmp_path: Path, db: str) -> None:
    """A table has the columns of an item, then those of the contexts; a later run uses those that are there."""
    table, out = tmp_path / "pages.csv", tmp_path / "out.csv"
    arguments = ["--key", "id", "--prompt", "Do {title}", "--journal", db, "--out", str(out)]
    table.write_text("id,title,state\na,One,x\n")
    assert main(["run", "--file", str(table), *arguments]) == 0
    table.write_text("id,title,state,extra\na,One,x,1\nb,Two,y,2\n")
    assert main(["run", "--file", str(table), *arguments]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[0]) == [*COLUMNS, "context.state"]
    assert [(row["key"], row["state"], row["context.state"]) for row in rows] == [
        ("a", "completed", "x"),
        ("b", "completed", "y"),
    ]
    assert main(["resume", db, "--out", str(tmp_path / "new.csv")]) == 0
    assert (tmp_path / "new.csv").read_text().splitlines()[0] == ",".join([*COLUMNS, "context.state", "extra"])


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("name", ["a\nb", "a\rb", "=1+1", "\x1b[2J"])
def test_any_name_of_a_column(name: str, tmp_path: Path, db: str) -> None:
    """Whatever the fields of contexts are called, a later run reads the line of columns, and writes nothing twice."""
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out.csv"
    for number in range(2):
        with tasks.open("a") as stream:
            stream.write(json.dumps({"text": f"prompt {number}", name: f"value {number}"}) + "\n")
        arguments = ["--file", str(tasks), "--prompt", "{text}", "--journal", db, "--out", str(out)]
        assert main(["run", *arguments]) == 0
    records = list(csv.reader(out.read_text().splitlines()))
    assert [(record[1], record[-1]) for record in records[1:]] == [("1", "value 0"), ("2", "value 1")]
    assert "\x1b" not in out.read_text()


@pytest.mark.usefixtures("service")
def test_a_long_line_of_columns(tmp_path: Path, db: str) -> None:
    """A later run reads a line of columns of any usual length whole; a longer one is refused, and left as it is."""
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out.csv"
    fields = [str(number) + "n" * 8_000 for number in range(9)]
    tasks.write_text("".join(json.dumps({"text": field[0], field: field[0]}) + "\n" for field in fields))
    assert main(["run", "--file", str(tasks), "--prompt", "{text}", "--journal", db, "--out", str(out), "--yes"]) == 0
    before = out.read_text()
    assert len(before.splitlines()) == 10
    assert main(["resume", db, "--out", str(out)]) == 0
    assert out.read_text() == before
    out.write_text(",".join([*COLUMNS, *fields * 20]))
    assert main(["resume", db, "--out", str(out)]) == 2
    assert out.read_text() == ",".join([*COLUMNS, *fields * 20])


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("torn", [10, 140, 170])
def test_a_torn_line_of_columns(torn: int, tmp_path: Path, db: str) -> None:
    """A line of columns that a killed run left incomplete is written anew; that of another table is refused."""
    table, out = tmp_path / "pages.csv", tmp_path / "out.csv"
    table.write_text("id,title,state,color\na,One,x,y\n")
    arguments = ["--file", str(table), "--key", "id", "--prompt", "Do {title}", "--journal", db, "--out", str(out)]
    out.write_text(",".join([*COLUMNS, "context.state", "color"])[:torn])
    assert main(["run", *arguments]) == 0
    assert out.read_text().startswith(",".join([*COLUMNS, "context.state", "color"]) + "\n1,a,completed,")
    out.write_text("number,name\n")
    assert main(["run", *arguments]) == 2
    assert out.read_text() == "number,name\n"


def test_errors_are_one_line(tmp_path: Path) -> None:
    """A hostile name is shown escaped."""
    with (
        pytest.raises(InvalidInputError, match=r"^--out: .*\\x1b/x can't be opened: No such file or directory$"),
        Out.opened(str(tmp_path / "\x1b" / "x")),
    ):
        pass


def test_links_are_those_of_every_file() -> None:
    """A link that could end the quotes of a page's attribute is in no file, that of the results among them."""
    link = "https://code.example/pull/1?title='x'"
    row = JournalRow("k", "p", "docs", State.COMPLETED, "job-1", link, None, datetime.now(UTC), 1)
    job = AgentJob("job-1", "docs", "completed", pr_link=link)
    result = BatchResult(row.item, Outcome.COMPLETED, job, row=row)
    assert item_document(run_result(result))["pr_link"] is document(row)["pr_link"] is None
