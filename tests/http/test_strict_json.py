"""JSON read strictly."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._http.strict_json import parse
from agentjobs_async.errors import ProtocolError
from tests.rows import failures

CANARY = b"canary-of-the-body"

REFUSED: list[tuple[str, bytes]] = [
    ("not_json", b""),
    ("not_json", b"<html>canary-of-the-body</html>"),
    ("not_json", b'{"a": 1'),
    ("not_json", b'{"a": 1} {"b": 2}'),
    ("not_json", b'["a\nb"]'),
    ("not_json", CANARY),
    ("encoding", b'{"a": "\xff"}'),
    ("encoding", b'"\xed\xa0\x80"'),
    ("encoding", '{"a": 1}'.encode("utf-16")),
    ("bad_json", b'{"%s": NaN}' % CANARY),
    ("bad_json", b'{"a": [Infinity]}'),
    ("bad_json", b"-Infinity"),
    ("bad_json", b"1e400"),
    ("bad_json", b"[-1e999]"),
    ("bad_json", b"7" * 10_000),
    ("bad_json", b'{"a": 1, "a": 1}'),
    ("bad_json", b'[{"b": {"a": 1, "\\u0061": 2}}]'),
    ("bad_json", b'{"%s": 1, "%s": 2}' % (CANARY, CANARY)),  # a server may echo the API key there
    ("bad_json", b'"\\ud800"'),
    ("bad_json", b'{"\\udc00x": 1}'),
    ("bad_json", b'["\\udc00\\ud800"]'),
    ("bad_json", b"[" * 65 + b"]" * 65),
    ("bad_json", b"[{}," + b"[" * 64 + b"]" * 65),
    ("bad_json", b'{"a":' * 65 + b"1" + b"}" * 65),
    ("bad_json", b"[" * 500_000 + b"]" * 500_000),
    ("bad_json", b"[{}" + b",{}" * 20_000 + b"]"),  # 60 kB, which would take 8 MB
    ("bad_json", b"[0" + b",0" * 60_000 + b"]"),
]


def test_refused() -> None:
    """What is not to be trusted is refused with its reason, on one line; no exception in the chain holds the body."""

    def check(reason: str, body: bytes) -> None:
        with pytest.raises(ProtocolError) as caught:
            parse(body)
        assert caught.value.reason == reason
        assert str(caught.value).isprintable()
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert CANARY.decode() not in str(caught.value)

    assert failures(check, *REFUSED) == {}


def test_many_members() -> None:
    """A wide document with one key twice is refused with work in proportion to its length."""
    members = b",".join(b'"%d":0' % number for number in range(40_000))
    with pytest.raises(ProtocolError, match="a key twice"):
        parse(b"{%s,%s}" % (members, b'"39999":0'))


ACCEPTED: dict[bytes, Any] = {
    b'\xef\xbb\xbf{"a": 1}': {"a": 1},
    b'"\\ud83d\\ude80"': "\U0001f680",
    b'"\\\\ud800"': "\\ud800",
    b'{"a": {"a": 1}}': {"a": {"a": 1}},
    b"[1.5e300, -0, 12345678901234567890]": [1.5e300, 0, 12345678901234567890],
    b"null": None,
    b'["' + b"[" * 100 + b'"]': ["[" * 100],
    b'["' + b"{," * 50_000 + b'"]': ["{," * 50_000],
    b"[{}" + b",{}" * 100 + b"]": [{}] * 101,
}
DEEP = [b"[" * 64 + b"]" * 64, b"[{}," + b"[" * 63 + b"]" * 64, b'[{"a":' + b"[" * 62 + b"7" + b"]" * 62 + b"},[]]"]


def test_accepted() -> None:
    """Sound JSON is accepted: with a byte order mark, surrogate pairs, big numbers, 64 levels."""
    assert {body: parse(body) for body in ACCEPTED} == ACCEPTED
    assert [parse(body) for body in DEEP] == [json.loads(body) for body in DEEP]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_same_as_the_standard_library(document: Any, ascii_only: bool) -> None:  # noqa: FBT001 - hypothesis fills it
    """What the standard library writes of sound values comes back the same."""
    text = json.dumps(document, ensure_ascii=ascii_only)
    assert parse(text.encode()) == document


@given(st.binary(max_size=60) | st.text(st.sampled_from('[]{},:"\\ud8NaInfity-+.e0123 '), max_size=40).map(str.encode))
def test_any_bytes(body: bytes) -> None:
    """Any bytes are a document of finite numbers and sound text, or a ProtocolError, and nothing else."""
    try:
        document = parse(body)
    except ProtocolError:
        return
    assert json.dumps(document, allow_nan=False, ensure_ascii=False).encode()
    assert not isinstance(document, float) or math.isfinite(document)
