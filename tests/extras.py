"""The extras that not every environment of the tests has, and the command that brings each of them."""

import os
from importlib.util import find_spec
from typing import Final, NoReturn

import pytest

FRAMEWORKS: Final = (
    *("aiogram", "discord", "django", "fastapi", "litestar"),
    *("slack_bolt", "starlette", "telegram", "uvicorn"),
)
"""What the extra `recipes` brings."""


def need_recipes() -> None:
    """Skip the test where a framework of the recipes is not installed."""
    if not all(find_spec(name) for name in FRAMEWORKS):
        skip("RECIPES", "needs the frameworks of the recipes: pip install -e '.[test,recipes]'")


def need_browser(path: str | None) -> str:
    """Return the path of the browser; skip the test without one, or without what drives it."""
    if path is None or not find_spec("playwright"):
        how = "pip install -e '.[test,browser]' && AGENTJOBS_BROWSER=install .ci/run browser"
        skip("BROWSER", f"needs a browser and its driver: {how}")
    return path


def skip(extra: str, reason: str) -> NoReturn:
    """Skip the test, or fail it where the environment requires the extra: there, a skip would hide a fault."""
    if os.environ.get(f"AGENTJOBS_{extra}_REQUIRED"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
