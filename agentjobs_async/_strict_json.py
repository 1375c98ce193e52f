"""JSON taken strictly: UTF-8, no NaN, no key twice, no lone surrogate, bounded depth and size in memory."""

import json
import re
from codecs import BOM_UTF8
from math import isfinite
from typing import Any, Final

from agentjobs_async.errors import ProtocolError

__all__ = ["parse"]

_DEEPEST: Final = 64
_MOST_VALUES: Final = 50_000
_LIKE_VALUES: Final = {",": 1, "[": 1, "{": 3}
_HEAVIEST: Final = max(_LIKE_VALUES.values())
_STRING_OR_MORE: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)


class _DefectError(ValueError):
    """Well-formed to a lenient parser, yet not to be trusted."""


def parse(body: bytes) -> Any:
    """Give the document in `body`; a byte order mark is ignored.

    Raises:
        ProtocolError: `encoding` when it is not UTF-8; `not_json` when it does not parse; `bad_json` for NaN and
            infinities, a key twice, a lone surrogate, more than 64 levels, a number of thousands of digits, or so
            many values that they take many times the memory of their text.
    """
    text = _text(body)
    if _is_heavy(text):
        raise ProtocolError("bad_json", "too many values")
    try:
        document = _DECODER.decode(text)
        defect = _hidden_defect(text, document)
    except json.JSONDecodeError as error:
        reason, defect = "not_json", f"{error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        reason, defect = (
            "bad_json",
            str(error) if isinstance(error, _DefectError) else "a number or nesting out of bounds",
        )
    else:
        reason = "bad_json"
    if defect:
        # Raised outside of the except clauses: JSONDecodeError holds the whole body.
        raise ProtocolError(reason, defect)
    return document


def _text(body: bytes) -> str:
    try:
        return body.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        position = error.start
    raise ProtocolError("encoding", f"not UTF-8 at byte {position}")


def _is_heavy(text: str) -> bool:
    """Tell whether the values would take more than some 10 MiB: an empty object of two characters takes 400 bytes."""
    if len(text) * _HEAVIEST <= _MOST_VALUES:
        return False
    if sum(text.count(sign) * weight for sign, weight in _LIKE_VALUES.items()) <= _MOST_VALUES:
        return False
    weight = 0
    for match in _STRING_OR_MORE.finditer(text):
        weight += _LIKE_VALUES.get(match[0], 0)
        if weight > _MOST_VALUES:
            return True
    return False


def _hidden_defect(text: str, document: Any) -> str:
    if text.count("[") + text.count("{") > _DEEPEST and _depth(document) > _DEEPEST:
        return f"more than {_DEEPEST} levels deep"
    if "\\u" in text and _has_surrogates(document):
        return "a lone surrogate"
    return ""


def _depth(document: Any) -> int:
    """Count levels without recursion, which a hostile document could exhaust."""
    depth, level = 0, [document]
    while level := [value for value in level if isinstance(value, dict | list)]:
        depth += 1
        level = [child for parent in level for child in (parent.values() if isinstance(parent, dict) else parent)]
    return depth


def _has_surrogates(document: Any) -> bool:
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _DefectError("a key twice")  # which one is not said: it may be the API key
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _DefectError("a number out of bounds")
    return number


def _refused(constant: str) -> Any:
    raise _DefectError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_without_repeated_keys, parse_float=_finite, parse_constant=_refused
)
