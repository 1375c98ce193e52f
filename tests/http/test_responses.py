"""What the service's bytes mean."""

import base64
import gzip
import json
import pickle
import tracemalloc
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from attrs import evolve
from hypothesis import example, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from agentjobs_async._documents import job_of
from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.responses import Response, ResponseDecoder, prompt_body
from agentjobs_async.errors import (
    AgentJobsError,
    AuthError,
    CreateOutcome,
    CreateOutcomeUnknownError,
    NotFoundError,
    ProtocolError,
    RateLimitedError,
    RejectedError,
    ResponseError,
    ServerError,
)
from agentjobs_async.models import AgentJob, JobRef, JobSource, JobWithRetryAfter
from tests.ids import LEGAL_IDS

# Without the time of day, or each worker of a parallel run would name the cases otherwise.
compressed = partial(gzip.compress, mtime=0)

KEY = "sk_Marma+lade/42?~"
LIMIT = 100_000
CODEC = ResponseDecoder(ApiKey(KEY), LIMIT)
REF = JobRef("docs", "job_1")
DOCUMENT: dict[str, Any] = {
    "id": "job_1",
    "status": "active",
    "source": {"repository": "acme/docs", "ref": "main"},
    "model": "large",
    "prLink": "https://git.example.com/acme/docs/pull/7",
    "createdAt": "2026-01-02T03:04:05Z",
    "archivedAt": None,
}


def answer(document: Any = DOCUMENT, status: int = 200, **headers: str) -> Response:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Response(status, CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}), body)


def polled(response: Response, ref: JobRef = REF) -> AgentJob | JobWithRetryAfter | AgentJobsError:
    return CODEC.read(response, ref)


def bad(response: Response) -> str:
    """Return the reason for which no job could be made of the answer to a poll."""
    error = polled(response)
    assert isinstance(error, ProtocolError), error
    return error.reason


# Requests.


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip))
@example("  spaces stay \n")
@example('quotes " and \\ and \x00 \u2028')
def test_prompt(prompt: str) -> None:
    """A prompt arrives as it is, as UTF-8, in an object that holds nothing else."""
    body = prompt_body(prompt)
    assert json.loads(body.decode("utf-8")) == {"prompt": prompt}


# Documents.


def test_job() -> None:
    """Each documented field is found, and the whole document stays in `raw`."""
    document = DOCUMENT | {"archivedAt": "2026-02-01T00:00:00+02:00", "extra": [1, {"a": None}]}
    job = polled(answer(document))
    assert job == AgentJob(
        "job_1",
        "docs",
        "active",
        JobSource("acme/docs", "main"),
        "large",
        "https://git.example.com/acme/docs/pull/7",
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 1, 31, 22, tzinfo=UTC),
    )
    assert isinstance(job, AgentJob)
    assert job.raw == document
    assert pickle.loads(pickle.dumps(job)) == job  # noqa: S301 - our own bytes


def test_vital() -> None:
    """Id and status are all it takes."""
    assert polled(answer({"id": "job_1", "status": "active"})) == AgentJob("job_1", "docs", "active")


OF_OTHER_TYPES = [None, True, False, 0, 1, 7.5, [], ["x"], {}, {"a": "b"}]


@pytest.mark.parametrize("value", [*OF_OTHER_TYPES, "", ...], ids=repr)
@pytest.mark.parametrize("name", ["id", "status"])
def test_not_vital(name: str, value: object) -> None:
    """Without a usable id and status there is no job; the error names the field, and not what a program calls it."""
    document = {key: member for key, member in (DOCUMENT | {name: value}).items() if member is not ...}
    error = polled(answer(document))
    assert isinstance(error, ProtocolError)
    assert error.reason == "schema"
    assert name in str(error)
    assert str(error).isprintable()


@pytest.mark.parametrize("value", OF_OTHER_TYPES, ids=repr)
@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("model", "model"),
        ("prLink", "pr_link"),
        ("createdAt", "created_at"),
        ("archivedAt", "archived_at"),
    ],
)
def test_nothing_is_coerced(name: str, attribute: str, value: object) -> None:
    """A field of another type is None, leaves the job usable, and stays in `raw`."""
    job = polled(answer(DOCUMENT | {name: value}))
    assert isinstance(job, AgentJob)
    assert getattr(job, attribute) is None
    assert job.raw[name] == value


