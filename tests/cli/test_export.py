import csv
import io
import json
from pathlib import Path

from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem
from tests.cli.checks import Captured, plan, unexpected
from tests.cli.stage import Child, EmulatorThread

TABLE = """id,title,note
7,Start,=1+2
8,"two
lines",-5
7,again,x
10,short
11,End,@x
"""


def exported(capsys: Captured, *arguments: str) -> list[dict[str, str]]:
    """Return the records that the command writes as CSV."""
    capsys.readouterr()
    assert main(["export", *arguments]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_columns_of_the_input(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """Each item has one line, of its newest try, with the columns of the input that made neither key nor prompt."""
    file = tmp_path / "pages.csv"
    file.write_text(TABLE)
    service.live("failed", prompt="End")
    assert main(["run", "--file", str(file), "--key", "id", "--prompt", "{title}", "--journal", db]) == 1
    assert main(["resume", db, "--retry-failed"]) == 4
    rows = exported(capsys, db)
    assert [(row["key"], row["state"], row["tries"], row["note"]) for row in rows] == [
        ("7", "completed", "1", "'=1+2"),
        ("8", "completed", "1", "-5"),
        ("11", "failed", "2", "'@x"),
    ]
    assert rows[0]["pr_link"].startswith("http")
    assert rows[0]["sent_at"] < rows[0]["ended_at"]
    assert (rows[2]["error"], rows[2]["job_id"]) == ("the agent failed", service.job_ids[3])


def test_forms(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """The suffix of the file decides the format; standard output gets CSV."""
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"key": "a", "prompt": "one", "project": null}\n{"prompt": "two"}\n')
    assert main(["run", "--file", str(prompts), "--journal", db]) == 0
    assert main(["export", db, "--out", str(out)]) == 0
    assert "2 lines written" in capsys.readouterr().err
    assert [(line["key"], line["prompt"]) for line in map(json.loads, out.read_text().splitlines())] == [
        ("a", "one"),
        ("2", "two"),
    ]
    assert [(row["key"], row["prompt"]) for row in exported(capsys, db)] == [("a", "one"), ("2", "two")]
    assert main(["export"]) == 2
    assert service.emulator.agents_started.total() == 2


def test_fields_named_as_columns(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """Whatever the fields of a context are called, each is in every file of items; events have them as an object."""
    fields = {"key": "a", "context.key": "b", "context.context.key": "c", "owner": 7}
    columns = {"context.key": "a", "context.context.key": "b", "context.context.context.key": "c", "owner": 7}
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"title": "One", **fields}))
    text = str(tmp_path / "out.csv")
    arguments = ["--file", str(tmp_path / "prompts.jsonl"), "--prompt", "{title}", "--journal", db, "--json"]
    assert main(["run", *arguments]) == 0
    ended = [event for event in map(json.loads, capsys.readouterr().out.splitlines()) if event["event"] == "ended"]
    assert [event["context"] for event in ended] == [fields]
    assert main(["export", db, "--format", "jsonl"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert json.loads(line).items() >= {"key": "1", **columns}.items()
    assert main(["report", db, "--out", text]) == 0
    for row in (*exported(capsys, db), *csv.DictReader(io.StringIO(Path(text).read_text()))):
        assert row.items() >= {"key": "1", **columns, "owner": "7"}.items()
    assert service.emulator.agents_started.total() == 1


def test_beside_a_run(service: EmulatorThread, prompts: Path, tmp_path: Path, db: str) -> None:
    """While a run is at work on a file, its items are written as they stand; the run takes no notice."""
    service.live(duration=3600)
    service.live("failed", prompt="p1")
    out = tmp_path / "results.csv"
    with Child("run", "--file", str(prompts), "--journal", db, env=service.environment) as child:
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


def test_the_items_that_filters_name(db: str, capsys: Captured) -> None:
    """The filters of `status` name the items that are written; every condition has to be met."""
    keys = ("a/1", "a/2", "b/1")
    plan(db, *(BatchItem(key, f"Document {key}", "api" if key == "a/2" else "docs") for key in keys))
    assert main(["resolve", "--abandon", db, "b/1"]) == 0
    cases: dict[tuple[str, ...], list[str]] = {
        (): ["a/1", "a/2", "b/1"],
        ("--prefix", "a/"): ["a/1", "a/2"],
        ("--prefix", "a/", "--project", "docs"): ["a/1"],
        ("--key", "a/2"): ["a/2"],
        ("--grep", "Document b"): ["b/1"],
        ("--state", "abandoned"): ["b/1"],
        ("--state", "abandoned", "--state", "planned", "--grep", "/1"): ["a/1", "b/1"],
        ("--older-than", "2d"): [],
    }
    assert unexpected(cases, lambda options: [row["key"] for row in exported(capsys, db, *options)]) == {}
    assert main(["export", db, "--format", "jsonl", "--key", "a/2"]) == 0
    assert json.loads(capsys.readouterr().out)["project"] == "api"
