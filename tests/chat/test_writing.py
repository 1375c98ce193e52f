"""What users write, as chats deliver it."""

import re
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async import InvalidInputError
from agentjobs_async.chat import slack_text, split_command


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/job", ("job", "")),
        ("/job Fix it", ("job", "Fix it")),
        ("/job  Fix it\n", ("job", " Fix it\n")),
        ("/JOB@jobs_bot\n\n  two lines", ("job", "\n  two lines")),
        ("/job@jobs_bot", ("job", "")),
        ("/settle 7/50/1 again", ("settle", "7/50/1 again")),
        ("/job a@b.c /x", ("job", "a@b.c /x")),
    ],
)
def test_commands(text: str, expected: tuple[str, str]) -> None:
    """A message is split into the command and what follows the one separator, as it was written."""
    assert split_command(text) == expected


@pytest.mark.parametrize("text", ["", "job", "/", "/ job", "/@bot x", " /job"])
def test_no_command(text: str) -> None:
    """What begins with no command is refused."""
    with pytest.raises(InvalidInputError, match="begin with a command"):
        split_command(text)


CHARACTERS = st.sampled_from("ab/@ \n\t\x00&;<>|lgtamp:#é🎉\ud800")


@given(prompt=st.text(CHARACTERS))
def test_prompts(prompt: str) -> None:
    """A prompt after the command and a space is not changed."""
    assert split_command(f"/job@bot {prompt}") == ("job", prompt)


@pytest.mark.parametrize(
    ("sent", "written"),
    [
        ("ask <@U2> &amp;lt; &lt;a&gt;", "ask <@U2> &lt; <a>"),
        ("<http://x.y|x.y> <mailto:a@b.c|a@b.c> <https://x.y>", "x.y a@b.c https://x.y"),
        ("<https://x.y|https://x.y>", "https://x.y"),
        ("<https://x.y/z/guide.md|guide.md>", "guide.md (https://x.y/z/guide.md)"),
        ("<https://x.y/?a=1&amp;b=2|a &gt; b> in <#C1|docs>", "a > b (https://x.y/?a=1&b=2) in <#C1|docs>"),
        ("<!here> <slack://x|>", "<!here> slack://x"),
    ],
)
def test_slack(sent: str, written: str) -> None:
    """A text of Slack's is read as it was written, links with other words with their address."""
    assert slack_text(sent) == written


@given(text=st.text(CHARACTERS))
def test_slack_escapes(text: str) -> None:
    """Whatever a user writes comes back from what Slack makes of it."""
    sent = re.sub(r"(?<!\S)(https?://[^\s<>]+)", r"<\1>", escape(text, quote=False))
    assert slack_text(sent) == text
