"""The table of fault kinds: a row has the options of a kind, its effect on an answer, and its help."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cache
from math import inf, nan
from typing import Any

import attrs

from agentjobs_async.testing._dialect import ServedDialect
from agentjobs_async.testing._faults import bodies, delivery
from agentjobs_async.testing._listener import Exchange
from agentjobs_async.testing._messages import Answer, Message

_BREAKS = ("", "headers", "body", "after")


@attrs.frozen
class Amount:
    """The option of a kind that is a number from 0 on, in seconds or bytes."""

    name: str
    default: float
    whole: bool = attrs.field(default=False, kw_only=True)

    def check(self, text: str) -> None:
        """Raise an error unless `text` is such a number.

        Raises:
            ValueError: It is not; the error names the option.
        """
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            value = nan
        if not value >= 0:
            raise ValueError(f"{self.name} must be a {'whole ' * self.whole}number from 0 on, not {text}")


@attrs.frozen(kw_only=True)
class Kind:
    """A row of the table.

    Args:
        help: What the kind does, for `help(Fault)`.
        where: The words allowed after the colon, `""` for no colon; `None` requires the name of a field.
        amount: Its number option.
        texts: Its options that are text.
        fields: Whether every other option sets a field of the document.
        document: Changes the document, given the answer, `Fault.where`, the fields and the dialect.
        body: Encodes the document's JSON text, given `Fault.where` and the amount.
        deliver: Sends the message, given `Fault.where` and the amount; returns whether the connection stays open.
        content_types: The Content-Type for each `Fault.where` whose body is not JSON.
        content_encoding: The Content-Encoding of the body.
        forges: Whether a second, forged response is made.
        refuses: Whether it closes the listener instead of answering a request.
    """

    help: str
    where: Collection[str] | None = ("",)
    amount: Amount | None = None
    texts: Collection[str] = ()
    fields: bool = False
    document: Callable[[Answer, str, bodies.Fields, ServedDialect], Mapping[str, Any]] = (
        lambda answer, _where, _fields, _dialect: answer.document
    )
    body: Callable[[str, str, float], bytes] = lambda text, _where, _amount: text.encode()
    deliver: Callable[[Exchange, Message, str, float], Awaitable[bool]] = delivery.whole
    content_types: Mapping[str, str] = {}
    content_encoding: str | None = None
    forges: bool = False
    refuses: bool = False

    def has_where(self, where: str) -> bool:
        """Return whether a fault of this kind may have this `where`."""
        return bool(where) if self.where is None else where in self.where

    def has_option(self, name: str) -> bool:
        """Return whether the kind itself has an option."""
        return self.fields or name in self.texts or (self.amount is not None and name == self.amount.name)


KINDS: dict[str, Kind] = {
    "ok": Kind(help="Answers without a fault; it separates other faults."),
    "refuse": Kind(
        amount=Amount("for", 1.0),
        refuses=True,
        help="Needs no request: when its turn comes, the listener closes for that many seconds and open connections "
        "are broken.",
    ),
    "reset": Kind(
        where=_BREAKS,
        deliver=delivery.reset,
        help="Breaks the connection with a RST before the answer, halfway through its headers or body, or after it.",
    ),
    "close": Kind(
        where=_BREAKS, deliver=delivery.close, help="Closes the connection with a FIN at one of those points."
    ),
    "hang": Kind(
        where=("", "headers", "body"),
        amount=Amount("for", inf),
        deliver=delivery.hang,
        help="Sends nothing for that many seconds, before the answer or halfway through its headers or body. An "
        "endless silence ends when the client closes its side.",
    ),
    "drip": Kind(amount=Amount("every", 1.0), deliver=delivery.drip, help="Sends one byte every that many seconds."),
    "short": Kind(
        amount=Amount("by", 10, whole=True),
        deliver=delivery.short,
        help="Sends that many bytes fewer than its Content-Length, which is raised for a shorter body, and closes.",
    ),
    "overlong": Kind(
        amount=Amount("by", 10, whole=True),
        deliver=delivery.overlong,
        help="Sends that many bytes more than its Content-Length.",
    ),
    "endless": Kind(
        where=delivery.ENDLESS,
        amount=Amount("every", 0.0),
        deliver=delivery.endless,
        help="Never ends; `every` is the pause between pieces in seconds.",
    ),
    "surplus": Kind(
        where=("", "bytes"),
        amount=Amount("after", 0.0),
        fields=True,
        deliver=delivery.surplus,
        forges=True,
        help="Sends an unrequested second answer that many seconds after the first: a forged, completed job with "
        "these fields, or bytes that are not HTTP.",
    ),
    "document": Kind(
        fields=True,
        document=lambda answer, _where, fields, dialect: bodies.replaced(answer.document, fields, dialect),
        help="Replaces fields of the document; ``source.ref=null`` replaces an inner one. A field of a job is replaced "
        "where the dialect has it.",
    ),
    "missing": Kind(
        where=None,
        document=lambda answer, where, _fields, dialect: bodies.without(answer.document, where, dialect),
        help="Removes a field from the document.",
    ),
    "padded": Kind(
        amount=Amount("bytes", 2_097_152, whole=True),
        body=lambda text, _where, size: text.encode().ljust(int(size)),
        help="Pads the document to that length with white space.",
    ),
    "body": Kind(
        where=bodies.FORMS,
        body=lambda text, where, _amount: bodies.FORMS[where](text),
        content_types={"html": "text/html; charset=utf-8", "text": "text/plain"},
        help="Sends another body: no JSON; an encoding that is not UTF-8 (``utf-8`` is invalid UTF-8); a document with "
        "a lone surrogate, deep nesting, a number of 10,000 digits, NaN or a repeated key; one that is cut; another "
        "JSON value; an error document with the status of success.",
    ),
    "gzip": Kind(
        where=bodies.GZIP_FORMS,
        amount=Amount("bytes", 268_435_456, whole=True),
        body=lambda text, where, size: bodies.GZIP_FORMS[where](text, int(size)),
        content_encoding="gzip",
        help="Compresses the answer; ``:false`` only says so, ``:cut`` ends early, ``:bomb`` expands by that many "
        "bytes of white space.",
    ),
}
"""Every kind that has a name."""

STATUS = Kind(
    texts=("error",),
    document=bodies.error_document,
    help="Answers with this HTTP status, from 300 to 599 with an error document. A redirect leads to the emulator's "
    "foreign origin.",
)
"""Every HTTP status from 100 to 999."""


def is_status(kind: str) -> bool:
    """Return whether a kind is an HTTP status."""
    return re.fullmatch("[1-9][0-9]{2}", kind) is not None


@cache
def kind_of(name: str) -> Kind:
    """Return the row of a kind; the name must be checked: there are some thousand of them, statuses included."""
    return STATUS if is_status(name) else KINDS[name]
