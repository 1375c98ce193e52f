import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from agentjobs_async import InvalidInputError
from agentjobs_async.__main__ import main
from agentjobs_async.cli._input.records import Reading, Record, read_records, records_of
from tests.cli.checks import accepted, unexpected
from tests.cli.stage import Child, EmulatorThread


def test_lines() -> None:
    """A file has one prompt per line, whatever ends it; blank lines don't count."""
    text = "one\r\n\n \t\n two \x0b\u2028half\rthree"
    found = [(record.position, record.fields) for record in records_of("prompts.txt", text, "lines")]
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


def test_format(tmp_path: Path) -> None:
    """The suffix decides, then whether there is a delimiter, then the beginning of the text."""
    forms = {
        ("a.txt", "one\n", Reading(), ()): "one",
        ("a", '{"prompt": "x"}\n', Reading(), ()): {"prompt": "x"},
        ("a.json", '{"prompt": "x"}\n', Reading(), ()): {"prompt": "x"},
        ("a.NDJSON", '{"prompt": "x"}\n', Reading(), ()): {"prompt": "x"},
        ("a.CSV", "a,b\n1,2\n", Reading(), ("a",)): {"a": "1", "b": "2"},
        ("a.txt", "a;b\n1;2\n", Reading(delimiter=";"), ("a",)): {"a": "1", "b": "2"},
        ("a", "one, two, three, four\n", Reading(), ()): "one, two, three, four",
        ("a", "one, two, three, four\nfive, six\n", Reading(), ()): "one, two, three, four",
        ("a", "a\tb\n", Reading(), ()): "a\tb",
        ("a", "sep=;\n", Reading(), ()): "sep=;",
    }

    def first(row: tuple[str, str, Reading, tuple[str, ...]]) -> object:
        (tmp_path / row[0]).write_text(row[1])
        return read_records(str(tmp_path / row[0]), *row[2:])[0].fields

    assert unexpected(forms, first) == {}


def test_tables_are_not_prompts(tmp_path: Path) -> None:
    """What looks like a table or an array is refused, unless its lines are said to be prompts."""
    tables = {
        ("a.csv", "title\none\n"): "a.csv is a table: give --prompt",
        ("a.json", '[{"prompt": "x"},\n'): "a.json begins like a JSON array: write one object per line",
        ("a.txt", '[ {"prompt": "x"}]'): "or say --input-format lines",
        ("a.txt", "id,title,body,owner\n1,a,b,c\n2,d,e,f\n"): "commas in every line: say --input-format csv and give",
        ("b.txt", "id\ttitle\n1\ta\n"): "with tabs in every line: say --delimiter tab and give --prompt",
        ("a.txt", "sep=;\nid;title\n1;a\n"): "with a first line sep=;: say --input-format csv and give --prompt",
        ("c.txt", "id;title;body;owner\n1;a;b;c\n"): "with semicolons in every line: say --delimiter ';' and give",
    }

    def read(table: tuple[str, str], form: str | None = None) -> list[Record]:
        (tmp_path / table[0]).write_text(table[1])
        return read_records(str(tmp_path / table[0]), Reading(form))

    assert accepted(tables, read) == {}
    for table in tables:
        assert [record.fields for record in read(table, "lines")] == table[1].splitlines()


def test_a_delimiter_is_for_csv(tmp_path: Path) -> None:
    """A delimiter of what is no CSV is refused: it would do nothing."""
    (tmp_path / "a.jsonl").write_text('{"prompt": "x"}\n')
    for reading in (Reading(delimiter=";"), Reading("lines", ";")):
        with pytest.raises(InvalidInputError, match=r"^--delimiter is for CSV, and .*a\.jsonl is not"):
            read_records(str(tmp_path / "a.jsonl"), reading)


GERMAN = [["id", "title", "body"], ["7", 'Größe "L"', "eins;\r\nzwei"], [], ["8", "Ende", "5 €"]]
RECORDS = [
    Record("line 2", {"id": "7", "title": 'Größe "L"', "body": "eins;\r\nzwei"}),
    Record("line 5", {"id": "8", "title": "Ende", "body": "5 €"}),
]


def spreadsheet(encoding: str, delimiter: str, *, quoting: Any = csv.QUOTE_MINIMAL, before: str = "") -> bytes:
    """Return the table as a spreadsheet saves it."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=quoting).writerows(GERMAN)
    return (before + text.getvalue()).encode(encoding)


def further(records: list[Record], lines: int) -> list[Record]:
    """Return records that are so many lines further down."""
    return [evolve(record, position=f"line {int(record.position[5:]) + lines}") for record in records]


IN_CP1252 = 'which reads "7;"Größe ""L""";"eins;" in cp1252'
ONE_COLUMN = 'has no column "id", but one column "id;title;body"'
SAVED = {
    "Excel, CSV": (
        "a.csv",
        spreadsheet("cp1252", ";"),
        f"is not UTF-8 at line 2, {IN_CP1252}, and {ONE_COLUMN}: use --encoding cp1252 --delimiter ';'",
        Reading(delimiter=";", encoding="cp1252"),
    ),
    "Excel, CSV UTF-8": (
        "a.csv",
        spreadsheet("utf-8-sig", ";"),
        f"{ONE_COLUMN}: use --delimiter ';'",
        Reading(delimiter=";"),
    ),
    "Excel, Unicode text": (
        "a.txt",
        spreadsheet("utf-16", "\t"),
        f"is not UTF-8 at line 1, and {ONE_COLUMN}: use --encoding utf-16 --delimiter tab".replace(";", r"\t"),
        Reading(delimiter="\t", encoding="utf-16"),
    ),
    "LibreOffice, every text quoted": (
        "a.csv",
        spreadsheet("utf-8", ";", quoting=csv.QUOTE_ALL),
        "has no column \"id\": use --delimiter ';'",
        Reading(delimiter=";"),
    ),
    "LibreOffice, Windows-1252 with commas": (
        "a.csv",
        spreadsheet("cp1252", ","),
        f"is not UTF-8 at line 2, {IN_CP1252}: use --encoding cp1252".replace(";", ",", 2),
        Reading(encoding="cp1252"),
    ),
    "UTF-16 without a mark": (
        "a.csv",
        spreadsheet("utf-16-le", ","),
        "is not UTF-8 at line 1: use --encoding utf-16-le",
        Reading(encoding="utf-16-le"),
    ),
    "UTF-16 of the other order, with its mark": (
        "a.csv",
        spreadsheet("utf-16-be", ";", before="\ufeff"),
        f"is not UTF-8 at line 1, and {ONE_COLUMN}: use --encoding utf-16 --delimiter ';'",
        Reading(delimiter=";", encoding="utf-16-be"),
    ),
}
"""What programs save: the name of the file, what is in it, the first error, and the right options."""


