"""The API key: checked, hidden, masked."""

import copy
import json
import logging
import pickle
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from itertools import product
from urllib.parse import quote

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async._http.api_key import ApiKey
from agentjobs_async._http.masking import MASK
from agentjobs_async.errors import InvalidInputError
from tests.decoders import credentials_of
from tests.rows import failures

KEY = "sk_Marma+lade/42?~"
ALPHABET = "".join(map(chr, range(0x21, 0x7F)))
HEADER = "Authorization: Bearer "
PARTS_OF_HEADER = [HEADER[start : start + 5] for start in range(len(HEADER) - 4)]
KEYS = st.text(st.sampled_from(ALPHABET), min_size=8, max_size=40).filter(
    lambda key: set(key) - {"*"} and not any(part in key for part in PARTS_OF_HEADER)
)
"""Keys that cannot be mistaken for the texts around them."""


@attrs.frozen
class Holder:
    key: ApiKey


def percent_encoded(text: str) -> str:
    return "".join(f"%{ord(character):02X}" for character in text)


def json_escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda key: quote(key, safe=""),
    "percent of all": percent_encoded,
    "percent in lower case": lambda key: percent_encoded(key).lower(),
    "percent twice": lambda key: quote(percent_encoded(key), safe=""),
    "JSON": lambda key: json.dumps(key)[1:-1],
    "JSON of all": json_escaped,
    "JSON in upper case": lambda key: json_escaped(key).upper().replace("\\U", "\\u"),
    "JSON in JSON": lambda key: json.dumps(json.dumps(json_escaped(key))),
    "JSON with slashes": lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
    "mixed": lambda key: percent_encoded(key[:4]) + json_escaped(key[4:6]) + key[6:],
    "base64": lambda key: b64encode(key.encode()).decode(),
    "base64 after one byte": lambda key: b64encode(b"x" + key.encode() + b"yz").decode(),
    "base64 after two bytes": lambda key: b64encode(b"xy" + key.encode() + b"z").decode(),
    "base64 of the header": lambda key: b64encode(f"{HEADER}{key}".encode()).decode(),
    "base64 for URLs": lambda key: urlsafe_b64encode(f"user:{key}".encode()).decode(),
    "base64 in percent": lambda key: quote(b64encode(key.encode()).decode(), safe=""),
    "base64 in JSON": lambda key: b64encode(key.encode()).decode().replace("/", "\\/"),
}


def recognisable(key: str, text: str) -> bool:
    """Return whether eight characters of the key, or of what base64 makes of them, can be read in `text`."""
    parts = [key]
    for offset in range(3):
        encoded = b64encode(bytes(offset) + key.encode()).decode()[4:-4]
        parts += [encoded, encoded.translate(str.maketrans("+/", "-_"))]
    return any(part[start : start + 8] in text for part in parts for start in range(len(part) - 7))


@given(key=KEYS)
def test_masks(key: str) -> None:
    """The key is masked in every form that a server may echo, which the cheap look finds; the text around it stays."""

    def check(_name: str, form: Callable[[str], str]) -> None:
        text = f"before {form(key)} after"
        masked = credentials_of(key).mask(text)
        assert masked.startswith("before ")
        assert masked.endswith(" after")
        assert MASK in masked
        assert not recognisable(key, masked)
        assert credentials_of(key).may_be_in(text.encode())

    assert failures(check, *FORMS.items()) == {}


def test_hostile_text() -> None:
    """Text made to be searched for long is searched in time proportional to its length: 300 kB must not take hours."""
    for piece in ("\\", "\\s", "%", "%25", "%5c", "25", "s", "u00"):
        text = "\\s%" + piece * 100_000
        assert credentials_of("sk_\\%marmalade").mask(text) == text


def test_what_is_masked() -> None:
    """Each occurrence is masked; a body without a key is told apart; a short key would be found in ordinary words."""
    assert credentials_of(KEY).mask(f"{KEY}{KEY} and {KEY}") == "****** and ***"
    assert not credentials_of(KEY).may_be_in(b'{"id": "job_1"}')
    assert credentials_of(KEY).mask('{"id": "job_1"}') == '{"id": "job_1"}'
    assert credentials_of("active").mask("active") == "active"
    assert not credentials_of("active").may_be_in(b"active")
    assert credentials_of("activeOK").mask("activeOK") == MASK


