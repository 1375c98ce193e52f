"""What is kept of a job between two polls: all of it but a document that is large."""

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from agentjobs_async.models import AgentJob

__all__ = ["snapshot"]

_MOST_KEPT: Final = 16_384  # characters: a hundred thousand jobs fit into memory, and documents as a rule
_CONTAINER: Final = 64  # characters that an object or array counts for, since an empty one takes as much memory
_VALUE: Final = 8  # the same for any value beside its text


def snapshot(job: AgentJob) -> AgentJob:
    """Return `job`, or the job without its `raw` where that holds more than about 16 KiB of text."""
    if not job.raw or _room_after(job.raw, _MOST_KEPT) >= 0:
        return job
    return evolve(job, raw={})


def _room_after(document: object, room: int) -> int:
    """Return how many characters of `room` a document leaves; less than 0 where it has more."""
    left: list[Any] = [document]
    while left and room >= 0:
        value = left.pop()
        room -= _CONTAINER + _VALUE * len(value)
        if room >= 0:  # else its parts, which may be very many, are not even looked at
            room -= _texts_in(value, left)
    return room


def _texts_in(value: Any, containers: list[Any]) -> int:
    """Return how many characters the texts of an object or array have; collect what lies deeper in `containers`."""
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
