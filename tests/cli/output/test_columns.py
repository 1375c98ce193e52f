from agentjobs_async.cli._output.columns import cut_at_a_word, cut_in_the_middle, shortened, wrapped
from tests.cli.checks import unexpected


def test_shortened() -> None:
    """Text is cut to the columns it takes on a terminal, control characters escaped first."""
    assert shortened("short", 10) == "short"
    assert shortened("much too long", 10) == "much too…"
    assert shortened("文档文档文档", 7) == "文档文…"
    assert shortened("a文档", 4) == "a文…"
    assert shortened("文档文", 4) == "文…"  # no blank in the place of the half that does not fit
    assert shortened("\x1b[31m", 5) == "\\x1b…"


def test_cut_at_a_word() -> None:
    """A text that is too long ends with a whole word, unless its first one is too long."""
    assert cut_at_a_word("Fix the broken links", 20) == "Fix the broken links"
    assert cut_at_a_word("Fix the broken links", 16) == "Fix the broken…"
    assert cut_at_a_word("Incomprehensibilities", 9) == "Incompre…"
    assert cut_at_a_word("Title 7: Fix", 10) == "Title 7:…"


def test_a_long_word_is_cut() -> None:
    """A word without which the line would be mostly empty is cut: a link, or a sentence that has no blanks."""
    assert cut_at_a_word("See https://code.example/acme/demo/pull/7", 24) == "See https://code.exampl…"
    assert cut_at_a_word("Title 7: 壊れたリンクをすべて修正してください。", 30) == "Title 7: 壊れたリンクをすべて…"


def test_cut_in_the_middle() -> None:
    """A key that is too long keeps its beginning and its end, in columns of the terminal."""
    assert cut_in_the_middle("page-7", 16) == "page-7"
    assert cut_in_the_middle("docs/guide/chapter-0579", 16) == "docs/gu…ter-0579"
    assert cut_in_the_middle("文档文档文档", 7) == "文档…档"
    assert cut_in_the_middle("文書/日本語のキー-0", 12) == "文書/…キー-0"


def test_wrapped() -> None:
    """A line is broken between words, and no word is cut."""
    lines = {
        "short": ["short"],
        "four words that wrap here": ["four words that wrap", "here"],
        "a https://example.com/a-long-link b": ["a", "https://example.com/a-long-link", "b"],
    }
    assert unexpected(lines, lambda line: wrapped(line, 20).split("\n")) == {}
