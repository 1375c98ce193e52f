from agentjobs_async.cli.wrapping import wrapped
from tests.cli.checks import unexpected


def test_wrapped() -> None:
    """A line is broken between words, further lines stand below its last cell, and no word is cut."""
    lines = {
        "short": ["short"],
        "four words that wrap here": ["four words that wrap", "here"],
        "  130  stopped by Ctrl-C; 143 by it": ["  130  stopped by", "      Ctrl-C; 143 by", "      it"],
        "a https://example.com/a-long-link b": ["a", "https://example.com/a-long-link", "b"],
    }
    assert unexpected(lines, lambda line: wrapped(line, 20).split("\n")) == {}
    assert wrapped("four words that wrap", 15, indent=4) == "    four words\n    that wrap"
