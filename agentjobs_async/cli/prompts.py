"""Prompts from the command line and from a file or standard input, all checked before anything is sent."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line

__all__ = ["checked_prompts", "prompts_of"]

_LINE_END: Final = re.compile("\r\n|\r|\n")
_SHOWN: Final = 60


def prompts_of(arguments: Sequence[str], file: str | None) -> list[str]:
    """Give all prompts: the arguments, then the lines of the file that aren't blank. `-` is standard input.

    Raises:
        InvalidInputError: There is none, one of them can't be sent, or the file can't be read as UTF-8.
    """
    prompts = [*checked_prompts(arguments), *([] if file is None else _lines(file))]
    if not prompts:
        raise InvalidInputError("there is no prompt: give PROMPT..., or --file with one prompt per line")
    return prompts


def checked_prompts(prompts: Sequence[str]) -> Sequence[str]:
    """Give `prompts`.

    Raises:
        InvalidInputError: One is blank, or `-`, or was not given as valid text.
    """
    for number, prompt in enumerate(prompts, 1):
        if prompt == "-":
            raise InvalidInputError("- is no prompt: for prompts from standard input say --file -")
        if not prompt.strip():
            raise InvalidInputError(f"prompt {number} is blank: it must say something")
        if re.search("[\ud800-\udfff]", prompt):
            raise InvalidInputError(f"prompt {number} is no valid text in this locale: {one_line(prompt, _SHOWN)}")
    return prompts


def _lines(file: str) -> list[str]:
    name = "standard input" if file == "-" else one_line(file)
    try:
        text = _read(file).decode("utf-8-sig")
    except OSError as error:
        defect = f"--file: {name} can't be read: {error.strerror}"
    except UnicodeDecodeError as error:
        defect = f"--file: {name} is not UTF-8 (byte {error.start}); convert it first"
    else:
        return [line for line in _LINE_END.split(text) if line.strip()]
    raise InvalidInputError(defect)


def _read(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
