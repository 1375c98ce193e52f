"""What numbers and callables among the settings must be."""

import functools
from math import inf, nan
from typing import Any

import pytest
from attrs import field, frozen

from agentjobs_async._validation import (
    checked_count,
    checked_instance,
    checked_prompt,
    checked_seconds,
    checked_timeout,
    is_async,
    validator,
)
from agentjobs_async.errors import InvalidInputError
from tests.rows import failures

NO_SECONDS = [-1, -0.001, nan, inf, -inf, True, False, None, "5", b"5", 5j, [5], 10**400, -(10**400)]


def test_seconds() -> None:
    """A finite number above 0 is a number of seconds, and stays as it is; so is 0 where it is legal."""
    for value in (1, 0.001, 1e300, 2**60):
        assert checked_seconds("limit", value) is value
        assert checked_timeout(value) is value
    assert checked_seconds("grace", 0, zero=True) == 0


def test_no_seconds() -> None:
    """Anything else is refused by the parameter's name, with what would be right, on one short line."""

    def check(value: Any) -> None:
        words = r"^limit must be a (finite )?number of seconds above 0, not "
        with pytest.raises(InvalidInputError, match=words) as caught:
            checked_seconds("limit", value)
        assert len(str(caught.value)) < 100
        if value is not None:  # which is a timeout
            with pytest.raises(InvalidInputError, match=r"^timeout must be "):
                checked_timeout(value)

    assert failures(check, *NO_SECONDS, 0, 0.0, -0.0) == {}

    def check_with_zero(value: Any) -> None:
        with pytest.raises(InvalidInputError, match=r"^grace must be a .* from 0 on, not "):
            checked_seconds("grace", value, zero=True)

    assert failures(check_with_zero, *NO_SECONDS) == {}


def test_large_numbers() -> None:
    """A number too long for a sentence is not written out; any other is."""
    with pytest.raises(InvalidInputError, match=r"not one so large$"):
        checked_seconds("limit", 10**400)
    with pytest.raises(InvalidInputError, match=r"not -123456789$"):
        checked_seconds("limit", -123456789)


@frozen
class Settings:
    limit: Any = field(default=1, validator=validator(checked_count, most=9))
    pause: Any = field(default=None, validator=validator(checked_seconds, optional=True, zero=True))


def test_validator() -> None:
    """An attribute is checked under its own name, with the options of its validator."""
    assert Settings(9, 0) == Settings(limit=9, pause=0)
    with pytest.raises(InvalidInputError, match=r"^limit must be at most 9, not 10$"):
        Settings(10)
    with pytest.raises(InvalidInputError, match=r"^pause must be a number of seconds from 0 on, not str$"):
        Settings(pause="1")


def test_validator_of_none() -> None:
    """`None` is checked like any other value, unless it is optional."""

    def check(name: str, value: object) -> None:
        raise LookupError(name, value)

    @frozen
    class Settings:
        limit: Any = field(default=None, validator=validator(check, optional=True))
        pause: Any = field(default=None, validator=validator(check))

    with pytest.raises(LookupError, match=r"^\('pause', None\)$"):
        Settings()


def test_unit() -> None:
    """Another unit is named."""
    with pytest.raises(InvalidInputError, match="a finite number of polls per second above 0, not 0"):
        checked_seconds("per_second", 0, unit="polls per second")


def test_for_ever() -> None:
    """`None` is for ever; infinity is refused with a hint at it."""
    assert checked_timeout(None) is None
    with pytest.raises(InvalidInputError, match="timeout must be finite; None waits for ever"):
        checked_timeout(inf)


def test_no_count() -> None:
    """A count is a whole number of at least its least; a bool is none."""

    def check(value: Any) -> None:
        with pytest.raises(InvalidInputError, match=r"^slots must be a whole number of at least 1, not ") as caught:
            checked_count("slots", value)
        assert len(str(caught.value)) < 100

    assert failures(check, 0, -1, 1.0, True, None, "3", nan, -(10**5000)) == {}


def test_count() -> None:
    """A whole number of at least the least stays as it is."""
    assert checked_count("slots", 1) == 1
    assert checked_count("slots", 0, least=0) == 0
    with pytest.raises(InvalidInputError, match="at least 2, not 1"):
        checked_count("slots", 1, least=2)


def test_instance() -> None:
    """A setting is of its kind or None; anything else, the class too, is refused by its name, not quoted."""
    assert checked_instance("budget", None, dict) is None
    assert checked_instance("budget", {}, dict) == {}
    with pytest.raises(InvalidInputError, match=r"^budget must be of type dict, not str$"):
        checked_instance("budget", "marmalade", dict)
    with pytest.raises(InvalidInputError, match=r"^budget must be of type dict, not the class itself$"):
        checked_instance("budget", dict, dict)


async def coroutine_function() -> None: ...


class AsyncCallable:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...

    def plain(self) -> None: ...


def test_async() -> None:
    """What gives a coroutine when called is told, in whatever form it comes; a plain callable is none of that."""
    coroutines = [coroutine_function, AsyncCallable(), AsyncCallable().method, functools.partial(coroutine_function)]
    plain = [print, AsyncCallable().plain, lambda: None, functools.partial(print)]
    assert [value for value in coroutines if not is_async(value)] == []
    assert [value for value in plain if is_async(value)] == []


def test_no_prompt() -> None:
    """What can't arrive as it is is refused, saying what would be right, with no other error in the chain."""

    def check(prompt: object, words: str) -> None:
        with pytest.raises(InvalidInputError, match=f"^prompt {words}") as caught:
            checked_prompt("prompt", prompt)
        assert caught.value.__context__ is None

    rows = [
        (None, "must be a string, not NoneType"),
        (b"do it", "must be a string, not bytes"),
        ("", "is blank: it must say something"),
        (" \t\r\n\u00a0\u2003", "is blank: it must say something"),
        ("ab\ud800", "is not valid Unicode: character 3 is a lone surrogate"),
    ]
    assert failures(check, *rows) == {}
