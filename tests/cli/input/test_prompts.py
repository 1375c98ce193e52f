import json
import shlex
from functools import partial
from pathlib import Path

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.__main__ import main
from agentjobs_async.batch import BatchItem, check_items
from agentjobs_async.cli._input.prompts import InvalidPrompt, Prompts, prompts_of
from agentjobs_async.cli._input.templates import Template
from tests.cli.checks import Captured, accepted
from tests.cli.stage import EmulatorThread


def written(directory: Path, text: str) -> str:
    file = directory / "prompts"
    file.write_text(text, encoding="utf-8")
    return str(file)


def read(prompts: list[str], file: str) -> Prompts:
    return prompts_of(prompts, file=file)


def test_prompts_by_their_number(tmp_path: Path) -> None:
    """Prompts without keys are known by their number."""
    prompts = read(["a"], written(tmp_path, "b\n\n{c\n"))
    assert prompts.items == (BatchItem("1", "a"), BatchItem("2", "b"), BatchItem("3", "{c"))
    assert prompts.invalid == ()


def test_json_lines(tmp_path: Path) -> None:
    """Lines of JSON bring keys and projects along; each bad one is refused alone."""
    lines = [
        '{"key": "a", "prompt": "one", "project": "web"}',
        '{"prompt": "two"}',
        '{"key": 7, "prompt": "three"}',
        '{"key": "a", "prompt": "again"}',
        "no json",
        '["list"]',
        '{"key": "b"}',
        '{"key": "c", "prompt": "x", "timeout": 5}',
        '{"key": true, "prompt": "x"}',
        '{"key": "d", "prompt": "x", "project": 5}',
    ]
    prompts = read([], written(tmp_path, "\n".join(lines)))
    assert prompts.items == (BatchItem("a", "one", "web"), BatchItem("2", "two"), BatchItem("7", "three"))
    assert prompts.invalid == (
        InvalidPrompt("a", "line 4 repeats the key of line 1"),
        InvalidPrompt("line 5", "it is no JSON"),
        InvalidPrompt("line 6", "it is no JSON object"),
        InvalidPrompt("line 7", "it is no JSON object with a prompt"),
        InvalidPrompt("line 8", "'timeout' is none of key, prompt, project and extra"),
        InvalidPrompt("line 9", "its key or project is no text"),
        InvalidPrompt("line 10", "its key or project is no text"),
    )


def test_refused_by_the_line_of_the_file(tmp_path: Path) -> None:
    """An empty key, or a name twice in one object, is refused by its name and the file's own line number."""
    lines = [
        '{"prompt": "one"}',
        "",
        '{"key": "", "prompt": "x"}',
        " ",
        '{"key": "b", "prompt": "x", "key": "c"}',
        '{"prompt": "last"}',
    ]
    prompts = read([], written(tmp_path, "\n".join(lines)))
    assert prompts.items == (BatchItem("1", "one"), BatchItem("4", "last"))
    assert prompts.invalid == (
        InvalidPrompt("line 3", "its key is empty"),
        InvalidPrompt("line 5", "it has 'key' twice"),
    )


CSV = 'id,title,body\n7,"The ""v2"" page","one,\ntwo"\n8,Index,x\n'
DOCUMENT = "Document {title}: {body}"


OBJECTS = ['{"id": 7, "title": "The \\"v2\\" page", "body": "one,\\ntwo"}', '{"id": 8, "title": "Index", "body": "x"}']


def test_key_and_prompt_from_fields(tmp_path: Path) -> None:
    """A table and JSON Lines bring the same items by `--key` and `--prompt`."""
    files = {
        "pages.csv": CSV,
        "pages.CSV": f"\ufeff{CSV}".replace("\n", "\r\n").replace(",\r\n", ",\n"),
        "pages.jsonl": "\n".join(OBJECTS),
    }
    items = (BatchItem("7", 'Document The "v2" page: one,\ntwo'), BatchItem("8", "Document Index: x"))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    found = {name: prompts_of([], file=str(tmp_path / name), key="id", template=DOCUMENT) for name in files}
    assert found == dict.fromkeys(files, Prompts(items, (), ()))


