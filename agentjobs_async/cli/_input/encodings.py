"""The text of a file in its encoding, and the encoding that a file seems to have."""

import codecs
import re
from collections.abc import Sequence
from typing import Final

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line

LINE_END: Final = re.compile("\r\n|\r|\n")
_BYTE_ORDER_MARKS: Final = {  # that of UTF-32 first: it begins as that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NULS_OF_UTF_16: Final = 1 / 4  # of its bytes at least: a half if all is ASCII; a text that has a stray NUL has fewer
OF_ONE_BYTE: Final = ("cp1252", "cp850")
"""The encodings of Windows, which does not use some bytes, and of DOS, where these are letters."""


def encoding_of(name: str) -> str:
    """Return `name`, which is that of an encoding of text, as Python knows it.

    Raises:
        InvalidInputError: There is none of this name, or it encodes no text.
    """
    try:
        " ".encode(name)
    except (LookupError, ValueError):
        defect = f"{one_line(name, 60)} is no encoding of text: write one such as cp1252 or utf-16"
    else:
        return name
    raise InvalidInputError(defect)


def decoded(data: bytes, encoding: str) -> str:
    """Return the text of a file without its byte order mark.

    Raises:
        UnicodeError: It is not in this encoding.
    """
    return data.decode(encoding).removeprefix("\ufeff")


def undecodable_line(data: bytes, encoding: str) -> int | None:
    """Return the number of the first line that is not in this encoding, or has a character NUL; `None` without one.

    The mark of UTF-8 is no text in another encoding, though many have characters for its bytes.
    """
    if data.startswith(codecs.BOM_UTF8) and codecs.lookup(encoding).name not in {"utf-8", "utf-8-sig"}:
        return 1
    try:
        text = decoded(data, encoding)
    except UnicodeDecodeError as error:
        text = error.object[: error.start].decode(encoding, "replace") + "\0"
    except UnicodeError:  # some encodings name no position
        text = "\0"
    before, nul, _ = text.partition("\0")
    return 1 + len(LINE_END.findall(before)) if nul else None


def likely_encoding(data: bytes) -> str | None:
    """Return the encoding in which a file seems to be written; `None` if nothing shows it.

    That is UTF-16 or UTF-32 by its byte order mark, UTF-16 if many bytes are 0, else UTF-8 or an encoding of a byte
    per character: the first one that has no defect in the whole file. A file of which some parts are UTF-8 and others
    are not is in none.
    """
    return next((name for name in _candidates(data) if undecodable_line(data, name) is None), None)


def _candidates(data: bytes) -> Sequence[str]:
    by_its_mark = next((name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), None)
    if by_its_mark is not None:
        return [by_its_mark]
    if b"\0" in data:  # one half of each letter of ASCII
        if data.count(0) < len(data) * _NULS_OF_UTF_16:
            return []
        return ["utf-16-le" if data[1::2].count(0) > data[::2].count(0) else "utf-16-be"]
    is_partly_utf_8 = not data.decode("utf-8", "ignore").isascii()
    return ["utf-8"] if is_partly_utf_8 else ["utf-8", *OF_ONE_BYTE]
