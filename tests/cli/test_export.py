import csv
import io
import json
from pathlib import Path

from agentjobs_async.__main__ import main
from tests.cli.checks import Captured
from tests.cli.stage import Child, EmulatorThread

TABLE = """id,title,note
7,Start,=1+2
8,"two
lines",-5
7,again,x
9, ,x
10,short
9,long,x,y,
11,End,@x
"""


def exported(capsys: Captured, *arguments: str) -> list[dict[str, str]]:
    """Return the records that the command writes as CSV."""
    capsys.readouterr()
    assert main(["export", *arguments]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_beside_the_input(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """Every record of the input has one line with its own columns and one state, those that were refused, too."""
    file = tmp_path / "pages.csv"
    file.write_text(TABLE)
    service.live("failed", prompt="End")
    prompted = ["--file", str(file), "--key", "id", "--prompt", "{title}", "--journal", db]
    assert main(["run", *prompted]) == 1
    assert main(["resume", db, "--retry-failed"]) == 4
    rows = exported(capsys, db, "--join", str(file), "--key", "id")
    assert [(row["id"], row["state"], row["tries"]) for row in rows] == [
        ("7", "completed", "1"),
        ("8", "completed", "1"),
        ("7", "refused", ""),
        ("9", "", ""),
        ("10", "refused", ""),
        ("9", "refused", ""),
        ("11", "failed", "2"),
    ]
    assert [row["note"] for row in rows] == ["'=1+2", "-5", "x", "x", "", "x", "'@x"]
    assert [row["column 4"] for row in rows] == ["", "", "", "", "", "y", ""]
    assert rows[2]["error"] == "line 5 repeats the key of line 2"
    assert (rows[1]["title"], rows[4]["error"]) == ("two\nlines", "line 7: its number of cells is 2, not 3")
    assert rows[0]["pr_link"].startswith("http")
    assert rows[0]["sent_at"] < rows[0]["ended_at"]
    assert list(rows[0])[:6] == ["id", "title", "note", "column 4", "state", "project"]
    assert (rows[6]["error"], rows[6]["job_id"]) == ("the agent failed", service.job_ids[3])


def test_another_key(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """Records that differ from what their items were made of are told: items may stand beside the wrong ones."""
    file = tmp_path / "pages.csv"
    file.write_text("id,title,note\n2,Start,a\n1,End,b\n,None,c\n2,Again,d\n")
    assert main(["run", "--file", str(file), "--key", "id", "--prompt", "{title}", "--journal", db]) == 1
    told = "2 records differ from what the item of the same key was made of"
    for key, words in ((["--key", "id"], ""), ([], told)):
        capsys.readouterr()
        assert main(["export", db, "--join", str(file), *key]) == 0
        written = capsys.readouterr()
        assert written.err.startswith(words)
        assert bool(written.err) == bool(words)
        assert ("line 4: its key is empty" in written.out) == bool(key)
    assert service.emulator.agents_started.total() == 2


def test_without_a_match(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """A join that finds no item of any record says so, and fails: the outcomes are those of another input."""
    assert main(["run", "one", "--journal", db]) == 0
    file = tmp_path / "pages.csv"
    file.write_text("id\n7\n8\n")
    assert main(["export", db, "--join", str(file), "--key", "id"]) == 1
    assert capsys.readouterr().err.endswith(
        "No record has an item in the journal: was run given another --key, or another file?\n"
    )
    assert service.emulator.agents_started.total() == 1


def test_forms_and_places(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """The suffix of the file decides the format; keys are places, or those of JSON Lines; no name is taken twice."""
    tasks, out = tmp_path / "tasks.jsonl", tmp_path / "out.jsonl"
    tasks.write_text('{"key": "a", "prompt": "one", "project": null}\n{"prompt": "two"}\n')
    assert main(["run", "--file", str(tasks), "--journal", db]) == 0
    assert main(["export", db, "--join", str(tasks), "--out", str(out)]) == 0
    assert [(line.get("key"), line["state"]) for line in map(json.loads, out.read_text().splitlines())] == [
        ("a", "completed"),
        (None, "completed"),
    ]
    assert "2 lines written" in capsys.readouterr().err
    assert [(row["key"], row["prompt"]) for row in exported(capsys, db)] == [("a", "one"), ("2", "two")]
    other = tmp_path / "other.csv"
    other.write_text("key,state\na,mine\n")
    assert [
        (row["state"], row["agentjobs_state"]) for row in exported(capsys, db, "--join", str(other), "--key", "key")
    ] == [("mine", "completed")]
    capsys.readouterr()
    assert main(["export", db, "--join", str(other), "--key", "State"]) == 2
    assert "no column or field 'State'; did you mean 'state'?" in capsys.readouterr().err
    for wrong in ([db, "--key", "id"], [], [db, "--join", str(tasks), "--key", "id"]):
        assert main(["export", *wrong]) == 2
    assert service.emulator.agents_started.total() == 2


def test_fields_named_as_columns(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """Whatever the fields of a context are called, each is in every file of items; events have them as an object."""
    fields = {"key": "a", "context.key": "b", "context.context.key": "c", "owner": 7}
    columns = {"context.key": "a", "context.context.key": "b", "context.context.context.key": "c", "owner": 7}
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"title": "One", **fields}))
    text = str(tmp_path / "out.csv")
    arguments = ["--file", str(tmp_path / "tasks.jsonl"), "--prompt", "{title}", "--journal", db, "--json"]
    assert main(["run", *arguments]) == 0
    ended = [event for event in map(json.loads, capsys.readouterr().out.splitlines()) if event["event"] == "ended"]
    assert [event["context"] for event in ended] == [fields]
    assert main(["status", db, "--format", "jsonl"]) == 0
    assert main(["export", db, "--format", "jsonl"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert json.loads(line).items() >= {"key": "1", **columns}.items()
    assert main(["report", db, "--out", text]) == 0
    for row in (*exported(capsys, db), *csv.DictReader(io.StringIO(Path(text).read_text()))):
        assert row.items() >= {"key": "1", **columns, "owner": "7"}.items()
    assert service.emulator.agents_started.total() == 1


def test_own_columns_beside_any_input(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """A column of an item never shares its name with one of the input."""
    assert main(["run", "one", "--journal", db]) == 0
    file = tmp_path / "pages.csv"
    file.write_text("state,agentjobs_state\nmine,own\n")
    (row,) = exported(capsys, db, "--join", str(file))
    assert (row["state"], row["agentjobs_state"], row["agentjobs_agentjobs_state"]) == ("mine", "own", "completed")
    assert service.emulator.agents_started.total() == 1


def test_beside_a_run(service: EmulatorThread, tasks: Path, tmp_path: Path, db: str) -> None:
    """While a run is at work on a file, its items are written as they stand; the run takes no notice."""
    service.live(duration=3600)
    service.live("failed", prompt="p1")
    out = tmp_path / "results.csv"
    with Child("run", "--file", str(tasks), "--journal", db, env=service.environment) as child:
        child.until("k1 failed")
        service.wait_for_polls(3)
        for _ in range(2):
            assert main(["export", db, "--out", str(out)]) == 0
            states = {row["key"]: row["state"] for row in csv.DictReader(out.read_text().splitlines())}
            assert states == {"k0": "active", "k1": "failed", "k2": "active"}
        service.complete()
        assert child.ended() == 1
    assert main(["export", db, "--out", str(out)]) == 0
    states = {row["key"]: row["state"] for row in csv.DictReader(out.read_text().splitlines())}
    assert states == {"k0": "completed", "k1": "failed", "k2": "completed"}
    assert set(service.emulator.agents_started.values()) == {1}
