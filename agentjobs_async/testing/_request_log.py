"""The log line of a request."""

import logging
from typing import Final

from agentjobs_async.testing._answers import Answer
from agentjobs_async.testing.faults.fault import Fault
from agentjobs_async.testing.records import ReceivedRequest

__all__ = ["log_request"]

_LOGGER: Final = logging.getLogger("agentjobs_async.testing")
_LONGEST_LINE: Final = 1_000  # characters: a target, or a fault with its text, may be of any length


def log_request(request: ReceivedRequest, answer: Answer, status: int, fault: Fault, api_key: str) -> None:
    """Log a request as one line of bounded length; the key is masked, because a target may contain it."""
    if not _LOGGER.isEnabledFor(logging.INFO):
        return
    changed = fault.kind != "ok" or bool(fault.options)
    job = [str(answer.document["id"])] if "id" in answer.document and request.method == "POST" else []
    line = " ".join([request.method, request.target, f"{status} by {fault}" if changed else str(status), *job])
    shown = "".join(map(_escaped, line.replace(api_key, "***")))
    _LOGGER.info("%s", shown if len(shown) <= _LONGEST_LINE else f"{shown[:_LONGEST_LINE]}…")


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode()