@pytest.mark.parametrize("value", [*OF_OTHER_TYPES, "main"], ids=repr)
def test_source(value: object) -> None:
    """A source is an object or None, and each of its fields a string or None."""
    job = polled(answer(DOCUMENT | {"source": value}))
    assert isinstance(job, AgentJob)
    assert job.source == (JobSource() if isinstance(value, dict) else None)
    job = polled(answer(DOCUMENT | {"source": {"repository": value, "ref": "main"}}))
    assert isinstance(job, AgentJob)
    assert job.source == JobSource(value if isinstance(value, str) else None, "main")


@pytest.mark.parametrize("value", [None, True, 7, 7.5, "job", [], [DOCUMENT]], ids=repr)
def test_no_object(value: object) -> None:
    """A job is an object."""
    assert bad(answer(value)) == "schema"
    with pytest.raises(ProtocolError, match="a job is an object, not "):
        job_of(value, "docs")


@pytest.mark.parametrize("status", ["paused", "ACTIVE", "Completed ", "\u0000odd\n", " "])
def test_unknown_status(status: str) -> None:
    """An unknown status is kept as the server's own text."""
    job = polled(answer(DOCUMENT | {"status": status}))
    assert isinstance(job, AgentJob)
    assert (job.status, type(job.status)) == (status, str)


@pytest.mark.parametrize(
    "link",
    [
        *("https://example.com", "http://example.com/a?b=c#d", "HTTPS://Example.com:8443/x", "https://[::1]/pull/1"),
        *("https://exämple.com/ü", "https://example.com/@me/a:b", "https://example.com/%0a", "https://u%40x/"),
    ],
)
def test_link(link: str) -> None:
    """A link that is absolute http(s) stays as it is."""
    job = polled(answer(DOCUMENT | {"prLink": link}))
    assert isinstance(job, AgentJob)
    assert job.pr_link == link


@pytest.mark.parametrize(
    "link",
    [
        *(
            "",
            "/pull/7",
            "//example.com/pull",
            "example.com/pull",
            "https:",
            "https://",
            "https:///pull",
            "https://:80",
        ),
        *(
            "javascript:alert(1)",
            "file:///etc/passwd",
            "ftp://example.com",
            "data:text/html,x",
            "ssh://git@example.com",
        ),
        *(
            "https://me@example.com",
            "https://me:secret@example.com",
            "https://@example.com",
            "https://[::1",
            "http://[",
        ),
        *("https://example.com:port", "https://example.com:99999", "https://example.com/a b", " https://example.com"),
        *("https://example.com/\n", "https://exam\tple.com", "https://example.com/\x1b[2J", "https://example.com/\x9b"),
        *("https://example.com/\u202egnp", "https://example.com\\@evil.example", "https://\u2100.example"),
        "https://example.com/\u00a0",
    ],
)
def test_no_link(link: str) -> None:
    """Any other text is no link, leaves the job usable, and stays in `raw`."""
    job = polled(answer(DOCUMENT | {"prLink": link}))
    assert isinstance(job, AgentJob)
    assert job.pr_link is None
    assert job.raw["prLink"] == link


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.678901Z", datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
        ("2026-01-02T03:04:05.678Z", datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)),
        ("2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04+05:30", datetime(2026, 1, 1, 21, 34, tzinfo=UTC)),
        ("2026-01-02", None),
        ("03:04:05", None),
        ("20260102", None),
        ("1767323045", None),
        ("", None),
        ("yesterday: noon", None),
        ("2026-13-02T03:04:05Z", None),
        ("2026-01-02T03:04:05+99:00", None),
        ("0001-01-01T00:00:00+23:59", None),
        ("9999-12-31T23:59:59-23:59", None),
        ("2026-01-02T\u0660\u0663:04:05Z", None),
    ],
)
def test_moment(text: str, moment: datetime | None) -> None:
    """Moments are aware UTC; one without an offset is UTC; what is none is None."""
    job = polled(answer(DOCUMENT | {"createdAt": text, "archivedAt": text}))
    assert isinstance(job, AgentJob)
    assert job.created_at == job.archived_at == moment
    assert moment is None or (job.created_at is not None and job.created_at.tzinfo is UTC)


