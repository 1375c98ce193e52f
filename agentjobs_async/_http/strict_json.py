"""Strict JSON: UTF-8, no NaN, no repeated key, no lone surrogate, bounded depth and size in memory."""

import json
import re
from codecs import BOM_UTF8
from math import isfinite
from typing import Any, Final

from agentjobs_async._validation import has_surrogates
from agentjobs_async.errors import ProtocolError, ProtocolReason

_MAX_DEPTH: Final = 64  # levels; a job has three
_MAX_VALUES: Final = 50_000  # some 10 MiB in memory; a job has a dozen
_WEIGHTS: Final = {",": 1, "[": 1, "{": 3}  # in values: an empty object takes as much memory as three numbers
_MAX_WEIGHT: Final = max(_WEIGHTS.values())
_STRING_OR_SIGN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)


class _DefectError(ValueError):
    """The document parses, but breaks a rule of this module."""


def parse(body: bytes) -> Any:
    """Return the document in `body`; a byte order mark is ignored.

    Raises:
        ProtocolError: With the reason `encoding`: `body` is not UTF-8. `not_json`: it does not parse. `bad_json`: it
            has NaN, an infinity, a repeated key, a lone surrogate, more than 64 levels, a number of thousands of
            digits, or more than some 50,000 values, which take many times the memory of their text.
    """
    text = _text(body)
    if _is_heavy(text):
        raise ProtocolError("bad_json", "too many values")
    reason: ProtocolReason = "bad_json"
    try:
        document = _DECODER.decode(text)
        defect = _hidden_defect(text, document)
    except json.JSONDecodeError as error:
        reason, defect = "not_json", f"{error.msg} at character {error.pos}"
    except (ValueError, RecursionError) as error:
        defect = str(error) if isinstance(error, _DefectError) else "a number or nesting out of bounds"
    if defect:
        # Raised outside the except clauses: as its context, JSONDecodeError would keep the whole body alive.
        raise ProtocolError(reason, defect)
    return document


def _text(body: bytes) -> str:
    try:
        return body.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        position = error.start
    raise ProtocolError("encoding", f"not UTF-8 at byte {position}")


def _is_heavy(text: str) -> bool:
    """Return whether the values would take more than some 10 MiB: `{}`, two characters, takes 400 bytes.

    The cheap upper bounds come first; only a text that exceeds them is scanned, which leaves out its strings.
    """
    if len(text) * _MAX_WEIGHT <= _MAX_VALUES:
        return False
    if sum(text.count(sign) * weight for sign, weight in _WEIGHTS.items()) <= _MAX_VALUES:
        return False
    weight = 0
    for match in _STRING_OR_SIGN.finditer(text):
        weight += _WEIGHTS.get(match[0], 0)
        if weight > _MAX_VALUES:
            return True
    return False


def _hidden_defect(text: str, document: Any) -> str:
    if text.count("[") + text.count("{") > _MAX_DEPTH and _depth(document) > _MAX_DEPTH:
        return f"more than {_MAX_DEPTH} levels deep"
    if "\\u" in text and has_surrogates(document):
        return "a lone surrogate"
    return ""


def _depth(document: Any) -> int:
    """Return the number of levels, counted without recursion: a hostile document could exhaust the stack."""
    depth, level = 0, [document]
    while level := [value for value in level if isinstance(value, dict | list)]:
        depth += 1
        level = [child for parent in level for child in (parent.values() if isinstance(parent, dict) else parent)]
    return depth


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _DefectError("a key twice")  # it is not named: it may be the API key, echoed
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _DefectError("a number out of bounds")
    return number


def _refused(constant: str) -> Any:
    raise _DefectError(f"{constant} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_without_repeated_keys, parse_float=_finite, parse_constant=_refused
)
