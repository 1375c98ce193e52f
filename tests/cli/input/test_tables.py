from agentjobs_async.cli._input.tables import Table, delimiter_of, option_of
from tests.cli.checks import accepted, unexpected


def test_delimiters() -> None:
    """A delimiter is one character, or the word for a tab; the option names it as a shell reads it."""
    assert unexpected({";": ";", "tab": "\t", r"\t": "\t", "\t": "\t", "§": "§", " ": " "}, delimiter_of) == {}
    assert accepted(dict.fromkeys(("ab", '"', "\n", "\r", "tabs"), "is no delimiter"), delimiter_of) == {}
    assert unexpected({";": "--delimiter ';'", "\t": "--delimiter tab", ",": "--delimiter ,"}, option_of) == {}


def test_rows() -> None:
    """Rows that are not blank have the number of their first line in the file, after a line `sep=;` as well."""
    table = Table.of('a;b\r\n"1;\r\n2";3\r\n;\r\n4;5', ";")
    assert list(table.rows()) == [(1, ["a", "b"]), (2, ["1;\r\n2", "3"]), (5, ["4", "5"])]
    table = Table.of("sep=\t\na\tb\n1\t2\n", None)
    assert (list(table.rows()), table.names()) == ([(2, ["a", "b"]), (3, ["1", "2"])], ["a", "b"])


def test_an_option_before_the_line() -> None:
    """A delimiter that is given counts more than the one that the file names, whose line is no row all the same."""
    assert Table.of("sep=;\na,b\n", ",").names() == ["a", "b"]
    assert Table.of("sep=,", None).names() == []


def test_a_better_delimiter() -> None:
    """Another delimiter is better by which all columns are there; for misspelt names, one that makes several of one."""
    found = {
        "id,title\n": None,
        "id;title\n": ";",
        "\n\nid\ttitle\n": "\t",
        '"id";"title"\n': ";",
        "id: a;title;id\n": ";",
        "id~title\n": "~",
        "ID;TITLE;x|y\n": ";",
        "ID\n": None,
        "ID-TITLE\n": None,
        "ID,TITLE;x\n": None,
        "": None,
        '"': None,
    }
    assert unexpected(found, lambda text: Table.of(text, None).better_delimiter(["title", "id"])) == {}
