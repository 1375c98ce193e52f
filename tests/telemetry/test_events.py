"""The records that hooks get."""

import pytest
from attrs import fields
from attrs.exceptions import FrozenInstanceError

from agentjobs_async.telemetry import CreateStarted
from tests.telemetry.test_logging_hook import LOGGED


def test_events_are_frozen() -> None:
    """An event is a frozen record: no hook can change what the next one sees."""
    for event, _, _ in LOGGED:
        with pytest.raises(FrozenInstanceError):
            setattr(event, fields(type(event))[0].name, None)


def test_repr() -> None:
    """An event shows its class and all of its fields."""
    event = CreateStarted("docs", "api.example.com")
    assert repr(event) == "CreateStarted(project_id='docs', server_address='api.example.com', label=None)"
