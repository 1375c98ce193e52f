"""The recipe for Litestar, by its own test client."""

from collections.abc import Callable
from types import ModuleType

from litestar.testing import TestClient

from agentjobs_async.testing import Emulator
from tests.recipes.stories import check_service


def test_service(load: Callable[[str], ModuleType], emulator: Emulator) -> None:
    """It creates, awaits and streams jobs, and answers each error by a status."""
    with TestClient(load("litestar_app").app) as client:
        check_service(client, emulator, as_json=True)
        assert client.post("/jobs", content=b"{").status_code == 400
