"""The response that results when a fault changes an answer of the service."""

import base64
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime

import attrs

from agentjobs_async.testing._dialect import ServedDialect
from agentjobs_async.testing._faults.bodies import replaced
from agentjobs_async.testing._faults.fault import Fault, plain
from agentjobs_async.testing._faults.kinds import kind_of
from agentjobs_async.testing._messages import Answer, Message

_BODILESS = frozenset({*range(100, 200), 204, 205, 304})  # HTTP allows these no body
_NO_LENGTH = frozenset({*range(100, 200), 204})  # HTTP allows these no Content-Length
_REDIRECTS = range(300, 400)


def placeholders(api_key: str, base_url: str, foreign_url: str) -> dict[str, str]:
    """Return the meaning of each placeholder in the values of a fault."""
    return {
        "{key}": api_key,
        "{key:base64}": base64.b64encode(api_key.encode()).decode(),
        "{key:percent}": "".join(f"%{byte:02X}" for byte in api_key.encode()),
        "{key:json}": "".join(f"\\u{ord(letter):04x}" for letter in api_key),
        "{base}": base_url,
        "{foreign}": foreign_url,
    }


def apply_fault(
    answer: Answer,
    fault: Fault,
    now: datetime,
    words: Mapping[str, str],
    dialect: ServedDialect,
) -> Message:
    """Return the response that results when a fault changes an answer.

    Args:
        answer: The answer of the service.
        fault: The fault that the request meets.
        now: The wall clock.
        words: The placeholders.
        dialect: Where the fields of a job stand.
    """
    answer = _under_status(answer, fault)
    kind = kind_of(fault.kind)
    document = kind.document(answer, fault.where, fault.fields(), dialect)
    message = _message(attrs.evolve(answer, document=document), fault, now, words)
    if not kind.forges:
        return message
    return attrs.evolve(message, surplus=forge(answer, fault, now, words, dialect).to_bytes())


def forge(
    answer: Answer,
    fault: Fault,
    now: datetime,
    words: Mapping[str, str],
    dialect: ServedDialect,
) -> Message:
    """Return the second response that no request asked for: a forged job, from the same arguments."""
    forged = dialect.values(dialect.completed("forged", "{foreign}/pull/1"))
    document = replaced(replaced(answer.document, forged.items(), dialect), fault.fields(), dialect)
    answer = attrs.evolve(answer, status=200, document=document)
    return _message(_under_status(answer, fault), fault, now, words)


def _under_status(answer: Answer, fault: Fault) -> Answer:
    """Return the answer with the status of the fault; the headers belong to the service's own status and go with it."""
    return answer if fault.status is None else Answer(fault.status, answer.document)


def _message(answer: Answer, fault: Fault, now: datetime, words: Mapping[str, str]) -> Message:
    kind, status = kind_of(fault.kind), answer.status
    text = _fill(json.dumps(answer.document), words)
    body = b"" if status in _BODILESS else kind.body(text, fault.where, fault.amount)
    headers = [("Content-Type", kind.content_types.get(fault.where, "application/json; charset=utf-8"))]
    if kind.content_encoding is not None:
        headers.append(("Content-Encoding", kind.content_encoding))
    if status not in _NO_LENGTH:
        headers.append(("Content-Length", str(len(body))))
    headers += [*_headers(fault, status, now), *answer.headers]
    return Message(status, tuple((name, _fill(value, words)) for name, value in headers), body)


def _headers(fault: Fault, status: int, now: datetime) -> Iterator[tuple[str, str]]:
    date = fault.option("date") or "+0"
    if date != "none":
        now += timedelta(seconds=float(date))
        yield "Date", _http_date(now)
    for value in fault.values("retry-after"):
        yield "Retry-After", _retry_after(value, now)
    default = ["{foreign}/moved"] if status in _REDIRECTS else []
    for address in fault.values("location") or default:
        yield "Location", address
    for name, text in fault.options:
        if name.startswith("header."):
            yield name.removeprefix("header."), plain(text)


def _retry_after(value: str, date: datetime) -> str:
    """Return the value of a Retry-After; `date+30` is counted from the answer's own date."""
    if not value.startswith(("date+", "date-")):
        return value
    return _http_date(date + timedelta(seconds=float(value.removeprefix("date"))))


def _http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def _fill(text: str, words: Mapping[str, str]) -> str:
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text
