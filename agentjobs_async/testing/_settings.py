"""The checks of an emulator's settings; each error names the setting."""

import re
from collections.abc import Callable
from math import inf
from typing import Any

from agentjobs_async.testing._checks import is_number
from agentjobs_async.testing._service import RateLimit
from agentjobs_async.testing.faults.fault import FaultPlan
from agentjobs_async.testing.scripts import JobScript

_SETTINGS: dict[str, tuple[Callable[[Any], object], str]] = {
    "host": (lambda host: isinstance(host, str) and host, "an address to listen on"),
    "port": (lambda port: is_number(port, int) and 0 <= port <= 65535, "a whole number from 0 to 65535"),  # noqa: PLR2004 - the largest port of TCP
    "api_key": (
        lambda key: isinstance(key, str) and re.fullmatch("[!-~]+", key),
        "visible ASCII characters without blanks",
    ),
    "script": (
        lambda script: isinstance(script, JobScript) or callable(script),
        "a JobScript, or a function that returns one",
    ),
    "rate_limit": (lambda limit: limit is None or isinstance(limit, RateLimit), "a RateLimit, or None"),
}
_MASKED = "api_key"


def check_settings(latency: float, speed: float, **others: object) -> None:
    """Raise an error for the first setting that is not valid.

    Raises:
        ValueError: It names the setting, and shows its value unless that is the key.
    """
    if not (is_number(latency) and is_number(speed) and 0 <= latency < inf and 0 < speed < inf):
        bounds = "latency must be at least 0, and speed above 0, both finite"
        raise ValueError(f"{bounds}, not {latency!r:.100} and {speed!r:.100}")
    for name, value in others.items():
        fits, words = _SETTINGS[name]
        if not fits(value):
            raise ValueError(f"{name} must be {words}" + ("" if name == _MASKED else f", not {value!r:.100}"))


def plan_of(faults: object) -> FaultPlan:
    """Return the plan of the setting `faults`.

    Raises:
        ValueError: The setting is no fault plan.
    """
    try:
        return FaultPlan.of(faults)
    except ValueError as error:
        defect = str(error)
    raise ValueError(f"faults: {defect}")
