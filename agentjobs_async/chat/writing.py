"""What users write, as chats deliver it."""

import re
from typing import Final

from agentjobs_async import InvalidInputError

__all__ = ["slack_text", "split_command"]

_COMMAND: Final = re.compile(r"/(?P<name>[^\s@]+)(?:@\S*)?\s?(?P<rest>.*)", re.DOTALL)
_LINK: Final = re.compile(r"<(?P<url>[a-z][a-z0-9+.-]*:[^|>]*)(?:\|(?P<label>[^>]*))?>")
_ADDED_BY_SLACK: Final = ("http://", "https://", "mailto:")


def split_command(text: str) -> tuple[str, str]:
    r"""Return the command that a message begins with, and the text after it, as it was written.

    The command comes in lower case, without its slash and the name of the bot; the text without the one space or line
    break that separates them: `/job@my_bot  Fix it\n` is `("job", " Fix it\n")`.

    Raises:
        InvalidInputError: The message does not begin with a command.
    """
    found = _COMMAND.fullmatch(text)
    if found is None:
        raise InvalidInputError("the message does not begin with a command, such as /job")
    return found["name"].lower(), found["rest"]


def slack_text(text: str) -> str:
    """Return a text of Slack's as its user wrote it.

    Slack puts a link into angle brackets, and escapes `&`, `<` and `>`. A link that has words of its own becomes
    `words (link)`. Mentions of users and channels stay as Slack writes them: `<@U1>`, `<#C1|docs>`.
    """
    text = _LINK.sub(_as_written, text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _as_written(link: re.Match[str]) -> str:
    """Return a link as its user wrote it: Slack adds what an address begins with where that was left out."""
    url, label = link["url"], link["label"]
    if not label:
        return url
    if url in {label, *(added + label for added in _ADDED_BY_SLACK)}:
        return label
    return f"{label} ({url})"
