"""Faults as plain values, with a short text form that parses back."""

import json
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from inspect import cleandoc
from textwrap import fill
from typing import Any, Literal, Self

import attrs

from agentjobs_async.testing._faults.kinds import KINDS, STATUS, Kind, is_status, kind_of

Operation = Literal["create", "get"]


@attrs.frozen
class Fault:
    """One misbehavior of the service, for one or more requests.

    `Fault.parse` reads its text form and `str` writes it: a kind, options, and the number of requests that meet it::

        kind[:where] [name=value ...] [on=create|get] [agent=yes|no] [xN | forever]

    Options of every kind that sends an answer:

    - ``code=502``: the HTTP status.
    - ``retry-after=2``: a header; repeated, it is sent repeatedly. ``retry-after=date+30`` is the HTTP date 30 s after
      the Date of the answer.
    - ``date=+3600``: shifts the Date header by that many seconds; ``date=none`` removes it.
    - ``location=TEXT``: a header. ``header.NAME=TEXT``: any other.

    A value that contains white space is a JSON string in quotes. Fields of a document are JSON (``null``, ``7``,
    ``"7"``); a value that is not JSON is text. In every value ``{key}``, ``{key:base64}``, ``{key:percent}`` and
    ``{key:json}`` stand for forms of the API key, ``{foreign}`` and ``{base}`` for the addresses of the foreign origin
    and of the emulator.

    Args:
        kind: The kind, or a status as text.
        where: Where in the answer it happens, or which variant of the kind it is.
        options: Names and values as in the text form.
        on: The operation it applies to; `None` applies to both.
        agent: Whether a create that meets it starts the agent; `None` leaves that to the kind, see `starts_agent`.
        times: The number of requests that meet it; `None` for all from then on.

    Raises:
        ValueError: There is no such fault.

    Kinds, with the default of each option (seconds may be fractions):
    """

    kind: str
    where: str = ""
    options: tuple[tuple[str, str], ...] = attrs.field(default=(), kw_only=True)
    on: Operation | None = attrs.field(default=None, kw_only=True)
    agent: bool | None = attrs.field(default=None, kw_only=True)
    times: int | None = attrs.field(default=1, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_kind(self.kind, self.where)
        if self.times is not None and self.times < 1:
            raise ValueError(f"{self._name()} must take at least one request")
        for name, text in self.options:
            check_option(self.kind, name, text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the fault that a text stands for.

        Raises:
            ValueError: The text is no fault, or a plan of several.
        """
        return cls(**_settings(split(text)))

    @property
    def status(self) -> int | None:
        """The HTTP status of its answer; `None` keeps the service's own."""
        text = self.kind if is_status(self.kind) else self.option("code")
        return None if text is None else int(text)

    @property
    def starts_agent(self) -> bool:
        """Whether a create that meets it starts the agent.

        It does unless `agent` says otherwise or the status denies it: a 4xx, or a 3xx other than 303. In particular it
        does when the connection breaks, and under a 5xx.
        """
        if self.agent is not None:
            return self.agent
        status = self.status
        return status is None or status == 303 or not 300 <= status < 500  # noqa: PLR2004 - the ranges of HTTP

    @property
    def amount(self) -> float:
        """The number option of its kind, by default the kind's own; 0 for a kind without."""
        amount = kind_of(self.kind).amount
        return 0.0 if amount is None else float(self.option(amount.name) or amount.default)

    def values(self, name: str) -> list[str]:
        """Return every value of an option."""
        return [plain(text) for option, text in self.options if option == name]

    def option(self, name: str) -> str | None:
        """Return the last value of an option; `None` when it has none."""
        return next(reversed(self.values(name)), None)

    def fields(self) -> Iterator[tuple[str, object]]:
        """Return the fields of a document that it sets."""
        kind = kind_of(self.kind)
        read = json_or_plain if kind.fields else plain
        for name, text in self.options:
            if not is_answer_option(name) and (kind.amount is None or name != kind.amount.name):
                yield name, read(text)

    def __str__(self) -> str:
        words = [self._name(), *(f"{name}={text}" for name, text in self.options)]
        words += [f"on={self.on}"] * (self.on is not None)
        words += [f"agent={'yes' if self.agent else 'no'}"] * (self.agent is not None)
        words += ["forever"] if self.times is None else [f"x{self.times}"] * (self.times != 1)
        return " ".join(words)

    def _name(self) -> str:
        return f"{self.kind}:{self.where}" if self.where else self.kind


@attrs.frozen
class FaultPlan:
    """Faults one after another; in text they are joined by ``then``: ``500 x2 then hang:body then ok forever``.

    A request to which the current step does not apply is answered without a fault, as is every one after the last step.
    """

    steps: tuple[Fault, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the plan that a text stands for.

        Raises:
            ValueError: A step is no fault.
        """
        steps: list[list[str]] = [[]]
        for word in split(text):
            if word == "then":
                steps.append([])
            else:
                steps[-1].append(word)
        return cls(tuple(Fault(**_settings(step)) for step in steps))

    @classmethod
    def of(cls, plan: object) -> "FaultPlan":
        """Return the plan that a text, a fault or a plan stands for.

        Raises:
            ValueError: It is none of these, or the text is no plan.
        """
        if isinstance(plan, FaultPlan):
            return plan
        if isinstance(plan, Fault):
            return FaultPlan((plan,))
        if isinstance(plan, str):
            return FaultPlan.parse(plan)
        raise ValueError(f"a plan is a FaultPlan, a Fault or the text of one, not {plan!r:.100}")

    def __str__(self) -> str:
        return " then ".join(map(str, self.steps))


_CHOICES: dict[str, dict[str, Any]] = {
    "on": {"create": "create", "get": "get"},
    "agent": {"yes": True, "no": False},
}


def _settings(words: list[str]) -> dict[str, Any]:
    """Return the arguments of the fault that some words stand for."""
    if not words:
        raise ValueError("a fault is missing")
    kind, _, where = words[0].partition(":")
    settings: dict[str, Any] = {"kind": kind, "where": where, "options": ()}
    for word in words[1:]:
        name, value = _setting(word)
        settings[name] = (*settings[name], value) if name == "options" else value
    return settings


def _setting(word: str) -> tuple[str, object]:
    """Return the name of the argument that a word after the kind sets, and its value."""
    name, equals, text = word.partition("=")
    if word == "forever":
        return "times", None
    if re.fullmatch("x[0-9]+", word):
        return "times", int(word[1:])
    if not equals:
        raise ValueError(f"not an option: {word}")
    if name not in _CHOICES:
        return "options", (name, text)
    if text not in _CHOICES[name]:
        raise ValueError(f"{name} must be one of {', '.join(_CHOICES[name])}: {text}")
    return name, _CHOICES[name][text]


FAULTS = [f"{name}:{where}".removesuffix(":") for name, kind in KINDS.items() for where in sorted(kind.where or ())]
"""The name of every fault, with its `where`, except statuses and missing fields."""

_MAX_SKEW_SECONDS = 1e9  # more than thirty years, yet every date keeps a year of four digits
_WIDTH = 108  # columns of a help text, which `help` indents
_WORD = re.compile(r'(?:"(?:[^"\\]++|\\.)*+"|[^\s"]++)++')  # possessive: a value may be a document of a megabyte


def split(text: str) -> list[str]:
    """Split a text at white space outside of quotes.

    Raises:
        ValueError: A quote is not closed.
    """
    if '"' in _WORD.sub("", text):
        raise ValueError(f"a quote is open: {text}")
    return _WORD.findall(text)


def check_kind(name: str, where: str) -> None:
    """Raise an error unless the kind exists with this `where`.

    Raises:
        ValueError: It does not; the error names the nearest fault.
    """
    if not ((is_status(name) or name in KINDS) and kind_of(name).has_where(where)):
        fault = f"{name}:{where}" if where else name
        near = ["an HTTP status has three digits"] if name.isdecimal() else []
        near += [f"did you mean {other}?" for other in get_close_matches(fault, FAULTS, 1)]
        raise ValueError("; ".join([f"no such fault: {fault}", *near]))


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


Fault.__doc__ = f"{cleandoc(Fault.__doc__ or '')}\n\n{usage()}\n"
