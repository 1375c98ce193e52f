"""The records that hooks get."""

import pytest
from attrs import fields
from attrs.exceptions import FrozenInstanceError

from agentjobs_async.telemetry import Event
from tests.telemetry.test_logging_hook import LOGGED


@pytest.mark.parametrize("event", [event for event, _, _ in LOGGED], ids=lambda event: type(event).__name__)
def test_events_are_frozen(event: Event) -> None:
    """An event is a frozen record: no hook can change what the next one sees."""
    with pytest.raises(FrozenInstanceError):
        setattr(event, fields(type(event))[0].name, None)
