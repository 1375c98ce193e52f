"""What a fault makes of an answer, before anything is sent."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

import attrs

from agentjobs_async.testing._answers import Answer, Message, reason
from agentjobs_async.testing._bodies import CONTENT_TYPES, FORMS, compressed, padded
from agentjobs_async.testing._grammar import is_status, plain
from agentjobs_async.testing.faults import Fault

__all__ = ["forge", "placeholders", "spoil"]

_BOMB = 268_435_456
_PADDED = 2_097_152
_BODILESS = frozenset({*range(100, 200), 204, 205, 304})
_NO_LENGTH = frozenset({*range(100, 200), 204})
_REDIRECTS = range(300, 400)
_ERRORS = range(300, 600)
_FORGED = {"id": "job_forged", "status": "completed", "prLink": "{foreign}/pull/1"}


def placeholders(api_key: str, base_url: str, foreign_url: str) -> dict[str, str]:
    """Give what stands for what in the values of a fault."""
    return {
        "{key}": api_key,
        "{key:base64}": base64.b64encode(api_key.encode()).decode(),
        "{key:percent}": "".join(f"%{byte:02X}" for byte in api_key.encode()),
        "{key:json}": "".join(f"\\u{ord(letter):04x}" for letter in api_key),
        "{base}": base_url,
        "{foreign}": foreign_url,
    }


def spoil(answer: Answer, fault: Fault, now: datetime, words: Mapping[str, str]) -> Message:
    """Give the response that a fault makes of an answer.

    Args:
        answer: What the service means to say.
        fault: What is done to it.
        now: The wall clock.
        words: The placeholders.
    """
    return _message(answer, _document(answer, fault), fault, now, words)


def forge(answer: Answer, fault: Fault, now: datetime, words: Mapping[str, str]) -> Message:
    """Give the second response that nobody asked for: the same arguments, a forged job."""
    document = _replaced({**answer.document, **_FORGED}, fault.fields())
    return _message(attrs.evolve(answer, status=200), document, fault, now, words)


def _message(
    answer: Answer, document: Mapping[str, Any], fault: Fault, now: datetime, words: Mapping[str, str]
) -> Message:
    status = fault.status or answer.status
    body = b"" if status in _BODILESS else _body(_fill(json.dumps(document), words), fault)
    form = fault.place if fault.kind == "body" else ""
    headers = [("Content-Type", CONTENT_TYPES.get(form, "application/json; charset=utf-8"))]
    if fault.kind == "gzip":
        headers.append(("Content-Encoding", "gzip"))
    if status not in _NO_LENGTH:
        headers.append(("Content-Length", str(len(body))))
    headers += _headers(fault, status, now)
    headers += [header for header in answer.headers if fault.status is None]
    return Message(status, tuple((name, _fill(value, words)) for name, value in headers), body)


def _document(answer: Answer, fault: Fault) -> Mapping[str, Any]:
    if is_status(fault.kind) and int(fault.kind) in _ERRORS:
        return {"error": fault.option("error") or reason(int(fault.kind))}
    if fault.kind == "document":
        return _replaced(answer.document, fault.fields())
    if fault.kind == "missing":
        return _without(answer.document, fault.place)
    return answer.document


def _replaced(document: Mapping[str, Any], fields: Iterable[tuple[str, object]]) -> dict[str, Any]:
    replaced = dict(document)
    for name, value in fields:
        outer, dot, inner = name.partition(".")
        replaced[outer] = {**_inner(replaced, outer), inner: value} if dot else value
    return replaced


def _without(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    outer, dot, inner = name.partition(".")
    if dot:
        return {**document, outer: _without(_inner(document, outer), inner)}
    return {field: value for field, value in document.items() if field != outer}


def _inner(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _body(text: str, fault: Fault) -> bytes:
    match fault.kind:
        case "body":
            return FORMS[fault.place](text)
        case "gzip":
            return compressed(fault.place, text, int(fault.number("bytes", _BOMB)))
        case "padded":
            return padded(text, int(fault.number("bytes", _PADDED)))
        case _:
            return text.encode()


def _headers(fault: Fault, status: int, now: datetime) -> Iterator[tuple[str, str]]:
    date = fault.option("date") or "+0"
    if date == "none":
        date = "+0"
    else:
        yield "Date", _http_date(now, date)
    for wish in fault.values("retry-after"):
        skewed = now + timedelta(seconds=float(date))
        yield "Retry-After", _http_date(skewed, wish[4:]) if wish[:5] in {"date+", "date-"} else wish
    default = ["{foreign}/moved"] if status in _REDIRECTS else []
    for place in fault.values("location") or default:
        yield "Location", place
    for name, text in fault.options:
        if name.startswith("header."):
            yield name.removeprefix("header."), plain(text)


def _http_date(now: datetime, seconds: str) -> str:
    return format_datetime(now + timedelta(seconds=float(seconds)), usegmt=True)


def _fill(text: str, words: Mapping[str, str]) -> str:
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text
