"""Where values stand in a document."""

from typing import Any

from agentjobs_async.testing._places import collide, place_of, with_value, without_value
from tests.rows import failures


def test_collide() -> None:
    """Two places collide if they are the same, or one is within the other."""
    rows = [("a", "a"), ("a", "a.b"), ("a.b.c", "a.b"), ("a.b", "a.c"), ("a", "b.a")]
    assert [collide(place_of(one), place_of(other)) for one, other in rows] == [True, True, True, False, False]


def test_with_value() -> None:
    """A value is put where its place says; parts on the way are made, arrays for positions."""

    def check(document: Any, place: str, expected: Any) -> None:
        before = repr(document)
        assert with_value(document, place_of(place), 1) == expected
        assert repr(document) == before

    rows: list[tuple[Any, str, Any]] = [
        ({}, "a", {"a": 1}),
        ({"a": {"b": 2}}, "a.c", {"a": {"b": 2, "c": 1}}),
        ({}, "a.1.b", {"a": [None, {"b": 1}]}),
        ({"a": [2, 3]}, "a.0", {"a": [1, 3]}),
        ({"a": [2]}, "a.b", {"a": {"0": 2, "b": 1}}),
        ({"a": {"b": 2}}, "a.0", {"a": {"b": 2, "0": 1}}),
        ({}, "a.100", {"a": {"100": 1}}),
        ({}, "a.01", {"a": {"01": 1}}),
        ({"a": "text"}, "a.b", {"a": {"b": 1}}),
        ({}, "0", {"0": 1}),
    ]
    assert failures(check, *rows) == {}


def test_without_value() -> None:
    """What stands at a place is removed; a place that leads nowhere changes nothing."""

    def check(document: Any, place: str, expected: Any) -> None:
        assert without_value(document, place_of(place)) == expected

    rows: list[tuple[Any, str, Any]] = [
        ({"a": 1, "b": 2}, "a", {"b": 2}),
        ({"a": {"b": 2, "c": 3}}, "a.b", {"a": {"c": 3}}),
        ({"a": [1, 2]}, "a.0", {"a": [2]}),
        ({"a": [{"b": 1}]}, "a.0.b", {"a": [{}]}),
        *(({"a": [1]}, place, {"a": [1]}) for place in ("b", "a.1", "a.b", "a.0.c")),
    ]
    assert failures(check, *rows) == {}