def test_other_fields_are_the_context(service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str) -> None:
    """Fields that are neither key nor part of the prompt come back with the results of this run and of its journal."""
    (tmp_path / "a.csv").write_text("id,title,owner,cost\n7,Index,Ada,\n")
    arguments = ["--file", str(tmp_path / "a.csv"), "--key", "id", "--prompt", "Document {title}", "--journal", db]
    assert main(["run", *arguments, "--json"]) == 0
    context = {"owner": "Ada", "cost": ""}
    *_, ended, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert ended["context"] == context
    assert main(["export", db, "--format", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out).items() >= context.items()
    assert service.emulator.agents_started == {"Document Index": 1}


def test_bad_records_are_refused_alone(tmp_path: Path) -> None:
    """A row with too few cells, without a key, with an earlier key, or without a field is refused; the others go on."""
    (tmp_path / "a.csv").write_text("id,title\n1,a\n2\n,c\n1,d\n5,e\n")
    prompts = prompts_of([], file=str(tmp_path / "a.csv"), key="id", template="{title}")
    assert prompts.items == (BatchItem("1", "a"), BatchItem("5", "e"))
    assert prompts.invalid == (
        InvalidPrompt("line 3", "its number of cells is 1, not 2"),
        InvalidPrompt("line 4", "its key is empty"),
        InvalidPrompt("1", "line 5 repeats the key of line 2"),
    )
    (tmp_path / "a.jsonl").write_text('{"id": 1, "title": "a"}\n{"id": 2, "title": null}\n{"title": "c"}')
    prompts = prompts_of([], file=str(tmp_path / "a.jsonl"), key="id", template="{title}")
    assert prompts.items == (BatchItem("1", "a"),)
    assert prompts.invalid == (
        InvalidPrompt("line 2", "it has no 'title'; --allow-empty sends it"),
        InvalidPrompt("line 3", "it has no 'id'"),
    )


EMPTY = {
    "a.csv": "id,title,body\n1,,x\n2, \u00a0,x\n3,c,x\n4,,\n",
    "a.jsonl": '{"id": 1, "title": "", "body": "x"}\n{"id": 2, "title": null, "body": "x"}\n'
    '{"id": 3, "title": "c", "body": "x"}\n{"id": 4, "body": " "}\n',
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_fields(name: str, tmp_path: Path) -> None:
    """A record is refused of which a field of the template is missing, null or blank, unless that is allowed."""
    (tmp_path / name).write_text(EMPTY[name], encoding="utf-8")
    read_all = partial(prompts_of, [], file=str(tmp_path / name), key="id", template="Document {title}: {body}")
    prompts = read_all()
    assert prompts.items == (BatchItem("3", "Document c: x"),)
    first = 2 if name == "a.csv" else 1
    assert [prompt.name for prompt in prompts.invalid] == [f"line {first + number}" for number in (0, 1, 3)]
    assert all(prompt.reason.endswith(" 'title'; --allow-empty sends it") for prompt in prompts.invalid)
    allowed = read_all(allow_empty=True)
    assert [item.prompt.split() for item in allowed.items] == [
        ["Document", ":", "x"],
        ["Document", ":", "x"],
        ["Document", "c:", "x"],
        ["Document", ":"],
    ]
    assert allowed.invalid == ()


def test_allowed_is_not_the_key(tmp_path: Path) -> None:
    """No option sends a record without its key, or one that says nothing at all."""
    (tmp_path / "a.jsonl").write_text('{"id": " ", "title": "a"}\n{"title": "b"}\n{"id": 3, "title": " "}\n')
    prompts = prompts_of([], file=str(tmp_path / "a.jsonl"), key="id", template="{title}", allow_empty=True)
    assert prompts.invalid == (InvalidPrompt("line 1", "its key is empty"), InvalidPrompt("line 2", "it has no 'id'"))
    ((item, reason),) = check_items(prompts.items)[1]
    assert (item.key, "blank" in str(reason)) == ("3", True)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_what_is_empty_is_not_sent(
    command: str, service: EmulatorThread, tmp_path: Path, capsys: Captured, db: str
) -> None:
    """A plan and a run refuse the same records with an empty cell, and send the same with `--allow-empty`."""
    (tmp_path / "a.csv").write_text("id,title\n1,\n2,b\n")
    arguments = ["--file", str(tmp_path / "a.csv"), "--key", "id", "--prompt", "Document {title}", "--journal", db]
    assert main([command, *arguments]) == 1
    assert "line 2 refused: it has an empty 'title'; --allow-empty sends it" in capsys.readouterr().err
    assert main([command, *arguments, "--allow-empty"]) == 0
    assert service.emulator.agents_started == ({"Document b": 1, "Document ": 1} if command == "run" else {})


def test_names_in_other_letters(tmp_path: Path) -> None:
    """A name that is nearly one of a column or field is refused with the question whether that is meant."""
    (tmp_path / "a.csv").write_text("Id,Title\n1,a\n")
    with pytest.raises(
        InvalidInputError, match=r"no column or field 'title'; it has Id, Title; did you mean 'Title'\?"
    ):
        prompts_of([], file=str(tmp_path / "a.csv"), template="{title}")
    with pytest.raises(InvalidInputError, match=r"no column or field 'ID'; it has Id, Title; did you mean 'Id'\?"):
        prompts_of([], file=str(tmp_path / "a.csv"), key="ID", template="{Title}")
    with pytest.raises(InvalidInputError, match=r"no column or field 'body'; it has Id, Title$"):
        prompts_of([], file=str(tmp_path / "a.csv"), template="{body}")
    (tmp_path / "a.jsonl").write_text('{"title": "a"}\n{"Title": "b"}')
    (invalid,) = prompts_of([], file=str(tmp_path / "a.jsonl"), template="{title}").invalid
    assert invalid == InvalidPrompt("line 2", "it has no 'title'; did you mean 'Title'?")
    (invalid,) = read([], written(tmp_path, '{"prompt": "a"}\n{"Prompt": "b"}')).invalid
    assert invalid == InvalidPrompt("line 2", "it is no JSON object with a prompt; did you mean 'Prompt'?")


def test_a_table_of_short_rows(tmp_path: Path) -> None:
    """Rows with too few cells are refused by their lines, be they all: the table has its columns all the same."""
    (tmp_path / "a.csv").write_text("id,title\n1\n2\n")
    prompts = prompts_of([], file=str(tmp_path / "a.csv"), key="id", template="{title}")
    assert prompts.invalid == tuple(InvalidPrompt(f"line {line}", "its number of cells is 1, not 2") for line in (2, 3))


def test_the_same_prompt_twice(tmp_path: Path) -> None:
    """Items with the prompt and the project of an earlier one are named; another project is another item."""
    lines = ['{"prompt": "a"}', '{"prompt": "a", "project": "web"}', '{"prompt": "b"}', '{"prompt": "a"}']
    blank = ['{"prompt": " "}'] * 2  # refused, each by itself
    assert read([], written(tmp_path, "\n".join(lines + blank))).repeats == ("4",)


def test_run_of_a_table(service: EmulatorThread, tmp_path: Path, capsys: Captured) -> None:
    """A table starts one agent for each record, and names those whose prompt occurred before."""
    (tmp_path / "pages.csv").write_text(CSV + "9,x,x\n")
    assert main(["run", "--file", str(tmp_path / "pages.csv"), "--key", "id", "--prompt", "Document {body}"]) == 0
    assert "The same prompt as an earlier item (1): 9\n" in capsys.readouterr().err
    assert service.emulator.agents_started == {"Document one,\ntwo": 1, "Document x": 2}


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_spreadsheet(command: str, service: EmulatorThread, tmp_path: Path, capsys: Captured) -> None:
    """What the first error of a spreadsheet's file says is what a second try needs."""
    (tmp_path / "pages.csv").write_bytes("id;title\r\n7;Größe\r\n8;Maß\r\n".encode("cp1252"))
    arguments = [command, "--file", str(tmp_path / "pages.csv"), "--key", "id", "--prompt", "Document {title}"]
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert service.emulator.requests == ()
    assert main([*arguments, *shlex.split(printed.partition(": use ")[2])]) == 0
    if command == "run":
        assert service.emulator.agents_started == {"Document Größe": 1, "Document Maß": 1}
    else:
        assert "8 would be sent: Document Maß\n" in capsys.readouterr().out


def test_filled() -> None:
    """Names in braces are replaced by fields: text as it is, anything else as JSON; a value is not read again."""
    template = Template.of("{{x}} {title}: {the body}, {tags}!")
    assert template.names == ("title", "the body", "tags")
    fields = {"title": "{tags}", "the body": 7, "tags": ["é", None]}
    assert template.filled(fields) == '{x} {tags}: 7, ["é", null]!'


def test_no_template() -> None:
    """A template has at least one name, and nothing but names in its braces."""
    texts = ["{title", "title}", "{}", "{a:>5}", "{a!r}"]
    assert accepted(dict.fromkeys(texts, "--prompt"), Template.of) == {}
    nameless = dict.fromkeys(["Fix it", "", "{{a}}"], "--prompt: it names no column")
    assert accepted(nameless, lambda text: prompts_of([], file="a.csv", template=text)) == {}