def test_own_mapping() -> None:
    """A document that a user's own get-job gives may be any mapping; `raw` is a plain dict."""

    class Own(Mapping[str, object]):
        def __getitem__(self, name: str) -> object:
            return DOCUMENT[name]

        def __iter__(self) -> Any:
            return iter(DOCUMENT)

        def __len__(self) -> int:
            return len(DOCUMENT)

    job = job_of(Own(), "docs")
    assert job == polled(answer())
    assert type(job.raw) is dict
    assert job.raw == DOCUMENT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["active", "job_1", KEY]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from([*DOCUMENT, "error", "message", "extra", KEY])
STATUSES = st.sampled_from([100, 200, 201, 202, 204, 206, 299, 302, 303, 400, 401, 404, 408, 429, 500, 503, 600, 999])
HEADERS = st.dictionaries(
    st.sampled_from(["Retry-After", "Date", "Location", "Content-Encoding", "X-Request-Id", "Content-Type"]),
    st.text(max_size=20)
    | st.sampled_from(
        ["gzip", "deflate", "identity", "x-gzip", "br", "5", KEY, f"https://{KEY}@a/", "http://[", "//x"]
    ),
)


def is_sound(result: AgentJob | JobWithRetryAfter | AgentJobsError) -> bool:
    """Return whether it is a job whose fields are as typed, or an error of ours on one line, and holds no key."""
    if isinstance(result, AgentJobsError):
        assert result.__cause__ is None
        assert result.__context__ is None
        assert KEY not in repr(vars(result)) + str(result)
        assert type(pickle.loads(pickle.dumps(result))) is type(result)  # noqa: S301 - our own bytes
        return str(result).isprintable() and len(str(result).encode()) < 4000
    job = result.job if isinstance(result, JobWithRetryAfter) else result
    assert KEY not in repr(job) + json.dumps(job.raw)
    texts = (job.model, job.pr_link)
    moments = (job.created_at, job.archived_at)
    return (
        bool(job.id and job.status)
        and all(text is None or type(text) is str for text in texts)
        and all(moment is None or moment.utcoffset() == timedelta(0) for moment in moments)
        and type(job.raw) is dict
    )


@given(st.dictionaries(FIELDS, JSON, max_size=4), st.sets(FIELDS, max_size=2), STATUSES, HEADERS)
def test_any_document(changes: dict[str, Any], missing: set[str], status: int, headers: dict[str, str]) -> None:
    """A mutated document is a job or an error of ours, to a poll and to a create, and holds no key."""
    document = {name: value for name, value in (DOCUMENT | changes).items() if name not in missing}
    response = Response(status, CIMultiDict(headers), json.dumps(document).encode())
    assert is_sound(CODEC.read(response, REF))
    assert is_sound(CODEC.create(response, "docs"))


@given(
    st.binary(max_size=80) | st.binary(max_size=40).map(compressed) | st.binary(max_size=40).map(zlib.compress),
    STATUSES,
    HEADERS,
    st.booleans(),
)
def test_any_bytes(body: bytes, status: int, headers: dict[str, str], whole: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
    """Any bytes under any headers are a job or an error of ours, and nothing else."""
    response = Response(status, CIMultiDict(headers), body, whole)
    assert is_sound(CODEC.read(response, REF))
    assert is_sound(CODEC.create(response, "docs"))


@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    """A sound answer with a few bytes changed is a job or an error of ours, compressed or not."""
    coding = data.draw(st.sampled_from(["identity", "gzip"]))
    sound = json.dumps(DOCUMENT).encode()
    body = bytearray(compressed(sound) if coding == "gzip" else sound)
    for position in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=4)):
        body[position] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body))) :]
    assert is_sound(polled(answer(bytes(body), Content_Encoding=coding)))


# Content codings.


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


