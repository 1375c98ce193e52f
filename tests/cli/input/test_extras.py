"""More fields of creates on the command line: `--extra`, and the field `extra` of JSON Lines."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.__main__ import main
from agentjobs_async.cli._input.extras import ExtraField, Extras
from agentjobs_async.cli._input.prompts import InvalidPrompt, Prompts, prompts_of
from tests.cli.checks import Captured, accepted
from tests.cli.stage import EmulatorThread

TABLE = "id,title,branch,depth,owner\n7,Index,main,2,Ada\n8,End, ,,Bob\n"
OBJECT = {"id": 7, "title": "Index", "branch": "main", "depth": 2, "draft": False, "tags": {"a": [1]}, "none": None}


def read(directory: Path, text: str, *extras: str, name: str = "a.jsonl", **how: Any) -> Prompts:
    """Return the prompts of a file, with these values of `--extra`."""
    (directory / name).write_text(text)
    return prompts_of([], file=str(directory / name), extras=[ExtraField.of(extra) for extra in extras], **how)


def found(prompts: Prompts) -> list[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
    """Return the key, extra and context of each item."""
    assert prompts.invalid == ()
    return [(item.key, item.extra, item.context) for item in prompts.items]


def bodies(service: EmulatorThread) -> list[Mapping[str, Any]]:
    """Return the JSON objects of all creates, sorted by their prompts."""
    sent = [json.loads(request.body) for request in service.emulator.requests if request.method == "POST"]
    return sorted(sent, key=lambda body: str(body["prompt"]))


def test_columns_of_a_table(tmp_path: Path) -> None:
    """A field comes from the columns of its row; an empty cell leaves it out, and the context has none of them."""
    extras = ("branch={branch}", "depth={depth}", "path=docs/{branch}/{title}", "model=large", "brace={{{title}}}")
    prompts = read(tmp_path, TABLE, *extras, name="a.csv", key="id", template="Document {title}")
    index = {"branch": "main", "depth": "2", "path": "docs/main/Index", "model": "large", "brace": "{Index}"}
    assert found(prompts) == [
        ("7", index, {"owner": "Ada"}),
        ("8", {"model": "large", "brace": "{End}"}, {"owner": "Bob"}),
    ]


def test_types_of_fields(tmp_path: Path) -> None:
    """A template of one field alone keeps what JSON has there; in a text it is JSON; null and no field are left out."""
    extras = ("a={draft}", "b={depth}", "c={tags}", "d={none}", "e=at {depth} {tags}", "f={none}x", "g={ghost}")
    lines = f"{json.dumps(OBJECT)}\n{json.dumps(OBJECT | {'id': 8, 'ghost': 0})}"
    prompts = read(tmp_path, lines, *extras, key="id", template="{title}")
    extra = {"a": False, "b": 2, "c": {"a": [1]}, "e": 'at 2 {"a": [1]}'}
    context = {"branch": "main"}
    assert found(prompts) == [("7", extra, context), ("8", extra | {"g": 0}, context)]
    assert type((prompts.items[0].extra or {})["a"]) is bool


def test_json_lines(tmp_path: Path) -> None:
    """An object has an extra of its own; `--extra` adds fields, from other fields of the object too."""
    lines = [
        {"key": "a", "prompt": "x", "extra": {"branch": "dev", "n": [1]}},
        {"key": "b", "prompt": "x", "extra": {}, "where": "here"},
        {"key": "c", "prompt": "x", "extra": None, "where": None, "project": "web"},
    ]
    text = "\n".join(map(json.dumps, lines))
    assert found(read(tmp_path, text, "branch=main", "place={where}", "from={key}")) == [
        ("a", {"branch": "dev", "n": [1], "from": "a"}, None),
        ("b", {"branch": "main", "place": "here", "from": "b"}, None),
        ("c", {"branch": "main", "from": "c"}, None),
    ]
    (first, *others) = read(tmp_path, text.replace("where", "key2")).invalid
    assert first == InvalidPrompt("line 2", "'key2' is none of key, prompt, project and extra")
    assert len(others) == 1


def test_bad_extras_are_refused_alone(tmp_path: Path) -> None:
    """An extra that can't be sent refuses its own line, in words that do not quote its values."""
    lines = [
        '{"prompt": "a", "extra": ["secret"]}',
        '{"prompt": "b", "extra": {"n": NaN}}',
        '{"prompt": "c", "extra": {"prompt": "secret"}}',
        '{"prompt": "d", "extra": {"n": "' + "secret" * 3_000 + '"}}',
        '{"prompt": "e", "extra": {"n": 1}}',
        '{"prompt": "f", "extra": {"n": "\\ud800"}}',
    ]
    prompts = read(tmp_path, "\n".join(lines))
    assert [item.prompt for item in prompts.items] == ["e"]
    words = {
        "line 1": "its extra is no JSON object",
        "line 2": "extra must be JSON",
        "line 3": "extra must not have 'prompt': ",
        "line 4": "extra must have at most 16384 bytes",
        "line 6": "extra must be JSON",
    }
    assert [one.name for one in prompts.invalid] == list(words)
    assert all(one.reason.startswith(words[one.name]) for one in prompts.invalid)
    assert not any("secret" in one.words for one in prompts.invalid)


