import io
import os

import pytest

from agentjobs_async.__main__ import main
from agentjobs_async.cli._input.records import Record, records_of, table_format
from tests.cli.checks import taken, unexpected
from tests.cli.stage import Child, EmulatorThread


def test_lines() -> None:
    """A file has one prompt per line, whatever ends it; blank lines don't count."""
    text = "one\r\n\n \t\n two \x0b\u2028half\rthree"
    found = [(record.place, record.fields) for record in records_of("prompts.txt", text, "lines")]
    assert found == [("line 1", "one"), ("line 4", " two \x0b\u2028half"), ("line 5", "three")]


def test_a_row_is_named_by_its_first_line() -> None:
    """A row whose cell has several lines is named by the first of them; its cells are as many as the columns."""
    found = records_of("a.csv", 'a,b\n"1\n2",3\n\n4,5,6\n7\n', "csv")
    assert found == [
        Record("line 2", {"a": "1\n2", "b": "3"}),
        Record("line 5", {"a": "4", "b": "5", "column 3": "6"}, "its number of cells is 3, not 2"),
        Record("line 6", {"a": "7", "b": None}, "its number of cells is 1, not 2"),
    ]


def test_empty_columns_at_the_end() -> None:
    """Empty columns that a spreadsheet saves are none, whichever lines have them; one with a cell in it stays."""
    tables = {
        "a,b,,\n1,2,,\n3,,,\n": [{"a": "1", "b": "2"}, {"a": "3", "b": ""}],
        "a,b\n1,2, ,\n3,4\n": [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}],
        "a,b,\n1,2,3\n4,5,\n": [{"a": "1", "b": "2", "": "3"}, {"a": "4", "b": "5", "": ""}],
    }
    assert unexpected(tables, lambda text: [record.fields for record in records_of("a.csv", text, "csv")]) == {}


def test_format() -> None:
    """The suffix decides, then the beginning of the text."""
    forms = {
        ("a.txt", "one\n", False): "lines",
        ("-", '{"prompt": "x"}\n', False): "jsonl",
        ("a.json", '{"prompt": "x"}\n', False): "jsonl",
        ("a.json", ' [{"prompt": "x"}]\n', False): "json",
        ("-", '[{"prompt": "x"}]\n', True): "json",
        ("a.TSV", "a\tb\n", True): "tsv",
        ("a", "one, two, three, four\n", False): "lines",
        ("a", "one, two, three, four\nfive, six\n", False): "lines",
        ("-", "a\tb\n", False): "lines",
    }
    assert unexpected(forms, lambda row: table_format(*row[:2], None, has_template=row[2])) == {}


def test_tables_are_not_prompts() -> None:
    """What looks like a table or an array is refused, unless its lines are said to be prompts."""
    tables = {
        ("a.csv", "title\none\n"): "a.csv is a table: give --prompt",
        ("-", '[{"prompt": "x"},\n'): "--input-format json",
        ("a.txt", '[ {"prompt": "x"}]'): "--input-format json",
        ("a.txt", "id,title,body,owner\n1,a,b,c\n2,d,e,f\n"): "--input-format csv",
    }
    assert taken(tables, lambda table: table_format(*table, None, has_template=False)) == {}
    assert {table_format(*table, "lines", has_template=False) for table in tables} == {"lines"}


def test_broken_files() -> None:
    """A file that is not in its format is refused as a whole."""
    broken = {
        ('a,b\n"1"2,3\n', "csv"): "a, line 2: ",
        ("a,a\n1,2\n", "csv"): "two columns 'a'",
        ("a,,\n1,2,3\n", "csv"): "two columns ''",
        ('[{"a": 1}', "json"): "a: it is no JSON",
        ('[{"a": 1, "a": 2}]', "json"): "it has 'a' twice",
        ("[" * 100_000, "json"): "nested too deeply",
    }
    assert taken(broken, lambda file: records_of("a", *file)) == {}


def test_a_cell_of_any_length() -> None:
    """A cell may be a whole document, longer than the csv module takes by default."""
    document = "x" * 200_000
    (record,) = records_of("a.csv", f"id,body\n7,{document}\n", "csv")
    assert record.fields == {"id": "7", "body": document}


def test_a_table_without_rows() -> None:
    """An empty table has no records."""
    assert records_of("a.csv", "", "csv") == records_of("a.csv", "a,b\n", "csv") == []


def test_standard_input(service: EmulatorThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--file -` reads standard input."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    assert main(["run", "--file", "-"]) == 0
    assert service.emulator.agents_started == {"one": 1, "two": 1}


def test_closed_standard_input() -> None:
    """Prompts from a standard input that is closed are wrong usage, in one line."""
    with Child("run", "--emulator", "--file", "-", before=lambda: os.close(0), fresh=True) as child:
        assert child.ended() == 2
    assert child.stderr == "Error: --file: standard input can't be read: it is closed\n"
