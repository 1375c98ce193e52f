import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.browser import launched

if TYPE_CHECKING:
    from playwright.async_api import Browser


@pytest.fixture
def run(template: Path, path: Path) -> Path:
    """A copy of the module's journal of a real run."""
    return Path(shutil.copy(template, path))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> "AsyncIterator[Browser]":
    """A browser for the tests of one module, which run in its loop."""
    async with launched() as running:
        yield running
