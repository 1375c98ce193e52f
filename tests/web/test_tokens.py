"""Signed tokens: for one user, of one age, in one path segment, in a button's 64 bytes."""

import re

import pytest
from hypothesis import given
from itsdangerous import TimestampSigner

from agentjobs_async import InvalidInputError, JobRef
from agentjobs_async.web import SignedTokens
from tests.ids import LEGAL_IDS

SECRET = "0123456789abcdef-secret"
REF = JobRef("docs", "job_0123456789abcdef")
TOKENS = SignedTokens(SECRET)


@given(LEGAL_IDS, LEGAL_IDS)
def test_reads_what_it_issued(project_id: str, job_id: str) -> None:
    """A token gives its user the job back, whatever the ids, and nobody without its signature; nothing escapes it."""
    ref = JobRef(project_id, job_id)
    text = TOKENS.issue(ref, user="ada")
    assert TOKENS.read(text, user="ada") == ref
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", text)
    with pytest.raises(InvalidInputError, match="not a job token"):
        JobRef.from_token(text)


def test_fits_a_button() -> None:
    """Ids of together 32 plain characters make at most 64 bytes; every token is 30 bytes longer than a plain one."""
    ref = JobRef("x" * 12, "y" * 20)
    assert len(TOKENS.issue(ref, user=1).encode()) == 64
    assert len(TOKENS.issue(REF, user=1)) == len(REF.to_token(url=True)) + 30


def test_of_another_user() -> None:
    """Nobody reads another user's job; a number is the same user as its digits."""
    text = TOKENS.issue(REF, user=42)
    assert TOKENS.read(text, user="42") == REF
    for user in ("4", "422", "ada", 0):
        with pytest.raises(InvalidInputError, match="not a valid token"):
            TOKENS.read(text, user=user)


def test_of_another_secret() -> None:
    """A token of another secret is refused; the same secret as text and as bytes is one."""
    text = TOKENS.issue(REF, user="ada")
    assert SignedTokens(SECRET.encode()).read(text, user="ada") == REF
    with pytest.raises(InvalidInputError, match="not a valid token"):
        SignedTokens(SECRET[::-1]).read(text, user="ada")


def test_changed() -> None:
    """No character of a token can be changed, none added or left out."""
    text = TOKENS.issue(REF, user="ada")
    changed = [text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :] for at in range(len(text) - 1)]
    for wrong in (*changed, text[:-1], text + "A", "", ".", "x.y.z", REF.to_token(), REF.to_token(url=True), "é"):
        with pytest.raises(InvalidInputError, match="not a valid token"):
            TOKENS.read(wrong, user="ada")
    with pytest.raises(InvalidInputError, match="not a valid token"):
        TOKENS.read(None, user="ada")  # type: ignore[arg-type]  # what a missing parameter gives


def test_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token older than `max_age` is refused; without `max_age` any age is valid."""
    now = TimestampSigner("x").get_timestamp()
    text = TOKENS.issue(REF, user="ada")
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda _signer: now + 3600)
    assert TOKENS.read(text, user="ada") == REF
    assert TOKENS.read(text, user="ada", max_age=4000) == REF
    with pytest.raises(InvalidInputError, match="too old"):
        TOKENS.read(text, user="ada", max_age=3000.5)


def test_arguments() -> None:
    """Wrong arguments are refused, without quoting the secret."""
    with pytest.raises(InvalidInputError, match="at least 16 bytes") as caught:
        SignedTokens("short-secret")
    assert "short-secret" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="secret must be"):
        SignedTokens(None)  # type: ignore[arg-type]  # the wrong type is the test
    with pytest.raises(InvalidInputError, match="JobRef"):
        TOKENS.issue("docs/job_1", user="ada")  # type: ignore[arg-type]  # the wrong type is the test
    for user in ("", None, True, b"ada"):
        with pytest.raises(InvalidInputError, match="user"):
            TOKENS.issue(REF, user=user)  # type: ignore[arg-type]  # the wrong types are the test
    with pytest.raises(InvalidInputError, match="max_age"):
        TOKENS.read(TOKENS.issue(REF, user="ada"), user="ada", max_age=-1)


def test_secret_stays_inside() -> None:
    """The secret is in no repr."""
    assert SECRET not in repr(TOKENS)
