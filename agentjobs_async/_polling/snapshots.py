"""What is kept of a job between two polls: all of it, except a `raw` that is large."""

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from agentjobs_async.models import AgentJob

__all__ = ["snapshot"]

_KEPT_CHARACTERS: Final = 16_384  # 100,000 jobs still fit into memory, and nearly all documents are smaller
_CONTAINER_CHARACTERS: Final = 64  # what an object or array counts for: about the bytes that an empty one takes
_VALUE_CHARACTERS: Final = 8  # what each value in a container counts for beside its text: a pointer


def snapshot(job: AgentJob) -> AgentJob:
    """Return `job`, or a copy without its `raw` if that holds more than about 16 KiB of text."""
    if not job.raw or _room_after(job.raw, _KEPT_CHARACTERS) >= 0:
        return job
    return evolve(job, raw={})


def _room_after(document: object, room: int) -> int:
    """Return how many of `room` characters a document leaves; below 0 if it has more."""
    left: list[Any] = [document]
    while left and room >= 0:
        value = left.pop()
        room -= _CONTAINER_CHARACTERS + _VALUE_CHARACTERS * len(value)
        if room >= 0:  # else its values, perhaps millions, are not even visited
            room -= _texts_in(value, left)
    return room


def _texts_in(value: Any, containers: list[Any]) -> int:
    """Return the number of characters in the texts of an object or array; append nested ones to `containers`."""
    length = 0
    if isinstance(value, _OBJECTS):
        for name in value:
            length += len(name) if type(name) is str else 0
        parts = value.values()
    else:
        parts = value
    for part in parts:
        kind = type(part)
        if kind is str:
            length += len(part)
        elif kind not in _SMALL:
            if isinstance(part, _CONTAINERS):
                containers.append(part)
            elif isinstance(part, _TEXTS):
                length += len(part)
    return length


_SMALL: Final = frozenset({int, float, bool, type(None)})
_TEXTS: Final = (str, bytes, bytearray)
_OBJECTS: Final = (dict, Mapping)
_CONTAINERS: Final = (dict, list, Mapping, tuple, set, frozenset)
