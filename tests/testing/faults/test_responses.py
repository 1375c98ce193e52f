"""The response that a fault makes of an answer."""

import base64
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote

from agentjobs_async.testing import Fault
from agentjobs_async.testing._dialect import ServedDialect
from agentjobs_async.testing._faults.responses import apply_fault, forge, placeholders
from agentjobs_async.testing._messages import Answer, Message
from tests.rows import failures

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = placeholders("emk_1", "http://base", "http://foreign")
JOB = {"id": "job_1", "status": "active", "source": {"repository": "acme/docs", "ref": "main"}, "model": None}
GOOD = Answer(201, JOB)


def faulted(text: str, answer: Answer = GOOD) -> Message:
    return apply_fault(answer, Fault.parse(text), NOW, WORDS, ServedDialect())


def values(message: Message, name: str) -> list[str]:
    return [value for header, value in message.headers if header == name]


def test_good_answer() -> None:
    """Without a fault an answer is sent as JSON, with its length and date."""
    message = faulted("ok", Answer(429, {"error": "no"}, (("Retry-After", "3"),)))
    assert message == Message(
        429,
        (
            ("Content-Type", "application/json; charset=utf-8"),
            ("Content-Length", "15"),
            ("Date", "Thu, 01 Jan 2026 00:00:00 GMT"),
            ("Retry-After", "3"),
        ),
        b'{"error": "no"}',
    )


DOCUMENTS: list[tuple[str, int, dict[str, Any]]] = [
    ("500", 500, {"error": "Internal Server Error"}),
    ('404 error="gone away"', 404, {"error": "gone away"}),
    ("200", 200, JOB),
    ("999", 999, JOB),
    ("ok code=202", 202, JOB),
    ('document id="7" status=paused model={"a":1}', 201, JOB | {"id": "7", "status": "paused", "model": {"a": 1}}),
    ("document source.ref=null", 201, JOB | {"source": {"repository": "acme/docs", "ref": None}}),
    ("document model.name=x", 201, JOB | {"model": {"name": "x"}}),
    ("missing:source.ref", 201, JOB | {"source": {"repository": "acme/docs"}}),
    ("missing:model", 201, {name: value for name, value in JOB.items() if name != "model"}),
]


def test_statuses_and_documents() -> None:
    """A fault replaces the status, the document, or some fields."""

    def check(text: str, status: int, document: dict[str, Any]) -> None:
        message = faulted(text)
        assert (message.status, json.loads(message.body)) == (status, document)
        assert values(message, "Content-Length") == [str(len(message.body))]

    assert failures(check, *DOCUMENTS) == {}


def test_statuses_without_body() -> None:
    """A status that allows no body gets none."""
    lengths: dict[str, list[str]] = {"204": [], "103": [], "101": [], "205": ["0"], "304": ["0"]}
    assert {text: values(faulted(text), "Content-Length") for text in lengths} == lengths
    assert {faulted(text).body for text in lengths} == {b""}


def test_a_status_drops_the_headers_of_the_answer() -> None:
    """A fault that sets the status drops the headers of the service's own answer."""
    assert values(faulted("500", Answer(429, {}, (("Retry-After", "3"),))), "Retry-After") == []


def test_redirects() -> None:
    """A redirect leads to the foreign origin, or to its `location`."""
    targets: dict[str, list[str]] = {"302": ["http://foreign/moved"], "307 location=/x": ["/x"], "404": []}
    assert {text: values(faulted(text), "Location") for text in targets} == targets


def test_retry_after_as_given() -> None:
    """Each `retry-after` is sent as a header, unchanged."""
    assert values(faulted('429 retry-after=2 retry-after="very soon"'), "Retry-After") == ["2", "very soon"]


def test_retry_after_as_a_date() -> None:
    """A Retry-After date is counted from the answer's own Date, even a wrong one."""
    for skew, date in (("", 0), ("date=+3600", 3600), ("date=-60", -60)):
        message = faulted(f"503 retry-after=date+30 {skew}")
        dates = [parsedate_to_datetime(values(message, name)[0]) for name in ("Date", "Retry-After")]
        assert [(moment - NOW).total_seconds() for moment in dates] == [date, date + 30]


def test_no_date() -> None:
    """Without a Date a Retry-After date is counted from the wall clock."""
    message = faulted("503 retry-after=date-30 date=none")
    assert values(message, "Date") == []
    assert values(message, "Retry-After") == ["Wed, 31 Dec 2025 23:59:30 GMT"]


def test_free_headers() -> None:
    """Any other header is sent unchanged, and twice, each with its own value, if it is repeated."""
    assert values(faulted('ok header.X-A="1 2" header.X-B='), "X-A") == ["1 2"]
    assert values(faulted("ok header.X=1 header.X=2"), "X") == ["1", "2"]


def test_content_headers() -> None:
    """The headers claim the type and encoding of the fault."""
    claims: dict[str, tuple[str, list[str]]] = {
        "body:html": ("text/html; charset=utf-8", []),
        "body:text": ("text/plain", []),
        "body:nan": ("application/json; charset=utf-8", []),
        "gzip:false": ("application/json; charset=utf-8", ["gzip"]),
    }
    messages = {text: faulted(text) for text in claims}
    assert {text: values(message, "Content-Type") for text, message in messages.items()} == {
        text: [content] for text, (content, _) in claims.items()
    }
    assert {text: values(message, "Content-Encoding") for text, message in messages.items()} == {
        text: coding for text, (_, coding) in claims.items()
    }


def test_padded_and_bombs_have_their_size() -> None:
    """The size of a padded body is an option; the compressed bomb stays small."""
    assert len(faulted("padded bytes=5000").body) == 5000
    assert len(faulted("padded").body) == 2_097_152
    assert len(faulted("gzip:bomb").body) < 300_000


def test_placeholders() -> None:
    """The key appears in a document and in a header in each of its forms."""
    message = faulted("document a={key} b={key:base64} c={key:percent} d={base} e={foreign}/x header.X={key}")
    document = json.loads(message.body)
    assert (document["a"], document["d"], document["e"]) == ("emk_1", "http://base", "http://foreign/x")
    assert (base64.b64decode(document["b"]), unquote(document["c"])) == (b"emk_1", "emk_1")
    assert "emk" not in document["c"]
    assert values(message, "X") == ["emk_1"]


def test_key_in_json_escapes() -> None:
    """The JSON form of the key consists of escapes, which a decoder reads as the key."""
    body = faulted("500 error={key:json}").body
    assert b"emk_1" not in body
    assert json.loads(body) == {"error": "emk_1"}


def test_forged() -> None:
    """The forged answer is a completed job with the given fields."""
    message = forge(GOOD, Fault.parse("surplus after=1 id=job_7"), NOW, WORDS, ServedDialect())
    forged = {"id": "job_7", "status": "completed", "prLink": "http://foreign/pull/1"}
    assert (message.status, json.loads(message.body)) == (200, JOB | forged)
