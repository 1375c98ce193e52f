"""Prompts from the command line, and the text of a file or of standard input."""

import errno
import sys
from collections.abc import Sequence
from pathlib import Path

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async._validation import checked_prompt
from agentjobs_async.cli.wrapping import fitted

__all__ = ["check_quotes", "checked_prompts", "confirmed", "is_asked", "read_text"]


def checked_prompts(prompts: Sequence[str]) -> Sequence[str]:
    """Return `prompts` unchanged.

    Raises:
        InvalidInputError: One is blank, is `-`, or is not valid text.
    """
    for number, prompt in enumerate(prompts, 1):
        if prompt == "-":
            raise InvalidInputError("- is no prompt: for prompts from standard input say --file -")
        checked_prompt(f"prompt {number}" if len(prompts) > 1 else "the prompt", prompt)
    return prompts


def check_quotes(prompts: Sequence[str], *, is_confirmed: bool) -> None:
    """Ask at a terminal whether several prompts of one word each are meant, which forgotten quotes look like.

    Raises:
        InvalidInputError: They are not meant, or there is no terminal to ask at.
    """
    if is_confirmed or len(prompts) < 2 or any(" " in prompt for prompt in prompts):  # noqa: PLR2004 - fewer are not several
        return
    words = f"{len(prompts)} prompts of one word each would start {len(prompts)} agents"
    if not confirmed(f"{words}. Start them?"):
        raise InvalidInputError(f"{words}: put a prompt of several words in quotes, or say --yes")


def confirmed(question: str) -> bool:
    """Ask a question on standard error and return whether the answer is yes; no without a terminal."""
    if not is_asked():
        return False
    sys.stderr.write(f"{fitted(question, sys.stderr)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def is_asked() -> bool:
    """Return whether there is a terminal to ask at."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def read_text(file: str, option: str = "--file") -> str:
    """Return the text of a file without its byte order mark; `-` is standard input.

    Raises:
        InvalidInputError: It cannot be read as UTF-8, or has characters NUL, as UTF-16 without a mark does.
    """
    name = "standard input" if file == "-" else one_line(file)
    try:
        text = _read(file).decode("utf-8-sig")
    except OSError as error:
        defect = f"{option}: {name} can't be read: {error.strerror}"
    except UnicodeDecodeError as error:
        defect = f"{option}: {name} is not UTF-8 (byte {error.start}); convert it first"
    else:
        if "\0" not in text:
            return text
        defect = f"{option}: {name} has characters NUL, as UTF-16 does, and is no UTF-8; convert it first"
    raise InvalidInputError(defect)


def _read(file: str) -> bytes:
    if file != "-":
        return Path(file).read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read()
