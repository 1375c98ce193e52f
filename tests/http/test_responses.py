"""What the service's bytes mean."""

import gzip
import json
import pickle
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from agentjobs_async._documents import NO_STATUSES, reader_with
from agentjobs_async._http.responses import Response
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
from agentjobs_async.models import AgentJob, JobRef, JobSource, Seen
from tests.decoders import decoder_of
from tests.http.test_api_key import FORMS, KEY, recognisable
from tests.polled import REF
from tests.rows import failures

# Without the time of day, or each worker of a parallel run would name the cases otherwise.
compressed = partial(gzip.compress, mtime=0)

LIMIT = 100_000
CODEC = decoder_of(KEY, LIMIT)
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


def polled(response: Response, ref: JobRef = REF) -> AgentJob | AgentJobsError:
    found = CODEC.read(response, ref)
    return found.job if isinstance(found, Seen) else found


def bad(response: Response) -> str:
    """Return the reason for which no job could be made of the answer to a poll."""
    error = polled(response)
    assert isinstance(error, ProtocolError), error
    return error.reason


# Requests.


# Documents.


def job_with(**changes: Any) -> AgentJob:
    """Return the job that the answer to a poll shows."""
    job = polled(answer(DOCUMENT | changes))
    assert isinstance(job, AgentJob), job
    return job


def test_job() -> None:
    """Each documented field is found, and the whole document stays in `raw`; id and status are all it takes."""
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
    assert polled(answer({"id": "job_1", "status": "active"})) == AgentJob("job_1", "docs", "active")


OF_OTHER_TYPES = [None, True, 0, 7.5, ["x"], {"a": "b"}]


def test_not_vital() -> None:
    """Without a usable id and status there is no job; the error names the field, and not what a program calls it."""

    def check(name: str, value: object) -> None:
        document = {key: member for key, member in (DOCUMENT | {name: value}).items() if member is not ...}
        error = polled(answer(document))
        assert isinstance(error, ProtocolError)
        assert error.reason == "schema"
        assert name in str(error)
        assert str(error).isprintable()

    assert failures(check, *product(["id", "status"], [*OF_OTHER_TYPES, "", ...])) == {}


def test_no_object() -> None:
    """A job is an object."""

    def check(value: object) -> None:
        assert bad(answer(value)) == "schema"
        with pytest.raises(ProtocolError, match="a job is an object, not "):
            reader_with(NO_STATUSES).job(value, "docs")

    assert failures(check, None, 7, "job", [DOCUMENT]) == {}


LINKS = [
    *("https://example.com", "http://example.com/a?b=c#d", "HTTPS://Example.com:8443/x", "https://[::1]/pull/1"),
    *("https://exämple.com/ü", "https://example.com/@me/a:b", "https://example.com/%0a", "https://u%40x/"),
]
NO_LINKS = [
    *("", "/pull/7", "//example.com/pull", "example.com/pull", "https:", "https://", "https:///pull", "https://:80"),
    *("javascript:alert(1)", "ftp://example.com", "https://me@example.com", "https://@example.com", "https://[::1"),
    *("https://example.com:port", "https://example.com:99999", "https://example.com/a b", " https://example.com"),
    *("https://example.com/\n", "https://exam\tple.com", "https://example.com/\x1b[2J", "https://example.com/\x9b"),
    *("https://example.com/\u202egnp", "https://example.com\\@evil.example", "https://\u2100.example"),
    "https://example.com/\u00a0",
]


def test_links() -> None:
    """A link that is absolute http(s) stays as it is; any other text is no link, and stays in `raw`."""
    jobs = {link: job_with(prLink=link) for link in (*LINKS, *NO_LINKS)}
    assert {link: job.pr_link for link, job in jobs.items()} == {link: link for link in LINKS} | dict.fromkeys(NO_LINKS)
    assert [job.raw["prLink"] for job in jobs.values()] == list(jobs)


