"""The recipe for aiogram, as a process."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.telegram_bots import Stage, check_kill, check_many_users, creating, seen, sent

pytestmark = pytest.mark.slow


async def test_many_users(tmp_path: Path) -> None:
    """Each of 100 users sees its own job change and end, though Telegram refuses some edits."""
    await check_many_users("aiogram_bot", tmp_path)


@pytest.mark.parametrize("moment", [sent, creating, seen])
async def test_a_kill(tmp_path: Path, moment: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    """A bot that is killed tells the end of each job after its restart, and starts none twice."""
    await check_kill("aiogram_bot", tmp_path, moment)