SOUND = json.dumps(DOCUMENT).encode()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("identity", SOUND),
        (" Identity ", SOUND),
        ("", SOUND),
        ("gzip", compressed(SOUND)),
        ("GZip", compressed(SOUND)),
        ("x-gzip", compressed(SOUND)),
        ("deflate", zlib.compress(SOUND)),
        ("deflate", raw_deflate(SOUND)),
        ("gzip", compressed(b"\xef\xbb\xbf" + SOUND)),
    ],
)
def test_coding(coding: str, body: bytes) -> None:
    """Plain, gzip and both kinds of deflate are read."""
    assert isinstance(polled(answer(body, Content_Encoding=coding)), AgentJob)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", SOUND),
        ("gzip", b""),
        ("gzip", compressed(SOUND)[:-1]),
        ("gzip", compressed(SOUND)[:40]),
        ("gzip", compressed(SOUND) + compressed(b" ")),
        ("gzip", compressed(SOUND) + b"\x00"),
        ("gzip", compressed(SOUND)[:-8] + bytes(8)),
        ("gzip", zlib.compress(SOUND)),
        ("deflate", compressed(SOUND)),
        ("deflate", SOUND),
        ("deflate", zlib.compress(SOUND) + b"{}"),
        ("br", SOUND),
        ("gzip, gzip", compressed(compressed(SOUND))),
        (KEY.lower(), SOUND),
    ],
)
def test_no_coding(coding: str, body: bytes) -> None:
    """What is cut, false, of several members, surplus or not asked for is refused, and the coding not quoted."""
    error = polled(answer(body, Content_Encoding=coding))
    assert isinstance(error, ProtocolError)
    assert error.reason == "encoding"
    assert "marma" not in str(error).lower()


@pytest.mark.parametrize(("size", "taken"), [(LIMIT, True), (LIMIT + 1, False)])
def test_limit(size: int, taken: bool) -> None:  # noqa: FBT001 - a table's column
    """A document may be as long as the limit when decompressed, and not a byte longer."""
    body = compressed(SOUND + b" " * (size - len(SOUND)))
    result = polled(answer(body, Content_Encoding="gzip"))
    assert isinstance(result, AgentJob) if taken else bad(answer(body, Content_Encoding="gzip")) == "too_large"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bomb(coding: str) -> None:
    """A bomb is never inflated beyond the limit."""
    packer = zlib.compressobj(9, wbits=31 if coding == "gzip" else 15)
    body = packer.compress(bytes(64 * 1024 * 1024)) + packer.flush()
    tracemalloc.start()
    try:
        assert bad(answer(body, Content_Encoding=coding)) == "too_large"
        assert polled(answer(body, status=500, Content_Encoding=coding)).__class__ is ServerError
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * LIMIT


def test_cut_body() -> None:
    """A body that was not read to its end is too large, whatever its beginning holds."""
    assert bad(evolve(answer(), whole=False)) == "too_large"
    assert f"more than {LIMIT} bytes" in str(polled(evolve(answer(), whole=False)))


# Polls.


@pytest.mark.parametrize("status", [200, 201, 202, 203, 207, 226, 299])
def test_any_success(status: int) -> None:
    """Any 2xx that may bear a document is an answer."""
    assert isinstance(polled(answer(status=status)), AgentJob)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, RejectedError) for status in (300, 301, 302, 303, 304, 305, 307, 308, 399)),
        *((status, RejectedError) for status in (400, 402, 405, 408, 409, 418, 421, 422, 425, 451, 499)),
        *((status, AuthError) for status in (401, 403)),
        *((status, NotFoundError) for status in (404, 410)),
        (429, RateLimitedError),
        *((status, ServerError) for status in (500, 501, 502, 503, 504, 505, 511, 599)),
        *((status, ProtocolError) for status in (100, 101, 103, 199, 204, 205, 206, 600, 999)),
    ],
)
def test_poll_statuses(status: int, kind: type[AgentJobsError]) -> None:
    """Each status has its error, a good document beside it or not."""
    for document in (DOCUMENT, b""):
        error = polled(answer(document, status))
        assert type(error) is kind
        assert getattr(error, "status", status) == status
        assert getattr(error, "reason", "unexpected_status") == "unexpected_status"
        assert error.outcome is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not_json"),
        (b"<html></html>", "not_json"),
        (b"\xff", "encoding"),
        (SOUND.replace(b'"large"', b"NaN"), "bad_json"),
        (SOUND.replace(b'"model"', b'"id"'), "bad_json"),
        (b"{}", "schema"),
        (b'{"error": "no"}', "schema"),
        (SOUND.replace(b"job_1", b"job_2"), "wrong_id"),
        (SOUND.replace(b"job_1", b"JOB_1"), "wrong_id"),
        (SOUND.replace(b"job_1", b"job_1 "), "wrong_id"),
    ],
)
def test_bad_answers(body: bytes, reason: str) -> None:
    """Each kind of bad answer has its reason, and bears the Retry-After and no traceback."""
    error = polled(answer(body, Retry_After="9"))
    assert isinstance(error, ProtocolError)
    assert (error.reason, error.retry_after) == (reason, 9.0)
    assert error.__traceback__ is None
    assert error.__context__ is None


