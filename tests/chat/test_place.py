"""Places, and the keys of the jobs that are asked for there."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentjobs_async import InvalidInputError
from agentjobs_async.chat import Place
from agentjobs_async.chat.place import chat_prefix, context_of, job_key, place_of

IDS = st.integers(-(2**63), 2**64 - 1) | st.text(st.sampled_from("ab/%2F:@ #~.é"), min_size=1, max_size=6)
PLACES = st.builds(Place, IDS, IDS, IDS, st.none() | IDS)


@given(place=PLACES)
def test_context(place: Place) -> None:
    """A place comes back from the context of its job as it was, through JSON."""
    assert place_of(json.loads(json.dumps(context_of(place)))) == place


@given(one=PLACES, other=PLACES)
def test_keys(one: Place, other: Place) -> None:
    """Two places have the same key only where chat, user and message are the same."""
    same = all(str(getattr(one, name)) == str(getattr(other, name)) for name in ("chat", "user", "message"))
    assert (job_key(one, one.message) == job_key(other, other.message)) is same


@given(one=PLACES, other=PLACES)
def test_prefixes(one: Place, other: Place) -> None:
    """The keys of a user's jobs in a chat begin with one text, and no others do."""
    same = (str(one.chat), str(one.user)) == (str(other.chat), str(other.user))
    assert job_key(other, other.message).startswith(chat_prefix(one)) is same


def test_plain_key() -> None:
    """The key of usual ids is made of them as they are."""
    place = Place("C1", "U7", "1712345678.123456")
    assert job_key(place, place.message) == "U7/C1/1712345678.123456"


WRONG_IDS = ["", None, True, 1.5, b"7", "a\nb", "\ud800", "x" * 513, pytest.param(10**5000, id="huge"), -(2**64)]


@pytest.mark.parametrize("wrong", WRONG_IDS)
@pytest.mark.parametrize("name", ["chat", "user", "message"])
def test_ids(name: str, wrong: Any) -> None:
    """What can be no id is refused by its name."""
    with pytest.raises(InvalidInputError, match=name):
        Place(**{"chat": 1, "user": 2, "message": 3, name: wrong})


def test_threads() -> None:
    """A thread is an id, or none."""
    assert Place(1, 2, 3).thread is None
    with pytest.raises(InvalidInputError, match="thread"):
        Place(1, 2, 3, thread="")
