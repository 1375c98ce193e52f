"""Prompts from the command line and from a file or standard input, all checked before anything is sent."""

import errno
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async._validation import checked_prompt

__all__ = ["checked_prompts", "numbered_prompts"]

_LINE_END: Final = re.compile("\r\n|\r|\n")


def numbered_prompts(arguments: Sequence[str], file: str | None) -> list[tuple[int, str]]:
    """Return the arguments, then the lines of the file that are not blank; each with its number, from 1.

    The number is the place among the arguments, or the line in the file. `-` is standard input.

    Raises:
        InvalidInputError: There is no prompt, an argument cannot be sent, or the file cannot be read as UTF-8.
    """
    prompts = [*enumerate(checked_prompts(arguments), 1), *([] if file is None else _lines(file))]
    if not prompts:
        raise InvalidInputError("there is no prompt: give PROMPT..., or --file with one prompt per line")
    return prompts


def checked_prompts(prompts: Sequence[str]) -> Sequence[str]:
    """Return `prompts` unchanged.

    Raises:
        InvalidInputError: One is blank, is `-`, or is not valid text.
    """
    for number, prompt in enumerate(prompts, 1):
        if prompt == "-":
            raise InvalidInputError("- is no prompt: for prompts from standard input say --file -")
        checked_prompt(f"prompt {number}", prompt)
    return prompts


def _lines(file: str) -> list[tuple[int, str]]:
    name = "standard input" if file == "-" else one_line(file)
    try:
        text = _read(file).decode("utf-8-sig")
    except OSError as error:
        defect = f"--file: {name} can't be read: {error.strerror}"
    except UnicodeDecodeError as error:
        defect = f"--file: {name} is not UTF-8 (byte {error.start}); convert it first"
    else:
        return [(number, line) for number, line in enumerate(_LINE_END.split(text), 1) if line.strip()]
    raise InvalidInputError(defect)


def _read(file: str) -> bytes:
    if file != "-":
        return Path(file).read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read()
