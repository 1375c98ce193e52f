"""The recipe for Starlette, by its own test client."""

from collections.abc import Callable
from types import ModuleType

from starlette.testclient import TestClient

from agentjobs_async.testing import Emulator
from tests.recipes.stories import check_service


def test_service(load: Callable[[str], ModuleType], emulator: Emulator) -> None:
    """It creates, awaits and streams jobs, and answers each error by a status."""
    with TestClient(load("starlette_app").app) as client:
        check_service(client, emulator, as_json=False)