@given(LEGAL_IDS, LEGAL_IDS)
def test_any_legal_job(project_id: str, job_id: str) -> None:
    """A job of any legal id is found by its own ref, and belongs to the project that it was asked for."""
    ref = JobRef(project_id, job_id)
    for ascii_only in (True, False):
        body = json.dumps(DOCUMENT | {"id": job_id}, ensure_ascii=ascii_only).encode()
        job = ResponseDecoder(ApiKey("sk_123456789"), LIMIT).read(answer(body), ref)
        assert isinstance(job, AgentJob)
        assert job.ref == ref


# Retry-After.


@pytest.mark.parametrize("status", [200, 204, 302, 400, 404, 408, 429, 500, 503, 600])
def test_retry_after_on_any_answer(status: int) -> None:
    """A valid Retry-After counts on any answer; an invalid one does not."""
    wished = polled(answer(status=status, Retry_After="12"))
    assert isinstance(wished, JobWithRetryAfter | ResponseError | ProtocolError)
    assert wished.retry_after == 12.0
    for headers in ({}, {"Retry_After": "soon"}):
        plain = polled(answer(status=status, **headers))
        assert plain == polled(answer()) if status == 200 else getattr(plain, "retry_after", "none") is None


def test_wish_forms() -> None:
    """The largest of several wishes counts, and a date against the answer's own Date."""
    now = datetime(2020, 5, 5, tzinfo=UTC)
    later = format_datetime(now + timedelta(seconds=40), usegmt=True)
    headers = CIMultiDict({"Date": format_datetime(now, usegmt=True)})
    for value in ("10", later, "nonsense", "20"):
        headers.add("Retry-After", value)
    assert polled(Response(200, headers, SOUND)) == JobWithRetryAfter(job_of(DOCUMENT, "docs"), 40.0)


# Creates: the contract's table.


@pytest.mark.parametrize("status", [200, 201, 202, 203, 299])
@pytest.mark.parametrize("job_status", ["active", "completed", "failed", "archived", "paused"])
def test_created(status: int, job_status: str) -> None:
    """A 2xx with a good job is a job, whatever its status."""
    job = CODEC.create(answer(DOCUMENT | {"status": job_status}, status, Retry_After="5"), "docs")
    assert isinstance(job, AgentJob)
    assert (job.ref, job.status) == (REF, job_status)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, RejectedError) for status in (300, 301, 302, 304, 305, 307, 308, 399)),
        *((status, RejectedError) for status in (400, 402, 405, 409, 413, 415, 418, 421, 422, 425, 451, 499)),
        *((status, AuthError) for status in (401, 403)),
        *((status, NotFoundError) for status in (404, 410)),
        (429, RateLimitedError),
    ],
)
@pytest.mark.parametrize("document", [DOCUMENT, {"error": "no"}, b""], ids=["job", "error", "empty"])
def test_rejected(status: int, kind: type[ResponseError], document: Any) -> None:
    """Every 3xx and 4xx but 303 and 408 is a refusal, and says that no agent was started."""
    error = CODEC.create(answer(document, status, Retry_After="3"), "docs")
    assert type(error) is kind
    assert isinstance(error, ResponseError)
    assert (error.status, error.retry_after, error.outcome) == (status, 3.0, CreateOutcome.REJECTED)


@pytest.mark.parametrize("status", [303, 408, 500, 501, 502, 503, 504, 505, 511, 599, 600, 999, 100, 101, 103, 199])
@pytest.mark.parametrize("document", [DOCUMENT, {"error": "no"}, b""], ids=["job", "error", "empty"])
def test_unknown(status: int, document: Any) -> None:
    """After 303, 408, any 5xx and a status that is none, nobody knows; a wish to come again changes nothing."""
    error = CODEC.create(answer(document, status, Retry_After="3"), "docs")
    assert isinstance(error, CreateOutcomeUnknownError)
    assert (error.phase, error.status, error.outcome) == ("response", status, CreateOutcome.UNKNOWN)
    assert error.retry_after == 3  # for whoever sends other creates
    assert f"HTTP {status}" in str(error)


