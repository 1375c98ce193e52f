"""Faults as plain values, with a short text form that parses back."""

import re
from collections.abc import Iterator
from inspect import cleandoc
from typing import Any, Literal, Self

import attrs

from agentjobs_async.testing.faults.grammar import (
    check_kind,
    check_option,
    is_answer_option,
    is_status,
    json_or_plain,
    kind_of,
    plain,
    split,
    usage,
)

__all__ = ["Fault", "FaultPlan"]

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
        return 0.0 if amount is None else self.number(amount.name, amount.default)

    def values(self, name: str) -> list[str]:
        """Return every value of an option."""
        return [plain(text) for option, text in self.options if option == name]

    def option(self, name: str) -> str | None:
        """Return the last value of an option; `None` when it has none."""
        return next(reversed(self.values(name)), None)

    def number(self, name: str, default: float) -> float:
        """Return an option as a number."""
        text = self.option(name)
        return default if text is None else float(text)

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


Fault.__doc__ = f"{cleandoc(Fault.__doc__ or '')}\n\n{usage()}\n"


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
