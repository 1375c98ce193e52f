"""The ways to wait, as a fixture."""

import pytest

from tests.contract.ways import WAYS, Waiting, waiting_by


@pytest.fixture(params=WAYS)
def waiting(request: pytest.FixtureRequest) -> Waiting:
    return waiting_by(request.param)