@pytest.mark.parametrize(
    "response",
    [
        answer({"error": "quota"}),
        answer({"error": {"message": "quota"}}, 201),
        answer(b"", 201),
        answer(b"", 204),
        answer(b"", 205),
        answer(SOUND[:40], 206),
        answer(b"<html>", 200),
        answer(SOUND, 200, Content_Encoding="gzip"),
        evolve(answer(), whole=False),
        *(answer(DOCUMENT | {"id": job_id}) for job_id in ("", ".", "..", "a\nb", "\x7f", "j" * 513, None, 7, KEY)),
        *(answer(DOCUMENT | {"status": status}) for status in ("", None, 7)),
    ],
)
def test_created_something(response: Response) -> None:
    """A 2xx without a job that can be polled leaves the outcome unknown."""
    error = CODEC.create(response, "docs")
    assert isinstance(error, CreateOutcomeUnknownError)
    assert (error.phase, error.status) == ("response", response.status)
    assert error.__context__ is None
    assert KEY not in str(error)


# What an error says.


@pytest.mark.parametrize(
    ("document", "excerpt"),
    [
        ({"error": "too many"}, "too many"),
        ({"message": "too many"}, "too many"),
        ({"detail": "too many"}, "too many"),
        ({"error": {"message": "too many", "code": 7}}, "too many"),
        ({"error": {"error": {"detail": "too many"}}}, "too many"),
        ({"error": "too many", "message": "other"}, "too many"),
        ({"error": "", "message": "too many"}, "too many"),
        ({"error": 7, "message": None, "detail": "too many"}, "too many"),
        (b"plain words\r\n", "plain words"),
        (b"", ""),
        (b"  ", ""),
        (b"\xff\xfe!", "\ufffd\ufffd!"),
        ({"code": 7}, '{"code": 7}'),
        ([1, 2], "[1, 2]"),
        ("quoted", '"quoted"'),
        ({"error": "two\nlines \x1b[31m\u202e"}, r"two\nlines \x1b[31m\u202e"),
        (b'{"error": NaN}', '{"error": NaN}'),
    ],
)
def test_excerpt(document: Any, excerpt: str) -> None:
    """An error quotes what its document says, else the beginning of the text, on one line."""
    for status in (400, 503):
        error = polled(answer(document, status))
        assert isinstance(error, ResponseError)
        assert error.excerpt == excerpt


def test_excerpt_of_compressed() -> None:
    """A compressed error is read; one that does not decompress still has its status."""
    sound = polled(answer(compressed(b'{"error": "no"}'), 400, Content_Encoding="gzip"))
    assert isinstance(sound, RejectedError)
    assert sound.excerpt == "no"
    broken = polled(answer(compressed(b'{"error": "no"}')[:9], 400, Content_Encoding="gzip"))
    assert isinstance(broken, RejectedError)


@pytest.mark.parametrize("body", [b"x" * 50_000, json.dumps({"error": "\n" * 50_000}).encode(), "é".encode() * 40_000])
def test_excerpt_is_bounded(body: bytes) -> None:
    """What an error quotes takes at most 2 KiB."""
    error = polled(answer(body, 400))
    assert isinstance(error, ResponseError)
    assert 2000 < len(error.excerpt.encode()) <= 2048