MOMENTS = {
    "2026-01-02T03:04:05Z": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02t03:04:05z": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02T03:04:05.678901Z": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "2026-01-02T03:04:05.678Z": datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC),
    "2026-01-02T03:04:05": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02T03:04+05:30": datetime(2026, 1, 1, 21, 34, tzinfo=UTC),
}
NO_MOMENTS = [
    *("2026-01-02", "03:04:05", "20260102", "", "yesterday: noon", "2026-13-02T03:04:05Z", "2026-01-02T03:04:05+99:00"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-01-02T\u0660\u0663:04:05Z"),
]


@pytest.fixture
def _far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose own time is not UTC."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_far_east")
def test_moments() -> None:
    """Moments are aware UTC; one without an offset is UTC; what is none is None."""
    jobs = {text: job_with(createdAt=text, archivedAt=text) for text in (*MOMENTS, *NO_MOMENTS)}
    expected = MOMENTS | dict.fromkeys(NO_MOMENTS)
    assert {text: job.created_at for text, job in jobs.items()} == expected
    assert {text: job.archived_at for text, job in jobs.items()} == expected
    assert {job.created_at.tzinfo for job in jobs.values() if job.created_at is not None} == {UTC}


def test_own_mapping() -> None:
    """A document that a user's own get-job gives may be any mapping; `raw` is a plain dict."""

    class Own(Mapping[str, object]):
        def __getitem__(self, name: str) -> object:
            return DOCUMENT[name]

        def __iter__(self) -> Any:
            return iter(DOCUMENT)

        def __len__(self) -> int:
            return len(DOCUMENT)

    job = reader_with(NO_STATUSES).job(Own(), "docs")
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


def is_sound(result: AgentJob | AgentJobsError) -> bool:
    """Return whether it is a job whose fields are as typed, or an error of ours on one line, and holds no key."""
    if isinstance(result, AgentJobsError):
        assert result.__cause__ is None
        assert result.__context__ is None
        assert KEY not in repr(vars(result)) + str(result)
        assert type(pickle.loads(pickle.dumps(result))) is type(result)  # noqa: S301 - our own bytes
        return str(result).isprintable() and len(str(result).encode()) < 4000
    job = result
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
    assert is_sound(polled(response))
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
    assert is_sound(polled(response))
    assert is_sound(CODEC.create(response, "docs"))


# Content codings.


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


SOUND = json.dumps(DOCUMENT).encode()


def test_coding() -> None:
    """Plain, gzip and both kinds of deflate are read."""

    def check(coding: str, body: bytes) -> None:
        assert polled(answer(body, Content_Encoding=coding)) == job_with()

    rows = [
        (" Identity ", SOUND),
        ("", SOUND),
        ("GZip", compressed(SOUND)),
        ("x-gzip", compressed(SOUND)),
        ("deflate", zlib.compress(SOUND)),
        ("deflate", raw_deflate(SOUND)),
        ("gzip", compressed(b"\xef\xbb\xbf" + SOUND)),
    ]
    assert failures(check, *rows) == {}


def test_lenient_coding() -> None:
    """A gzip of several members or with padding, and names of no coding over a plain body, lose neither job nor id."""

    def check(coding: str, body: bytes) -> None:
        response = answer(body, Content_Encoding=coding)
        assert (polled(response), CODEC.create(response, "docs")) == (job_with(), job_with())

    half, padding = len(SOUND) // 2, bytes(9000)
    rows = [
        ("gzip", compressed(SOUND[:half]) + compressed(SOUND[half:])),
        ("gzip", compressed(SOUND) + compressed(b"")),
        ("gzip", compressed(b"") + padding + compressed(SOUND) + padding),
        ("gzip", compressed(SOUND) + compressed(b"") * 63),
        ("identity, GZip", compressed(SOUND)),
        ("gzip,utf-8", compressed(SOUND)),
        ("deflate", zlib.compress(SOUND) + padding),
        *((name, SOUND) for name in ("", "identity", "None", "identity, none", " ,", "UTF-8", "utf8", "us-ascii")),
        *((name, SOUND) for name in ("iso-8859-1", "windows-1252", "gbk", "Shift_JIS", "euc-kr", "koi8-r")),
    ]
    assert failures(check, *rows) == {}