def test_plain_lines(tmp_path: Path) -> None:
    """Prompts that are lines or arguments get constant fields; one from a column is refused."""
    assert found(read(tmp_path, "one\ntwo\n", "branch=main", name="a.txt")) == [
        ("1", {"branch": "main"}, None),
        ("2", {"branch": "main"}, None),
    ]
    with pytest.raises(InvalidInputError, match=r"the \{names\} of --extra need columns or fields"):
        read(tmp_path, "one\ntwo\n", "branch={branch}", name="a.txt")
    with pytest.raises(InvalidInputError, match=r"--extra branch: a PROMPT has no columns"):
        prompts_of(["one"], extras=[ExtraField.of("branch={branch}")])
    with pytest.raises(InvalidInputError, match=r"is a table: give --prompt"):
        read(tmp_path, TABLE, "branch={branch}", name="a.csv")
    with pytest.raises(InvalidInputError, match=r"no column or field 'Branch'.*did you mean 'branch'\?"):
        read(tmp_path, TABLE, "branch={Branch}", name="a.csv", template="{title}")
    with pytest.raises(InvalidInputError, match=r"no column or field 'branches'.*did you mean 'branch'\?"):
        read(tmp_path, '{"prompt": "x", "branch": "main"}', "branch={branches}")


def test_no_field() -> None:
    """A field has a name other than prompt, and a template whose braces hold names; each name comes once."""
    refused = {
        **dict.fromkeys(("branch", "", "=x", "branch="), "is no NAME=TEMPLATE"),
        "prompt=x": "extra must not have 'prompt'",
        "a=\udcff": "extra must be JSON",
        "a={": "a: ",
        "a={b!r}": "a: only {name} is possible",
        "a={}": "a: only {name} is possible",
    }
    assert accepted(refused, ExtraField.of) == {}
    with pytest.raises(InvalidInputError, match="--extra a is given twice"):
        Extras.of([ExtraField.of("a=1"), ExtraField.of("b=1"), ExtraField.of("a=2")])
    assert Extras.of([ExtraField.of("a=b=c"), ExtraField.of("b={{}}")]).constants() == {"a": "b=c", "b": "{}"}


def test_repeats(tmp_path: Path) -> None:
    """The same prompt with another extra is no repeat."""
    lines = '{"prompt": "x", "b": 1}\n{"prompt": "x", "b": 2}\n{"prompt": "x", "b": 1}\n'
    assert read(tmp_path, lines, "b={b}").repeats == ("3",)


def test_what_is_sent(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """A run sends the fields that a plan checks, an export has them as columns, and events as an object."""
    (tmp_path / "a.csv").write_text(TABLE)
    arguments = ["--file", str(tmp_path / "a.csv"), "--key", "id", "--prompt", "{title}", "--journal", db]
    extras = ["--extra", "branch={branch}", "--extra", "state=new"]
    assert main(["plan", *arguments, *extras]) == 0
    assert main(["run", *arguments, *extras, "--json"]) == 0
    assert bodies(service) == [{"prompt": "End", "state": "new"}, {"prompt": "Index", "branch": "main", "state": "new"}]
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    ended = {event["key"]: event["extra"] for event in events if event["event"] == "ended"}
    assert ended == {"7": {"branch": "main", "state": "new"}, "8": {"state": "new"}}
    assert main(["export", db]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.endswith(",prompt,depth,owner,branch,extra.state")
    assert (first.rpartition(",Index,")[2], second.rpartition(",End,")[2]) == ("2,Ada,main,new", ",Bob,,new")
    for command in ("plan", "run"):  # without them, these are other items
        assert main([command, *arguments]) == 1
        assert "7 refused: the key '7' is that of another extra in the journal" in capsys.readouterr().err
        assert main([command, *arguments, *extras[2:], *extras[:2]]) == 0
        assert len(bodies(service)) == 2


def test_create(service: EmulatorThread, capsys: Captured) -> None:
    """`create` sends constant fields, and refuses one from a column before it asks the service."""
    assert main(["create", "Tidy up", "--extra", "branch=main", "--extra", "mode={{x}}"]) == 0
    assert main(["create", "Wait"]) == 0
    assert bodies(service) == [{"prompt": "Tidy up", "branch": "main", "mode": "{x}"}, {"prompt": "Wait"}]
    for wrong in (["branch={branch}"], ["branch"], ["a=1", "--extra", "a=2"], ["prompt=x"]):
        assert main(["create", "Tidy up", "--extra", *wrong]) == 2
        assert "--extra" in capsys.readouterr().err
    assert len(bodies(service)) == 2
