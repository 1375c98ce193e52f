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

NO_SECONDS = [-1, -0.001, nan, inf, -inf, True, False, None, "5", b"5", 5j, [5], 10**400, -(10**400)]


@pytest.mark.parametrize("value", [1, 0.001, 1e300, 2**60])
def test_seconds(value: float) -> None:
    """A finite number above 0 is a number of seconds, and stays as it is."""
    assert checked_seconds("limit", value) is value
    assert checked_timeout(value) is value


@pytest.mark.parametrize("value", [*NO_SECONDS, 0, 0.0, -0.0], ids=lambda value: repr(value)[:9])
def test_no_seconds(value: Any) -> None:
    """Anything else is refused by the parameter's name, with what would be right, on one short line."""
    with pytest.raises(
        InvalidInputError, match=r"^limit must be a (finite )?number of seconds above 0, not "
    ) as caught:
        checked_seconds("limit", value)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("value", NO_SECONDS, ids=lambda value: repr(value)[:9])
def test_zero(value: Any) -> None:
    """Where 0 is legal, it is said so, and nothing else becomes legal."""
    assert checked_seconds("grace", 0, zero=True) == 0
    with pytest.raises(InvalidInputError, match=r"^grace must be a .* from 0 on, not "):
        checked_seconds("grace", value, zero=True)


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


@pytest.mark.parametrize("optional", [True, False])
def test_validator_of_none(*, optional: bool) -> None:
    """`None` is checked like any other value, unless it is optional."""
    checked: list[object] = []

    def check(name: str, value: object) -> None:
        assert name == "limit"
        checked.append(value)

    @frozen
    class Owner:
        limit: Any = field(validator=validator(check, optional=optional))

    Owner(None)
    assert checked == [None] * (not optional)


def test_unit() -> None:
    """Another unit is named."""
    with pytest.raises(InvalidInputError, match="a finite number of polls per second above 0, not 0"):
        checked_seconds("per_second", 0, unit="polls per second")


@pytest.mark.parametrize("value", [*NO_SECONDS[:3], *NO_SECONDS[4:7], *NO_SECONDS[8:], 0], ids=lambda v: repr(v)[:9])
def test_no_timeout(value: Any) -> None:
    """A timeout is a number of seconds above 0; the parameter is named."""
    with pytest.raises(InvalidInputError, match=r"^timeout must be "):
        checked_timeout(value)


def test_for_ever() -> None:
    """`None` is for ever; infinity is refused with a hint at it."""
    assert checked_timeout(None) is None
    with pytest.raises(InvalidInputError, match="timeout must be finite; None waits for ever"):
        checked_timeout(inf)


@pytest.mark.parametrize(
    "value", [0, -1, 1.0, True, None, "3", nan, -(10**5000)], ids=lambda value: type(value).__name__
)
def test_no_count(value: Any) -> None:
    """A count is a whole number of at least its least; a bool is none."""
    with pytest.raises(InvalidInputError, match=r"^places must be a whole number of at least 1, not ") as caught:
        checked_count("places", value)
    assert len(str(caught.value)) < 100


def test_count() -> None:
    """A whole number of at least the least stays as it is."""
    assert checked_count("places", 1) == 1
    assert checked_count("places", 0, least=0) == 0
    with pytest.raises(InvalidInputError, match="at least 2, not 1"):
        checked_count("places", 1, least=2)


def test_instance() -> None:
    """A setting is of its kind or None; anything else is refused by its name and its type, not quoted."""
    assert checked_instance("budget", None, dict) is None
    assert checked_instance("budget", {}, dict) == {}
    with pytest.raises(InvalidInputError, match=r"^budget must be of type dict, not str$"):
        checked_instance("budget", "marmalade", dict)


async def coroutine_function() -> None: ...


class AsyncCallable:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...

    def plain(self) -> None: ...


@pytest.mark.parametrize(
    "value",
    [coroutine_function, AsyncCallable(), AsyncCallable().method, functools.partial(coroutine_function)],
    ids=["function", "object", "method", "partial"],
)
def test_async(value: object) -> None:
    """What gives a coroutine when called is told, in whatever form it comes."""
    assert is_async(value)


@pytest.mark.parametrize("value", [print, AsyncCallable().plain, lambda: None, functools.partial(print)])
def test_not_async(value: object) -> None:
    """A plain callable is none of that."""
    assert not is_async(value)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (None, "prompt must be a string, not NoneType"),
        (b"do it", "prompt must be a string, not bytes"),
        (7, "prompt must be a string, not int"),
        ("", "prompt is blank: it must say something"),
        (" \t\r\n\u00a0\u2003", "prompt is blank: it must say something"),
        ("ab\ud800", "prompt is not valid Unicode: character 3 is a lone surrogate"),
        ("\udfff", "character 1 is"),
    ],
)
def test_no_prompt(prompt: object, words: str) -> None:
    """What can't arrive as it is is refused, saying what would be right, with no other error in the chain."""
    with pytest.raises(InvalidInputError, match=words) as caught:
        checked_prompt("prompt", prompt)
    assert caught.value.__context__ is None
