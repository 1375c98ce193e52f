"""Where values stand in a document: paths of member names, and of positions in arrays."""

from typing import Any, Final

Place = tuple[str, ...]
"""The names of members and the positions of elements, from the document inwards."""

_MOST_ELEMENTS: Final = 100  # an array is filled up to the position that a place names


def place_of(text: str) -> Place:
    """Return the place of a dotted path, such as `links.0.href`."""
    return tuple(text.split("."))


def collide(one: Place, other: Place) -> bool:
    """Return whether two places can't both hold a value: they are the same, or one is within the other."""
    return all(mine == theirs for mine, theirs in zip(one, other, strict=False))


def with_value(container: Any, place: Place, value: Any) -> Any:
    """Return a document with a value at a place; what stands in the way gives room.

    A new part is an array where the place has a position from 0 to 99, and an object otherwise. A member whose name is
    no position turns an array into an object.
    """
    if not place:
        return value
    name, inner = place[0], place[1:]
    if isinstance(container, list) and not _is_position(name):
        container = {str(position): element for position, element in enumerate(container)}
    elif not isinstance(container, dict | list):
        container = [] if _is_position(name) else {}
    if isinstance(container, dict):
        return {**container, name: with_value(container.get(name), inner, value)}
    elements = container + [None] * (int(name) + 1 - len(container))
    elements[int(name)] = with_value(elements[int(name)], inner, value)
    return elements


def without_value(container: Any, place: Place) -> Any:
    """Return a document without what stands at a place; the elements of an array behind it move up."""
    name, inner = place[0], place[1:]
    if isinstance(container, list) and name.isdecimal() and int(name) < len(container):
        position = int(name)
        rest = [without_value(container[position], inner)] if inner else []
        return [*container[:position], *rest, *container[position + 1 :]]
    if not isinstance(container, dict) or name not in container:
        return container
    if inner:
        return {**container, name: without_value(container[name], inner)}
    return {member: value for member, value in container.items() if member != name}


def _is_position(name: str) -> bool:
    return name.isascii() and name.isdecimal() and str(int(name)) == name and int(name) < _MOST_ELEMENTS
