"""The extras that not every environment of the tests has, and the command that brings each of them."""

import os
import sys
from importlib.util import find_spec
from typing import Final, NoReturn

import pytest

FRAMEWORKS: Final = (
    *("aiogram", "discord", "django", "fastapi", "gunicorn", "hypercorn", "litestar", "slack_bolt"),
    *("starlette", "telegram", "uvicorn", "uvicorn_worker"),
)
"""What the extra `recipes` brings."""
PIP: Final = f"{sys.executable} -m pip"


def need_recipes() -> None:
    """Skip the test where a framework of the recipes is not installed."""
    if not all(find_spec(name) for name in FRAMEWORKS):
        skip("RECIPES", f"needs the frameworks of the recipes: {PIP} install -e '.[test,recipes]'")


def need_browser(path: str | None) -> str:
    """Return the path of the browser; skip the test without one, or without what drives it."""
    if not find_spec("playwright") or not find_spec("axe_playwright_python"):
        skip("BROWSER", f"needs what drives a browser: {PIP} install -e '.[test,browser]'")
    if path is None:
        skip("BROWSER", "needs a browser: AGENTJOBS_BROWSER=install .ci/run browser")
    return path


def skip(extra: str, reason: str) -> NoReturn:
    """Skip the test, or fail it where the environment requires the extra: there, a skip would hide a fault."""
    if os.environ.get(f"AGENTJOBS_{extra}_REQUIRED"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