def test_excerpt_that_ends_within_the_key() -> None:
    """Where an excerpt is cut within the key, no part of it is shown, however much shorter masking makes the rest."""
    percents = "".join(f"%{ord(character):02x}" for character in KEY)
    filling = percents * (65_536 // len(percents) - 1)
    echo = f"{filling}{'x' * (65_536 - len(filling) - len(KEY) + 1)}{KEY}"
    cut = Response(403, answer(b"", 403).headers, KEY[:-1].encode(), whole=False)
    padded = [answer((space * ((65_536 - 10) // len(space.encode())) + KEY).encode(), 403) for space in " \u3000"]
    for response in (answer(echo.encode(), 403), cut, *padded):
        error = polled(response)
        assert isinstance(error, ResponseError)
        assert KEY[:4] not in error.excerpt
    told = polled(Response(403, answer(b"", 403).headers, f"no such key: {KEY[:-1]}".encode(), whole=False))
    assert isinstance(told, ResponseError)
    assert told.excerpt == "no such key:"


@pytest.mark.parametrize("name", ["X-Request-Id", "x-request-id", "Request-Id", "X-Correlation-Id"])
def test_request_id(name: str) -> None:
    """The server's own name for the exchange is found under any usual header, shown bounded and on one line."""
    headers = CIMultiDict({name: "req\x1b" + "7" * 500})
    error = polled(Response(500, headers, b""))
    assert isinstance(error, ServerError)
    assert error.request_id is not None
    assert error.request_id.startswith(r"req\x1b777")
    assert len(error.request_id.encode()) == 200
    assert error.request_id in str(error)


def test_no_request_id() -> None:
    """Without such a header, or with an empty one, there is none."""
    for headers in ({}, {"X_Request_Id": ""}):
        error = polled(answer(b"", 500, **headers))
        assert isinstance(error, ServerError)
        assert error.request_id is None


@pytest.mark.parametrize(
    ("location", "excerpt"),
    [
        ("https://other.example/path?token=marmalade#x", "a redirect to https://other.example, not followed"),
        ("https://user:marmalade@other.example:8443/x", "a redirect to https://other.example:8443, not followed"),
        ("HTTP://[::1]:8080/x", "a redirect to http://[::1]:8080, not followed"),
        ("//other.example/marmalade", "a redirect to the same scheme://other.example, not followed"),
        ("/marmalade", "a redirect within the same origin or to nowhere, not followed"),
        ("", "a redirect within the same origin or to nowhere, not followed"),
        (None, "a redirect within the same origin or to nowhere, not followed"),
        ("https://[marmalade", "a redirect within the same origin or to nowhere, not followed"),
        ("https://marmalade:port/", "a redirect within the same origin or to nowhere, not followed"),
        ("https://evil\x1b\u202e.example/", r"a redirect to https://evil\x1b\u202e.example, not followed"),
        (f"https://{KEY[:14]}.example/", "a redirect to https://sk_marma+lade, not followed"),
        (f"https://{KEY.replace('/', '%2F').replace('?', '%3F')}.example/", "a redirect to https://***.example"),
    ],
)
def test_redirect(location: str | None, excerpt: str) -> None:
    """A redirect names its target's origin, and no more of it: not the path, not a password, not the key."""
    headers = {} if location is None else {"Location": location}
    error = polled(answer(b"Moved to marmalade", 302, **headers))
    assert isinstance(error, RejectedError)
    assert error.excerpt.startswith(excerpt)
    assert "marmalade" not in str(error)


# The key, echoed.

FORMS: list[Callable[[str], str]] = [
    str,
    lambda key: quote(key, safe=""),
    lambda key: "".join(f"%{ord(character):02x}" for character in key),
    lambda key: "".join(f"\\u{ord(character):04x}" for character in key),
    lambda key: json.dumps(key).replace("/", "\\/"),
    *(lambda key, prefix=prefix: base64.b64encode(prefix + key.encode()).decode() for prefix in (b"", b"a", b"ab")),
    lambda key: base64.urlsafe_b64encode(f"Bearer {key}".encode()).decode(),
]


def traces(key: str = KEY) -> list[str]:
    """Return what no sink may hold: every form of the key, less what its neighbours change of it."""
    return [form(key)[4:-4] for form in FORMS]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "place",
    [
        lambda echo: {"model": echo},
        lambda echo: {"status": f"paused {echo}"},
        lambda echo: {"prLink": f"https://example.com/?key={echo}"},
        lambda echo: {"source": {"repository": echo, "ref": f"refs/{echo}"}},
        lambda echo: {"createdAt": echo},
        lambda echo: {"extra": [[{"deep": f"<{echo}>"}]]},
        lambda echo: {echo: 1},
        lambda echo: {"extra": {f"x{echo}": {echo: echo}}},
    ],
)
def test_echo_in_a_job(
    place: Callable[[str], dict[str, Any]],
    form: Callable[[str], str],
    ascii_only: bool,  # noqa: FBT001 - a table's column
) -> None:
    """Wherever in a job, and in whatever form a server echoes the key: it is masked."""
    document = DOCUMENT | place(form(KEY))
    for response in (
        answer(json.dumps(document, ensure_ascii=ascii_only).encode()),
        answer(compressed(json.dumps(document).encode()), Content_Encoding="gzip"),
    ):
        for job in (polled(response), CODEC.create(response, "docs")):
            assert isinstance(job, AgentJob)
            sink = repr(job) + json.dumps(job.raw, ensure_ascii=False) + pickle.dumps(job).decode("latin-1")
            assert "***" in sink
            assert [trace for trace in traces() if trace in sink] == []


def test_echo_as_json_escapes() -> None:
    """A key spelt in JSON escapes is found after they are undone."""
    escaped = "".join(f"\\u{ord(character):04X}" for character in KEY)
    job = polled(answer(SOUND.replace(b"large", escaped.encode())))
    assert isinstance(job, AgentJob)
    assert job.model == "***"


def test_echo_as_a_number() -> None:
    """A key of digits only is masked as a number, too; other numbers stay numbers."""
    document = DOCUMENT | {"extra": [1234567890, 12345678901, 5, 0.5, True, None]}
    job = ResponseDecoder(ApiKey("1234567890"), LIMIT).read(answer(document), REF)
    assert isinstance(job, AgentJob)
    assert job.raw["extra"] == ["***", "***", 5, 0.5, True, None]


@pytest.mark.parametrize("form", FORMS)
def test_echo_in_an_id(form: Callable[[str], str]) -> None:
    """A job whose id holds the key is none: it could neither be shown nor asked for."""
    response = answer(DOCUMENT | {"id": f"job-{form(KEY)}"})
    error = polled(response, JobRef("docs", f"job-{form(KEY)}"))
    assert isinstance(error, ProtocolError)
    assert error.reason == "schema"
    assert isinstance(CODEC.create(response, "docs"), CreateOutcomeUnknownError)
    assert [trace for trace in traces() if trace in repr(error)] == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "response",
    [
        lambda echo: answer({"error": f"bad key {echo}"}, 401),
        lambda echo: answer({"error": {"message": echo}}, 500),
        lambda echo: answer(f"<p>{echo}</p>".encode(), 400),
        lambda echo: answer(f'{{"broken": "{echo}'.encode(), 400),
        lambda echo: answer(b"x" * 2040 + echo.encode(), 400),
        lambda echo: answer(b"", 500, X_Request_Id=f"r-{echo}"),
        lambda echo: answer(b"", 302, Location=f"https://{echo}.example/"),
        lambda echo: answer(b"", 302, Location=f"https://a.example/{echo}"),
        lambda echo: answer(b"", 200, Content_Encoding=echo),
        lambda echo: answer(echo.encode(), 200),
        lambda echo: answer(f'{{"{echo}": 1, "{echo}": 2}}'.encode(), 200),
        lambda echo: answer({"id": echo}, 200),
        lambda echo: answer(b"", 429, Retry_After=echo),
    ],
)
def test_echo_in_an_error(response: Callable[[str], Response], form: Callable[[str], str]) -> None:
    """In no error is any form of the key, wherever the server echoed it."""
    echo = form(KEY)
    for error in (polled(response(echo)), CODEC.create(response(echo), "docs")):
        assert isinstance(error, AgentJobsError)
        sink = f"{error} {error!r} {vars(error)}" + pickle.dumps(error).decode("latin-1")
        assert [trace for trace in traces() if trace in sink] == []


@settings(max_examples=50)
@given(st.text(st.sampled_from("".join(map(chr, range(0x21, 0x7F)))), min_size=8, max_size=40), st.data())
def test_any_key(key: str, data: st.DataObject) -> None:
    """Any key of eight characters and more is masked in a job and in an error."""
    if key in str(DOCUMENT):
        return
    codec = ResponseDecoder(ApiKey(key), LIMIT)
    form = data.draw(st.sampled_from(FORMS))
    job = codec.read(answer(DOCUMENT | {"model": f"a {form(key)} b"}), REF)
    error = codec.read(answer({"error": f"a {form(key)} b"}, 400), REF)
    assert isinstance(job, AgentJob)
    assert isinstance(error, ResponseError)
    for text in (str(job.model), error.excerpt):
        assert text.startswith("a ")
        assert text.endswith(" b")
        assert "***" in text
        assert form(key) not in text


def test_codec_hides_the_key() -> None:
    """The codec itself does not show the key."""
    assert KEY not in repr(CODEC)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthError), (403, AuthError), (404, NotFoundError), (410, NotFoundError), (429, RateLimitedError)],
)
def test_by_status(status: int, kind: type[ResponseError]) -> None:
    """Statuses of their own meaning have errors of their own."""
    assert type(polled(answer({}, status))) is kind
