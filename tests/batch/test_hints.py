import inspect
import typing
from typing import Any

import pytest

from agentjobs_async import batch, durable, prometheus, telemetry, tracing, web
from agentjobs_async.engines import procrastinate


@pytest.mark.parametrize(
    "face", [batch, durable, procrastinate, prometheus, telemetry, tracing, web], ids=lambda face: str(face.__name__)
)
def test_types_can_be_read(face: Any) -> None:
    """The types of each public class and function can be read when the program runs."""
    publics = [getattr(face, name) for name in face.__all__]
    typed = [*publics, *(public.__init__ for public in publics if inspect.isclass(public))]
    unread = [one for one in typed if (inspect.isroutine(one) or inspect.isclass(one)) and not _has_types(one)]
    assert unread == []


def _has_types(public: Any) -> bool:
    try:
        typing.get_type_hints(public)
    except NameError:  # what is imported for checkers alone
        return False
    return True
