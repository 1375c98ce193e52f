"""The words that faults are written in, and which of them go together."""

import json
import re
from difflib import get_close_matches

__all__ = ["check_kind", "check_option", "is_answer_option", "is_status", "json_or_plain", "plain", "split"]

PLACES: dict[str, frozenset[str]] = {
    "ok": frozenset({""}),
    "refuse": frozenset({""}),
    "reset": frozenset({"", "headers", "body", "after"}),
    "close": frozenset({"", "headers", "body", "after"}),
    "hang": frozenset({"", "headers", "body"}),
    "drip": frozenset({""}),
    "short": frozenset({""}),
    "overlong": frozenset({""}),
    "endless": frozenset({"headers", "body", "continues"}),
    "surplus": frozenset({"", "bytes"}),
    "gzip": frozenset({"", "false", "cut", "bomb"}),
    "padded": frozenset({""}),
    "document": frozenset({""}),
    "body": frozenset(
        (
            *("html", "empty", "text", "latin-1", "utf-16", "utf-8", "bom", "surrogate"),
            *("deep", "number", "nan", "twice", "cut", "null", "list", "string", "error"),
        )
    ),
}
"""The places of every kind with a name; `""` is none."""

_FAULTS = [f"{kind}:{place}".removesuffix(":") for kind, places in PLACES.items() for place in sorted(places)]

_OWN_OPTIONS: dict[str, frozenset[str]] = {
    "refuse": frozenset({"for"}),
    "hang": frozenset({"for"}),
    "drip": frozenset({"every"}),
    "endless": frozenset({"every"}),
    "short": frozenset({"by"}),
    "overlong": frozenset({"by"}),
    "gzip": frozenset({"bytes"}),
    "padded": frozenset({"bytes"}),
}
_ANSWER_OPTIONS = frozenset({"code", "retry-after", "date", "location"})
_NUMBERS = {"for": float, "every": float, "after": float, "by": int, "bytes": int, "code": int}
_WORD = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')


def split(text: str) -> list[str]:
    """Split a text at its blanks, but for those in quotes.

    Raises:
        ValueError: A quote is open.
    """
    if '"' in _WORD.sub("", text):
        raise ValueError(f"a quote is open: {text}")
    return _WORD.findall(text)


def is_status(kind: str) -> bool:
    """Tell whether a kind is an HTTP status."""
    return re.fullmatch("[1-9][0-9]{2}", kind) is not None


def is_answer_option(name: str) -> bool:
    """Tell whether an option serves every kind that sends an answer."""
    return name in _ANSWER_OPTIONS or name.startswith("header.")


def check_kind(kind: str, place: str) -> None:
    """Refuse a kind that doesn't exist, or not in this place.

    Raises:
        ValueError: It doesn't.
    """
    if kind == "missing":
        known = bool(place)
    elif is_status(kind):
        known = not place
    else:
        known = place in PLACES.get(kind, ())
    if not known:
        fault = f"{kind}:{place}" if place else kind
        near = get_close_matches(fault, _FAULTS, 1)
        hint = f"did you mean {near[0]}?" if near else "help(Fault) has them all"
        raise ValueError(f"no such fault: {fault}; {hint}")


def check_option(kind: str, name: str, text: str) -> None:
    """Refuse an option that a kind doesn't have, or a value that can't be read.

    Raises:
        ValueError: It doesn't, or can't.
    """
    known = is_answer_option(name) or name in _OWN_OPTIONS.get(kind, ())
    if not (known or kind in {"document", "surplus"} or (is_status(kind) and name == "error")):
        raise ValueError(f"{kind} has no option {name}")
    if split(text) != [text] * bool(text):
        raise ValueError(f"the value of {name} needs quotes: {text}")
    if name in _NUMBERS and not _NUMBERS[name](text) >= 0:
        raise ValueError(f"{name} must not be negative")
    if name == "code" and not is_status(text):
        raise ValueError(f"no such status: {text}")


def plain(text: str) -> str:
    """Read a value that is text, in quotes or without."""
    return str(json.loads(text)) if text.startswith('"') else text


def json_or_plain(text: str) -> object:
    """Read a value that is JSON, or else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
