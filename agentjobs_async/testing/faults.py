"""Faults as plain values, with a short text form that parses back."""

import re
from collections.abc import Iterator
from typing import Any, Literal, Self

import attrs

from agentjobs_async.testing._grammar import (
    check_kind,
    check_option,
    is_answer_option,
    is_status,
    json_or_plain,
    plain,
    split,
)

__all__ = ["Fault", "FaultPlan"]

Operation = Literal["create", "get"]


@attrs.frozen
class Fault:
    """One way to misbehave, for one request or several.

    Its text form, which `Fault.parse` reads and `str` writes, is a kind, options, and how many requests it takes::

        kind[:place] [name=value ...] [on=create|get] [agent=yes|no] [xN | forever]

    Kinds (seconds may be fractions; the default stands after the sign):

    - ``ok``: answers well; it spaces the others.
    - ``refuse for=1``: takes no request: as soon as its turn comes, the listener is closed for so many seconds and
      the open connections are broken.
    - ``reset`` ``close``: breaks the connection with a RST or a FIN, before the answer; ``:headers`` amid its headers,
      ``:body`` amid its body, ``:after`` right after it.
    - ``hang for=inf``: is silent that long, before the answer; ``:headers`` ``:body`` amid them.
    - ``drip every=1``: sends one byte each so many seconds.
    - ``short by=10``: sends so many bytes fewer than its Content-Length says, and closes.
    - ``overlong by=10``: sends so many bytes more than its Content-Length says.
    - ``endless:headers|body|continues every=0``: never comes to an end; `every` is the pause between the pieces.
    - ``surplus after=0``: sends so many seconds after its answer a second one nobody asked for: a forged, completed
      job; further options set its fields, as in ``document``. ``surplus:bytes`` sends garbage instead.
    - ``100`` to ``999``: answers with this HTTP status; from 300 to 599 with an error document, whose text
      ``error=…`` sets. A redirect leads to the emulator's foreign origin.
    - ``document field=value …``: replaces fields of the document, ``source.ref=null`` inner ones.
    - ``missing:field``: leaves a field of the document out.
    - ``padded bytes=2097152``: makes the document that long with white space.
    - ``body:FORM``: ``html`` ``empty`` ``text``; encodings that lie: ``latin-1`` ``utf-16`` ``utf-8`` (not valid)
      ``bom``; documents that no decoder should trust: ``surrogate`` ``deep`` ``number`` (of 10,000 digits) ``nan``
      ``twice`` (a key) ``cut`` ``null`` ``list`` ``string`` ``error`` (an error document under a good status).
    - ``gzip``: a compressed answer; ``:false`` claims to be one, ``:cut`` ends early, ``:bomb bytes=268435456`` grows
      to that size.

    Options of every kind that sends an answer:

    - ``code=502``: the HTTP status.
    - ``retry-after=2``: a header; given several times, several headers. ``retry-after=date+30`` is the HTTP date 30 s
      after the answer's own Date.
    - ``date=+3600``: the Date header goes so many seconds wrong; ``date=none`` leaves it out.
    - ``location=…``: a header. ``header.NAME=…``: any other.

    A value with blanks in it is a JSON string in quotes. Fields of a document take JSON (``null``, ``7``, ``"7"``), and
    what is not JSON is text. In every value ``{key}``, ``{key:base64}``, ``{key:percent}`` and ``{key:json}`` stand for
    forms of the API key, ``{foreign}`` and ``{base}`` for the address of the foreign origin and of the emulator.

    Args:
        kind: The kind, or a status as text.
        place: Where it strikes, or which form it takes.
        options: Names and values as in the text form.
        on: The operation it waits for; `None` strikes any.
        agent: Whether a create that meets it starts the agent; `None` leaves that to the kind, see `starts_agent`.
        times: How many requests it takes; `None` for ever.

    Raises:
        ValueError: No such fault.
    """

    kind: str
    place: str = ""
    options: tuple[tuple[str, str], ...] = attrs.field(default=(), kw_only=True)
    on: Operation | None = attrs.field(default=None, kw_only=True)
    agent: bool | None = attrs.field(default=None, kw_only=True)
    times: int | None = attrs.field(default=1, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_kind(self.kind, self.place)
        if self.times is not None and self.times < 1:
            raise ValueError(f"{self._name()} must take at least one request")
        for name, text in self.options:
            check_option(self.kind, name, text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form.

        Raises:
            ValueError: The text is no fault, or a plan of several.
        """
        return cls(**_settings(split(text)))

    @property
    def status(self) -> int | None:
        """The HTTP status it answers with; `None` leaves the service's own."""
        text = self.kind if is_status(self.kind) else self.option("code")
        return None if text is None else int(text)

    @property
    def starts_agent(self) -> bool:
        """Whether a create that meets it starts the agent.

        It does unless `agent` says otherwise or the status denies it: a 4xx, or a 3xx other than 303. So it does when
        the connection breaks, and under a 5xx.
        """
        if self.agent is not None:
            return self.agent
        status = self.status
        return status is None or status == 303 or not 300 <= status < 500  # noqa: PLR2004 - the ranges of HTTP

    def values(self, name: str) -> list[str]:
        """Give every value of an option."""
        return [plain(text) for option, text in self.options if option == name]

    def option(self, name: str) -> str | None:
        """Give the last value of an option; `None` when it has none."""
        return next(reversed(self.values(name)), None)

    def number(self, name: str, default: float) -> float:
        """Give an option as a number."""
        text = self.option(name)
        return default if text is None else float(text)

    def fields(self) -> Iterator[tuple[str, object]]:
        """Give the fields of a document that it sets."""
        for name, text in self.options:
            if not is_answer_option(name) and name != "after":
                yield name, json_or_plain(text)

    def __str__(self) -> str:
        words = [self._name(), *(f"{name}={text}" for name, text in self.options)]
        words += [f"on={self.on}"] * (self.on is not None)
        words += [f"agent={'yes' if self.agent else 'no'}"] * (self.agent is not None)
        words += ["forever"] if self.times is None else [f"x{self.times}"] * (self.times != 1)
        return " ".join(words)

    def _name(self) -> str:
        return f"{self.kind}:{self.place}" if self.place else self.kind


@attrs.frozen
class FaultPlan:
    """Faults one after the other; in text they are joined by ``then``: ``500 x2 then hang:body then ok forever``.

    A step that waits for an operation lets others pass. When all steps are done, requests are answered well.
    """

    steps: tuple[Fault, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form.

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
    def of(cls, plan: "FaultPlan | Fault | str") -> "FaultPlan":
        """Give the plan that a text, a fault or a plan stands for."""
        if isinstance(plan, str):
            return FaultPlan.parse(plan)
        return FaultPlan((plan,)) if isinstance(plan, Fault) else plan

    def __str__(self) -> str:
        return " then ".join(map(str, self.steps))


_SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "on": {"create": {"on": "create"}, "get": {"on": "get"}},
    "agent": {"yes": {"agent": True}, "no": {"agent": False}},
}


def _settings(words: list[str]) -> dict[str, Any]:
    if not words:
        raise ValueError("a fault is missing")
    kind, _, place = words[0].partition(":")
    settings: dict[str, Any] = {"kind": kind, "place": place, "options": ()}
    for word in words[1:]:
        name, equals, text = word.partition("=")
        if word == "forever":
            settings["times"] = None
        elif re.fullmatch("x[0-9]+", word):
            settings["times"] = int(word[1:])
        elif not equals:
            raise ValueError(f"not an option: {word}")
        elif name not in _SETTINGS:
            settings["options"] += ((name, text),)
        elif text not in _SETTINGS[name]:
            raise ValueError(f"{name} must be one of {', '.join(_SETTINGS[name])}: {text}")
        else:
            settings |= _SETTINGS[name][text]
    return settings