@pytest.mark.parametrize("program", SAVED)
def test_spreadsheets_as_they_come(program: str, tmp_path: Path) -> None:
    """The first error of a table names the encoding and the delimiter with which it can be read, as it then is."""
    name, data, words, right = SAVED[program]
    (file := tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInputError) as raised:
        read_records(str(file), Reading(), ["id", "title"])
    assert str(raised.value) == f"{file} {words}"
    assert read_records(str(file), right, ["id", "title"]) == RECORDS


@pytest.mark.parametrize("line", ["sep=;\r\n", "SEP=;\n", '"sep=;"\r\n'])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_line_that_names_the_delimiter(line: str, encoding: str, tmp_path: Path) -> None:
    """A first line `sep=;`, as Excel reads it, names the delimiter, is no row, and counts among the lines."""
    (file := tmp_path / "a.csv").write_bytes(spreadsheet(encoding, ";", before=line))
    reading = Reading(encoding=None if encoding == "utf-8-sig" else encoding)
    assert read_records(str(file), reading, ["id"]) == further(RECORDS, 1)
    (tmp_path / "b.csv").write_text('sep=;\nid;title\n1;"a"b\n')
    with pytest.raises(InvalidInputError, match=r"b\.csv, line 3: "):
        read_records(str(tmp_path / "b.csv"), Reading(), ["id"])


def test_another_alphabet(tmp_path: Path) -> None:
    """A text of one byte for each letter shows a person whether the encoding that is named is right."""
    (file := tmp_path / "a").write_bytes("Стр. 7\n".encode("cp1251"))
    with pytest.raises(InvalidInputError, match=r'which reads "Ñòð\. 7" in cp1252: use'):
        read_records(str(file), Reading())


def test_a_wrong_option(tmp_path: Path) -> None:
    """An option that does not fit the file is answered by the one that does; what nothing shows is not guessed."""
    mixed = "id,title\n1,Größe\n2,".encode() + b"\xfc\n"
    cases = {
        (spreadsheet("utf-8", ";"), Reading(delimiter=",")): "use --delimiter ';'",
        (spreadsheet("utf-8", "|"), Reading(delimiter="\t")): "use --delimiter '|'",
        (spreadsheet("utf-8", "^"), Reading()): "use --delimiter '^'",
        (spreadsheet("utf-8", ","), Reading(delimiter=";")): 'one column "id,title,body": use --delimiter ,',
        (spreadsheet("utf-8", ",", before="sep=;\n"), Reading()): "use --delimiter ,",
        (spreadsheet("utf-8", ","), Reading(encoding="ascii")): "is not ascii at line 2: use --encoding utf-8",
        (spreadsheet("utf-16", ","), Reading(encoding="cp1252")): "is not cp1252 at line 1: use --encoding utf-16",
        (mixed, Reading()): "is not UTF-8 at line 3: name its encoding by --encoding, or save it as UTF-8",
        (b"PK\x03\x04\0\0\x81\0\0\0\0\x01", Reading()): "is not UTF-8 at line 1: name its encoding",
        (b"id;titel, body\n1;2\n", Reading()): 'has no column "id", but the columns "id;titel", "body"',
        (b"Id;Title\n1;2\n", Reading()): "use --delimiter ';'",
    }

    def read(case: tuple[bytes, Reading]) -> None:
        (tmp_path / "a.csv").write_bytes(case[0])
        read_records(str(tmp_path / "a.csv"), case[1], ["id"])

    assert accepted(cases, read) == {}


def test_any_text_in_its_encoding(tmp_path: Path) -> None:
    """Plain prompts and JSON Lines are read in the encoding that is named; in a wrong one they are refused."""
    for name, text in (("a", "Größe\n"), ("a.jsonl", '{"prompt": "Größe"}\n')):
        (file := tmp_path / name).write_text(text, encoding="cp1252")
        with pytest.raises(InvalidInputError, match=r"line 1, which reads .*Größe.* in cp1252: use --encoding cp1252$"):
            read_records(str(file), Reading())
        (record,) = read_records(str(file), Reading(encoding="cp1252"))
        assert record.fields in ("Größe", {"prompt": "Größe"})


def test_broken_files() -> None:
    """A file that is not in its format is refused as a whole."""
    broken = {
        ('a,b\n"1"2,3\n', "csv"): "a, line 2: ",
        ("a,a\n1,2\n", "csv"): "two columns 'a'",
        ("a,,\n1,2,3\n", "csv"): "two columns ''",
    }
    assert accepted(broken, lambda file: records_of("a", *file)) == {}


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
    assert child.stderr == "Error: standard input can't be read: it is closed\n"