def test_bomb_of_many_members() -> None:
    """All members of a gzip together decode to no more than the limit."""
    member = compressed(bytes(LIMIT // 10 + 1))
    error = polled(answer(member * 10, Content_Encoding="gzip"))
    assert isinstance(error, ProtocolError)
    assert error.reason == "too_large"


def test_no_coding() -> None:
    """What is cut, false, surplus, of too many members or not asked for is refused, and the coding not quoted."""

    def check(coding: str, body: bytes) -> None:
        error = polled(answer(body, Content_Encoding=coding))
        assert isinstance(error, ProtocolError)
        assert error.reason == "encoding"
        assert "marma" not in str(error).lower()

    rows = [
        ("gzip", SOUND),
        ("gzip", b""),
        ("gzip", compressed(SOUND)[:-1]),
        ("gzip", compressed(SOUND) + b"\0\0{"),
        ("gzip", compressed(SOUND) + compressed(b" ")[:-1]),
        ("gzip", compressed(SOUND) + compressed(b"") * 64),
        ("deflate", zlib.compress(SOUND) * 2),
        ("gzip", compressed(SOUND)[:-8] + bytes(8)),
        ("deflate", compressed(SOUND)),
        ("deflate", zlib.compress(SOUND) + b"{}"),
        ("br", SOUND),
        ("gzip, gzip", compressed(compressed(SOUND))),
        (KEY.lower(), SOUND),
    ]
    assert failures(check, *rows) == {}


def test_limit() -> None:
    """A document may be as long as the limit when decompressed, and not a byte longer; a bomb is never inflated."""
    fits, too_long = (compressed(SOUND + b" " * (size - len(SOUND))) for size in (LIMIT, LIMIT + 1))
    assert CODEC.read(answer(fits, Content_Encoding="gzip"), REF) == Seen(job_with(), is_large=True)
    assert bad(answer(too_long, Content_Encoding="gzip")) == "too_large"
    bombs = {"gzip": compressed(bytes(64 * 1024 * 1024)), "deflate": zlib.compress(bytes(64 * 1024 * 1024))}
    tracemalloc.start()
    try:
        for coding, bomb in bombs.items():
            assert bad(answer(bomb, Content_Encoding=coding)) == "too_large"
            assert polled(answer(bomb, status=500, Content_Encoding=coding)).__class__ is ServerError
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * LIMIT


def test_many_small_containers() -> None:
    """A small body of very many objects is large once it is decoded, and is not kept."""
    body = SOUND[:-1] + b', "all": [' + b",".join([b"{}"] * 250) + b"]}"
    found = CODEC.read(answer(body), REF)
    assert isinstance(found, Seen)
    assert found.is_large


def test_cut_body() -> None:
    """A body that was not read to its end is too large, whatever its beginning holds."""
    assert bad(evolve(answer(), whole=False)) == "too_large"
    assert f"more than {LIMIT} bytes" in str(polled(evolve(answer(), whole=False)))


# Polls.

KINDS: dict[int, type[ResponseError]] = {
    **dict.fromkeys((300, 302, 304, 399, 400, 418, 499), RejectedError),
    **dict.fromkeys((401, 403), AuthError),
    **dict.fromkeys((404, 410), NotFoundError),
    429: RateLimitedError,
}
"""Statuses that are a refusal to polls and creates alike, with their errors."""


def test_poll_statuses() -> None:
    """Each status has its error, a good document beside it or not; any 2xx that may bear a document is an answer."""

    def check(status: int, kind: type[AgentJobsError]) -> None:
        for document in (DOCUMENT, b""):
            error: Any = polled(answer(document, status))
            assert type(error) is kind
            assert getattr(error, "status", status) == status
            assert getattr(error, "reason", "unexpected_status") == "unexpected_status"
            assert error.outcome is None

    strange = (100, 199, 204, 205, 206, 600, 999)
    kinds = KINDS | dict.fromkeys((303, 408), RejectedError) | dict.fromkeys((500, 503, 599), ServerError)
    assert failures(check, *kinds.items(), *((status, ProtocolError) for status in strange)) == {}
    assert {status for status in (200, 201, 203, 207, 299) if polled(answer(status=status)) != job_with()} == set()


def test_bad_answers() -> None:
    """Each kind of bad answer has its reason, and bears the Retry-After and no traceback."""

    def check(reason: str, body: bytes) -> None:
        error = polled(answer(body, Retry_After="9"))
        assert isinstance(error, ProtocolError)
        assert (error.reason, error.retry_after) == (reason, 9.0)
        assert error.__traceback__ is None
        assert error.__context__ is None

    rows = [
        ("not_json", b""),
        ("encoding", b"\xff"),
        ("bad_json", SOUND.replace(b'"model"', b'"id"')),
        ("schema", b'{"error": "no"}'),
        ("wrong_id", SOUND.replace(b"job_1", b"JOB_1")),
        ("wrong_id", SOUND.replace(b"job_1", b"job_1 ")),
    ]
    assert failures(check, *rows) == {}


# Retry-After.


def test_retry_after_on_any_answer() -> None:
    """A valid Retry-After counts on any answer; an invalid one does not."""

    def check(status: int) -> None:
        wished: Any = CODEC.read(answer(status=status, Retry_After="12"), REF)
        assert wished.retry_after == 12.0
        longest: Any = CODEC.read(answer(status=status, Retry_After="0.5", Retry_After_Ms="1250"), REF)
        assert longest.retry_after == 1.25
        for headers in ({}, {"Retry_After": "soon"}, {"Retry_After_Ms": "soon"}):
            plain: Any = CODEC.read(answer(status=status, **headers), REF)
            assert plain.retry_after is None

    assert failures(check, 200, 204, 302, 404, 429, 503, 600) == {}


# Creates: the contract's table.


DOCUMENTS = [DOCUMENT, {"error": "no"}, b""]


def test_rejected() -> None:
    """Every 3xx and 4xx but 303 and 408 is a refusal, and says that no agent was started."""

    def check(status: int, document: Any) -> None:
        error = CODEC.create(answer(document, status, Retry_After="3"), "docs")
        assert isinstance(error, ResponseError)
        assert type(error) is KINDS[status]
        assert (error.status, error.retry_after, error.outcome) == (status, 3.0, CreateOutcome.REJECTED)

    assert failures(check, *product(KINDS, DOCUMENTS)) == {}


def test_unknown() -> None:
    """After 303, 408, any 5xx and a status that is none, nobody knows; a wish to come again changes nothing."""

    def check(status: int, document: Any) -> None:
        error = CODEC.create(answer(document, status, Retry_After="3"), "docs")
        assert isinstance(error, CreateOutcomeUnknownError)
        assert (error.phase, error.status, error.outcome) == ("response", status, CreateOutcome.UNKNOWN)
        assert error.retry_after == 3  # for whoever sends other creates
        assert f"HTTP {status}" in str(error)

    assert failures(check, *product([303, 408, 500, 501, 503, 599, 600, 999, 100, 199], DOCUMENTS)) == {}


def test_created_something() -> None:
    """A 2xx without a job that can be polled leaves the outcome unknown."""

    def check(response: Response) -> None:
        error = CODEC.create(response, "docs")
        assert isinstance(error, CreateOutcomeUnknownError)
        assert (error.phase, error.status) == ("response", response.status)
        assert error.__context__ is None
        assert KEY not in str(error)

    responses = [
        answer({"error": {"message": "quota"}}, 201),
        answer(b"", 204),
        answer(SOUND[:40], 206),
        answer(SOUND, 200, Content_Encoding="gzip"),
        evolve(answer(), whole=False),
        *(answer(DOCUMENT | {"id": job_id}) for job_id in ("", "..", "a\nb", "j" * 513, None, KEY)),
        answer(DOCUMENT | {"status": ""}),
    ]
    assert failures(check, *responses) == {}


# What an error says.


def test_excerpt() -> None:
    """An error quotes what its document says, else the beginning of the text, on one line."""

    def check(document: Any, excerpt: str) -> None:
        for status in (400, 503):
            error = polled(answer(document, status))
            assert isinstance(error, ResponseError)
            assert error.excerpt == excerpt

    rows = [
        ({"message": "too many"}, "too many"),
        ({"detail": "too many"}, "too many"),
        ({"error": {"message": "too many", "code": 7}}, "too many"),
        ({"error": {"error": {"detail": "too many"}}}, "too many"),
        ({"error": "too many", "message": "other"}, "too many"),
        ({"error": "", "message": "too many"}, "too many"),
        ({"error": 7, "message": None, "detail": "too many"}, "too many"),
        (b"plain words\r\n", "plain words"),
        (b"", ""),
        (b"\xff\xfe!", "\ufffd\ufffd!"),
        ({"code": 7}, '{"code": 7}'),
        ([1, 2], "[1, 2]"),
        ({"error": "two\nlines \x1b[31m\u202e"}, r"two\nlines \x1b[31m\u202e"),
        (b'{"error": NaN}', '{"error": NaN}'),
    ]
    assert failures(check, *rows) == {}


def test_excerpt_of_compressed() -> None:
    """A compressed error is read; one that does not decompress still has its status."""
    sound = polled(answer(compressed(b'{"error": "no"}'), 400, Content_Encoding="gzip"))
    assert isinstance(sound, RejectedError)
    assert sound.excerpt == "no"
    broken = polled(answer(compressed(b'{"error": "no"}')[:9], 400, Content_Encoding="gzip"))
    assert isinstance(broken, RejectedError)


def test_excerpt_is_bounded() -> None:
    """What an error quotes takes at most 2 KiB."""

    def check(body: bytes) -> None:
        error = polled(answer(body, 400))
        assert isinstance(error, ResponseError)
        assert 2000 < len(error.excerpt.encode()) <= 2048

    assert failures(check, b"x" * 50_000, b'{"error": "%s"}' % (rb"\n" * 50_000), "é".encode() * 40_000) == {}


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


def test_request_id() -> None:
    """The server's own name for the exchange is found under any usual header, shown bounded and on one line."""

    def check(name: str) -> None:
        error = polled(Response(500, CIMultiDict({name: "req\x1b" + "7" * 500}), b""))
        assert isinstance(error, ServerError)
        assert error.request_id is not None
        assert error.request_id.startswith(r"req\x1b777")
        assert len(error.request_id.encode()) == 200
        assert error.request_id in str(error)

    assert failures(check, "X-Request-Id", "x-request-id", "Request-Id", "X-Correlation-Id") == {}
    for headers in ({}, {"X_Request_Id": ""}):
        error = polled(answer(b"", 500, **headers))
        assert isinstance(error, ServerError)
        assert error.request_id is None


def test_redirect() -> None:
    """A redirect names its target's origin, and no more of it: not the path, not a password, not the key."""

    def check(location: str, target: str) -> None:
        error = polled(answer(b"Moved to marmalade", 302, **({"Location": location} if location else {})))
        assert isinstance(error, RejectedError)
        assert error.excerpt == f"a redirect {target}, not followed"
        assert "marmalade" not in str(error)

    rows = [
        ("https://other.example/path?token=marmalade#x", "to https://other.example"),
        ("https://user:marmalade@other.example:8443/x", "to https://other.example:8443"),
        ("HTTP://[::1]:8080/x", "to http://[::1]:8080"),
        ("//other.example/marmalade", "to the same scheme://other.example"),
        ("/marmalade", "within the same origin or to nowhere"),
        ("", "within the same origin or to nowhere"),
        ("https://[marmalade", "within the same origin or to nowhere"),
        ("https://marmalade:port/", "within the same origin or to nowhere"),
        ("https://evil\x1b\u202e.example/", r"to https://evil\x1b\u202e.example"),
        (f"https://{KEY.replace('/', '%2F').replace('?', '%3F')}.example/", "to https://***.example"),
    ]
    assert failures(check, *rows) == {}


# The key, echoed.


ECHOING_FIELDS: list[Callable[[str], dict[str, Any]]] = [
    lambda echo: {"model": echo},
    lambda echo: {"status": f"paused {echo}"},
    lambda echo: {"prLink": f"https://example.com/?key={echo}"},
    lambda echo: {"source": {"repository": echo, "ref": f"refs/{echo}"}},
    lambda echo: {"createdAt": echo},
    lambda echo: {"extra": [[{"deep": f"<{echo}>"}]]},
    lambda echo: {"extra": {f"x{echo}": {echo: echo}}},
]


def test_echo_in_a_job() -> None:
    """Wherever in a job, and in whatever form a server echoes the key: it is masked."""

    def check(field: int, form: str) -> None:
        document = DOCUMENT | ECHOING_FIELDS[field](FORMS[form](KEY))
        responses = [answer(json.dumps(document, ensure_ascii=ascii_only).encode()) for ascii_only in (True, False)]
        responses.append(answer(compressed(responses[0].body), Content_Encoding="gzip"))
        for job in (read for one in responses for read in (polled(one), CODEC.create(one, "docs"))):
            assert isinstance(job, AgentJob)
            sink = repr(job) + json.dumps(job.raw, ensure_ascii=False) + pickle.dumps(job).decode("latin-1")
            assert "***" in sink
            assert not recognisable(KEY, sink)

    assert failures(check, *product(range(len(ECHOING_FIELDS)), FORMS)) == {}


def test_echo_as_json_escapes() -> None:
    """A key spelt in JSON escapes is found after they are undone."""
    escaped = "".join(f"\\u{ord(character):04X}" for character in KEY)
    job = polled(answer(SOUND.replace(b"large", escaped.encode())))
    assert isinstance(job, AgentJob)
    assert job.model == "***"


def test_echo_as_a_number() -> None:
    """A key of digits only is masked as a number, too; other numbers stay numbers."""
    document = DOCUMENT | {"extra": [1234567890, 12345678901, 5, 0.5, True, None]}
    found = decoder_of("1234567890", LIMIT).read(answer(document), REF)
    assert isinstance(found, Seen)
    assert found.job.raw["extra"] == ["***", "***", 5, 0.5, True, None]


def test_echo_in_an_id() -> None:
    """A job whose id holds the key is none: it could neither be shown nor asked for."""

    def check(echo: str) -> None:
        response = answer(DOCUMENT | {"id": f"job-{echo}"})
        error = polled(response, JobRef("docs", f"job-{echo}"))
        assert isinstance(error, ProtocolError)
        assert error.reason == "schema"
        assert isinstance(CODEC.create(response, "docs"), CreateOutcomeUnknownError)
        assert not recognisable(KEY, repr(error))

    assert failures(check, *((form(KEY),) for form in FORMS.values())) == {}


ECHOES: list[Callable[[str], Response]] = [
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
]


def test_echo_in_an_error() -> None:
    """In no error is any form of the key, wherever the server echoed it."""

    def check(response: int, echo: str) -> None:
        for error in (polled(ECHOES[response](echo)), CODEC.create(ECHOES[response](echo), "docs")):
            assert isinstance(error, AgentJobsError)
            sink = f"{error} {error!r} {vars(error)}" + pickle.dumps(error).decode("latin-1")
            assert not recognisable(KEY, sink)

    assert failures(check, *product(range(len(ECHOES)), [form(KEY) for form in FORMS.values()])) == {}
