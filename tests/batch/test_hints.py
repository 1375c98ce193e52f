import inspect
import typing

import pytest

from agentjobs_async import batch, durable, prometheus, telemetry, tracing, web
from agentjobs_async.engines import procrastinate


@pytest.mark.parametrize(
    "face", [batch, durable, procrastinate, prometheus, telemetry, tracing, web], ids=lambda face: str(face.__name__)
)
def test_types_can_be_read(face: object) -> None:
    """The types of each public class and function can be read when the program runs."""
    for name in face.__all__:  # type: ignore[attr-defined]  # each of these modules has it
        public = getattr(face, name)
        for typed in (public, public.__init__) if inspect.isclass(public) else (public,):
            if inspect.isroutine(typed) or inspect.isclass(typed):
                typing.get_type_hints(typed)
