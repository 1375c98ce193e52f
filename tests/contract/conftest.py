"""The ways to wait, as a fixture."""

import pytest

from tests.contract.ways import WAYS, Waiting


@pytest.fixture(params=WAYS)
def waiting(request: pytest.FixtureRequest) -> Waiting:
    return WAYS[request.param]
