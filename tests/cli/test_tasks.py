from pathlib import Path

import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.batch import BatchItem, Rate
from agentjobs_async.cli.prompts import numbered_prompts
from agentjobs_async.cli.tasks import Refusal, Tasks, rate_of, rate_text, tasks_of


def written(directory: Path, text: str) -> str:
    file = directory / "tasks"
    file.write_text(text, encoding="utf-8")
    return str(file)


def read(prompts: list[str], file: str) -> Tasks:
    return tasks_of(numbered_prompts(prompts, file), may_be_json=not prompts)


def test_prompts_by_their_place(tmp_path: Path) -> None:
    """Prompts without keys are known by their place."""
    tasks = read(["a"], written(tmp_path, "b\n\n{c\n"))
    assert tasks.items == (BatchItem("1", "a"), BatchItem("2", "b"), BatchItem("3", "{c"))
    assert tasks.refusals == ()


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
    tasks = read([], written(tmp_path, "\n".join(lines)))
    assert tasks.items == (BatchItem("a", "one", "web"), BatchItem("2", "two"), BatchItem("7", "three"))
    assert tasks.refusals == (
        Refusal("a", "the key came before in this file"),
        Refusal("line 5", "it is no JSON"),
        Refusal("line 6", "it is no JSON object with a prompt"),
        Refusal("line 7", "it is no JSON object with a prompt"),
        Refusal("line 8", "'timeout' is none of key, prompt and project"),
        Refusal("line 9", "its key or project is no text"),
        Refusal("line 10", "its key or project is no text"),
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
    tasks = read([], written(tmp_path, "\n".join(lines)))
    assert tasks.items == (BatchItem("1", "one"), BatchItem("4", "last"))
    assert tasks.refusals == (Refusal("line 3", "its key is empty"), Refusal("line 5", "it has 'key' twice"))


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/h", Rate(100, per=3600)),
        ("2/s", Rate(2, per=1)),
        ("100/h/all", Rate(100, per=3600, scope="all")),
        ("none", None),
    ],
)
def test_rates(text: str, rate: Rate | None) -> None:
    """A rate is a count per second, minute, hour or day, of each project or of all, or none."""
    assert rate_of(text) == rate
    assert rate is None or rate_text(rate) == text


@pytest.mark.parametrize(
    "text", ["", "100", "0/h", "-1/h", "1/week", "x/h", "1.5/s", "100/h/", "100/h/each", "٣/h", "9" * 30 + "/h"]
)
def test_no_rates(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(InvalidInputError, match="--create-rate"):
        rate_of(text)
