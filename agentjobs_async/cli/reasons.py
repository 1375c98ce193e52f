"""Why an item is not completed, in words."""

import re
from typing import Final

from agentjobs_async.cli.outcomes import Outcome, Result

__all__ = ["in_words", "reason"]

_CLASS: Final = re.compile(r"(^|: )([A-Z][A-Za-z]*(?:Error|Exception|Timeout)): ?")
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WITHOUT_ERROR: Final = {
    Outcome.FAILED: "the agent failed",
    Outcome.ARCHIVED: "the job was archived",
    Outcome.UNFINISHED: "its job is active",
}


def in_words(error: str) -> str:
    """Return the error of a journal's row without the names of classes before its messages."""
    found = _CLASS.search(error)
    if found is not None and found.end() == len(error):  # there is no message
        return error[: found.start(2)] + _HUMP.sub(" ", found[2]).lower()
    return _CLASS.sub(r"\1", error)


def reason(result: Result) -> str | None:
    """Return why an item or a job is not completed; `None` if it is, or nothing more is known than its outcome."""
    return None if result.outcome is Outcome.COMPLETED else result.error or _WITHOUT_ERROR.get(result.outcome)