def test_not_shown() -> None:
    """No way of writing out the key, or what holds it, shows it."""
    holders = [ApiKey(KEY), Holder(ApiKey(KEY))]
    ways: list[Callable[[object], str]] = [repr, str, format, ascii, lambda value: f"{[value]}"]
    shown = [way(holder) for holder in holders for way in ways]
    assert [text for text in shown if "Marma" in text or MASK not in text] == []


def test_not_in_fields() -> None:
    """Neither `vars`, nor `asdict`, nor the attributes' own texts hold the key."""
    key = ApiKey(KEY)
    with pytest.raises(TypeError):
        vars(key)
    assert "Marma" not in repr(attrs.asdict(Holder(key)))
    masker = key.masker
    for part in (key, masker):
        for name in type(part).__slots__ if part is not None else ():
            assert "Marma" not in repr(getattr(part, name))


def test_not_copied() -> None:
    """What holds a key is neither pickled nor deeply copied."""

    def check(duplicate: Callable[[object], object], holder: object) -> None:
        with pytest.raises(TypeError, match="never pickled or copied") as caught:
            duplicate(holder)
        assert "Marma" not in str(caught.value)

    key = ApiKey(KEY)
    assert failures(check, *product([pickle.dumps, copy.deepcopy], [key, Holder(key)])) == {}
    assert failures(check, (copy.copy, key)) == {}


def test_not_in_tracebacks() -> None:
    """A traceback with locals through the key's own frames does not show it."""
    credentials = credentials_of(KEY)
    with pytest.raises(TypeError) as caught:
        credentials.mask(None)  # type: ignore[arg-type]  # fails inside of the masking
    report = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "Marma" not in "".join(report.format())


def test_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Logging whatever holds a key does not show it."""
    with caplog.at_level(logging.DEBUG):
        logging.getLogger(__name__).info("%s %r", ApiKey(KEY), Holder(ApiKey(KEY)))
    assert caplog.text
    assert "Marma" not in caplog.text


REFUSED: list[object] = [
    *("", "marma lade", "marmalade\n", "marma\x00lade", "marmalade\x7f", "mármalade", "marma\ud800"),
    *("Bearer marmalade", "bearer marmalade", "Bearer marma lade"),
    *(None, 7, b"marmalade", ["marmalade"]),
]


def test_refused() -> None:
    """Anything but visible ASCII is refused, by the parameter's name, saying what would be right, without quoting."""

    def check(key: object) -> None:
        words = "(visible ASCII|the bare key)" if isinstance(key, str) else r"a string, not \w+$"
        with pytest.raises(InvalidInputError, match=f"^api_key must be {words}") as caught:
            ApiKey(key)
        assert "marma" not in repr(caught.value)
        assert caught.value.__context__ is None

    assert failures(check, *REFUSED) == {}


def test_header() -> None:
    """The key is handed out as the value of one header; a pasted `Bearer ` is named as what it is."""
    assert ApiKey(KEY).formatted("Bearer {key}") == f"Bearer {KEY}"
    for word in ("Bearer", "bearer"):
        with pytest.raises(InvalidInputError, match="leave out the word Bearer"):
            ApiKey(f"{word} {KEY}")
    assert ApiKey("BearerOfNews").formatted("{key}") == "BearerOfNews"


def test_digest() -> None:
    """A digest depends on the key and on the message, and tells neither."""
    digests = {ApiKey(key).digest_of(message) for key in (KEY, KEY[:-1]) for message in (b"a", b"b")}
    assert len(digests) == 4
    assert ApiKey(KEY).digest_of(b"a") in digests
    assert {len(digest) for digest in digests} == {64}


def test_same_key() -> None:
    """Two objects hold the same key or another one."""
    assert ApiKey(KEY).is_same(ApiKey(KEY))
    assert not ApiKey(KEY).is_same(ApiKey(f"{KEY}x"))
