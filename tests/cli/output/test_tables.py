from collections.abc import Sequence

from agentjobs_async.cli._output.tables import Entry, table_lines

LINK = "https://code.example/pull/7"
REASON = "HTTP 500 after the prompt was sent: the gateway has lost its backend, and says so at length"
ENTRIES = [
    Entry("a", "completed", "Document the v2 endpoints of the service, then the others", LINK),
    Entry("b" * 60, "rejected", "y", "no | <b>way</b>\n*"),
    Entry("c", "timed_out", "z", ""),
]


def shown(entries: Sequence[Entry], width: int, *, header: bool = True, is_cut: bool = True) -> list[str]:
    lines = table_lines(entries, width, header=header, is_cut=is_cut)
    return ["".join(part[0] if isinstance(part, tuple) else part for part in line) for line in lines]


def test_one_line_for_each() -> None:
    """Each entry is one line: its name, its state in words, its prompt, and its pull request, reason or job."""
    assert shown(ENTRIES, 100) == [
        f"{'KEY':<33}  STATE      {'PROMPT':<25}  PULL REQUEST OR REASON",
        f"{'a':<33}  completed  {'Document the v2…':<25}  {LINK}",
        f"{'b' * 16}…{'b' * 16}  rejected   {'y':<25}  no | <b>way</b>\n*",
        f"{'c':<33}  timed out  z",
    ]
    assert shown([], 80) == ["KEY  STATE      PULL REQUEST OR REASON"]
    assert shown([], 80, header=False) == []


def test_nothing_is_wider() -> None:
    """No line is wider than it may be, as long as no word is; a long reason goes on below its beginning."""
    entries = [*ENTRIES, Entry("17", "unknown", "Fix the broken links", REASON)]
    for width in (40, 60, 80, 120):
        lines = shown(entries, width)
        assert max(map(len, lines)) <= width, width
        assert " ".join(" ".join(lines[-3:]).split()).endswith("says so at length"), width
    (first, second) = shown(entries[-1:], 80, header=False)[:2]
    assert first.startswith("17   unknown    Fix the broken links  HTTP 500")
    assert second.startswith(" " * first.index("HTTP 500"))
    assert not second[first.index("HTTP 500")].isspace()


def test_links_are_whole() -> None:
    """A link is never cut: one that does not fit its column goes below, as far to the right as it fits."""
    for width, indent in ((80, 2), (85, 7), (40, 2)):
        link = f"{LINK}/{'0' * 50}"
        name, below = shown([Entry("a", "completed", "some words", link)], width, header=False)
        assert name.split() == ["a", "completed", "some", "words"] if width > 40 else ["a", "completed"]
        assert below == f"{' ' * indent}{link}", width


def test_prompts_of_one_template() -> None:
    """Prompts that are cut go without the words that all of them begin with: the rest tells the rows apart."""
    entries = [Entry(word, "failed", f"Document the page {word} of the handbook", REASON) for word in ("a1", "b2")]
    cut = [line.split()[2:4] for line in shown(entries, 80, header=False) if line[0] != " "]
    assert cut == [["…a1", "of"], ["…b2", "of"]]
    assert "  Document the page a1 of the handbook" in shown(entries, 180, header=False)[0]
    assert "  Document the" in shown(entries[:1] * 2, 80, header=False)[0]


def test_without_prompts() -> None:
    """Jobs that were only waited for have no prompts, and so no column for them; names are their tokens."""
    assert shown([Entry("docs~.job_1", "completed", "", LINK)], 60) == [
        "KEY          STATE      PULL REQUEST OR REASON",
        f"docs~.job_1  completed  {LINK}",
    ]


def test_names_that_are_copied() -> None:
    """Where no terminal is, a long name pushes its own line only, and is whole."""
    lines = shown(ENTRIES, 80, is_cut=False)
    assert lines[2].startswith(f"{'b' * 60}  rejected")
    assert lines[3].index("timed out") == lines[0].index("STATE") == 28
