"""The text form of faults: its words, checked against the table of kinds."""

import json
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from textwrap import fill

from agentjobs_async.testing.faults.kinds import KINDS, STATUS, Kind

__all__ = [
    "FAULTS",
    "check_kind",
    "check_option",
    "is_answer_option",
    "is_status",
    "json_or_plain",
    "kind_of",
    "plain",
    "split",
    "usage",
]

FAULTS = [f"{name}:{where}".removesuffix(":") for name, kind in KINDS.items() for where in sorted(kind.where or ())]
"""The name of every fault, with its `where`, except statuses and missing fields."""

_MAX_SKEW_SECONDS = 1e9  # more than thirty years, yet every date keeps a year of four digits
_WIDTH = 108  # columns of a help text, which `help` indents
_WORD = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')


def split(text: str) -> list[str]:
    """Split a text at white space outside of quotes.

    Raises:
        ValueError: A quote is not closed.
    """
    if '"' in _WORD.sub("", text):
        raise ValueError(f"a quote is open: {text}")
    return _WORD.findall(text)


def is_status(kind: str) -> bool:
    """Return whether a kind is an HTTP status."""
    return re.fullmatch("[1-9][0-9]{2}", kind) is not None


@cache
def kind_of(name: str) -> Kind:
    """Return the row of a kind; the name must be checked: there are some thousand of them, statuses included."""
    return STATUS if is_status(name) else KINDS[name]


def check_kind(name: str, where: str) -> None:
    """Raise an error unless the kind exists with this `where`.

    Raises:
        ValueError: It does not; the error names the nearest fault.
    """
    if not ((is_status(name) or name in KINDS) and kind_of(name).has_where(where)):
        fault = f"{name}:{where}" if where else name
        near = get_close_matches(fault, FAULTS, 1)
        hint = f"did you mean {near[0]}?" if near else "help(Fault) lists them all"
        raise ValueError(f"no such fault: {fault}; {hint}")


def check_option(name: str, option: str, text: str) -> None:
    """Raise an error unless a kind has this option, and the text is a value of it.

    Raises:
        ValueError: The error names the option.
    """
    kind = kind_of(name)
    if not (is_answer_option(option) or kind.has_option(option)):
        raise ValueError(f"{name} has no option {option}")
    if split(text) != [text] * bool(text):
        raise ValueError(f"the value of {option} needs quotes: {text}")
    if kind.amount is not None and option == kind.amount.name:
        kind.amount.check(text)
    if option in _ANSWER_OPTIONS:
        _ANSWER_OPTIONS[option](text)


def is_answer_option(name: str) -> bool:
    """Return whether every kind that sends an answer has this option."""
    return name in _ANSWER_OPTIONS or name.startswith("header.")


def _check_code(text: str) -> None:
    if not is_status(text):
        raise ValueError(f"no such status: {text}")


def _check_date(text: str) -> None:
    if text != "none":
        _check_skew("date", text, text)


def _check_retry_after(text: str) -> None:
    if text.startswith(("date+", "date-")):
        _check_skew("retry-after", text, text.removeprefix("date"))


def _check_skew(option: str, text: str, seconds: str) -> None:
    try:
        near = abs(float(seconds)) <= _MAX_SKEW_SECONDS
    except ValueError:
        near = False
    if not near:
        raise ValueError(f"{option} must be within {_MAX_SKEW_SECONDS:.0f} seconds from now, not {text}")


_ANSWER_OPTIONS: dict[str, Callable[[str], None]] = {
    "code": _check_code,
    "retry-after": _check_retry_after,
    "date": _check_date,
    "location": lambda _text: None,
}
"""The check of each option that all kinds have in common."""


def plain(text: str) -> str:
    """Return the text that a value stands for, in quotes or without."""
    return str(json.loads(text)) if text.startswith('"') else text


def json_or_plain(text: str) -> object:
    """Return the JSON value that a value stands for, or else its text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def usage() -> str:
    """Return the help about every kind."""
    rows = [*KINDS.items(), ("100 to 999", STATUS)]
    return "\n".join(f"- ``{_heading(name, kind)}``\n{_indented(kind.help)}" for name, kind in rows)


def _indented(text: str) -> str:
    return fill(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _heading(name: str, kind: Kind) -> str:
    """Return how a fault of a kind is written."""
    words = [name + _suffix(kind)]
    words += [f"{kind.amount.name}={kind.amount.default:.15g}"] if kind.amount else []
    words += [f"{option}=TEXT" for option in kind.texts]
    words += ["FIELD=VALUE ..."] * kind.fields
    return " ".join(words)


def _suffix(kind: Kind) -> str:
    """Return how the `where` of a kind is written."""
    if kind.where is None:
        return ":FIELD"
    words = "|".join(filter(None, kind.where))
    if not words:
        return ""
    return f"[:{words}]" if "" in kind.where else f":{words}"
