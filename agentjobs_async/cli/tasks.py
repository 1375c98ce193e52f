"""The items of a batch, from a file of tasks or from prompts."""

import json
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.batch import BatchItem, Rate
from agentjobs_async.cli.prompts import prompts_of
from agentjobs_async.cli.screen import Screen

__all__ = ["Refusal", "Tasks", "limits_of", "rate_of", "rate_text", "tasks_of", "tell_refusal"]

_NAMES: Final = frozenset({"key", "prompt", "project"})
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SHOWN: Final = 60


@frozen
class Refusal:
    """A task that is not sent.

    Attributes:
        name: Its key, or where it is.
        reason: Why.
    """

    name: str
    reason: str


@frozen
class Tasks:
    """What was read: items with different keys, and what was refused."""

    items: tuple[BatchItem, ...]
    refusals: tuple[Refusal, ...]


def tasks_of(prompts: Sequence[str], file: str | None) -> Tasks:
    """Give the tasks of prompts and of a file: JSON Lines with `key`, `prompt` and `project`, or a prompt per line.

    A file is JSON Lines when its first line begins with a brace. Where there is no key, it is the place: 1 for the
    first task. Of two tasks with one key the second is refused.

    Raises:
        InvalidInputError: There is none, or the file can't be read.
    """
    lines = prompts_of(prompts, file)
    as_json = not prompts and lines[0].lstrip().startswith("{")
    items: dict[str, BatchItem] = {}
    refusals: list[Refusal] = []
    for number, line in enumerate(lines, 1):
        task = _task(number, line) if as_json else BatchItem(str(number), line)
        if isinstance(task, str):
            refusals.append(Refusal(f"task {number}", task))
        elif task.key in items:
            refusals.append(Refusal(task.key, "the key came before in this file"))
        else:
            items[task.key] = task
    return Tasks(tuple(items.values()), tuple(refusals))


def _task(number: int, line: str) -> BatchItem | str:
    """Read one line of JSON; give the reason when it is no task."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return "it is no JSON"
    if not isinstance(document, dict) or not isinstance(document.get("prompt"), str):
        return "it is no JSON object with a prompt"
    if foreign := sorted(set(document) - _NAMES):
        return f"{one_line(foreign[0], _SHOWN)!r} is none of key, prompt and project"
    key, project = document.get("key", str(number)), document.get("project")
    key = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(key, str) or not (project is None or isinstance(project, str)):
        return "its key or project is no text"
    return BatchItem(key, document["prompt"], project)


def rate_of(text: str) -> Rate | None:
    """Read a rate such as `100/h`; `none` is no limit.

    Raises:
        InvalidInputError: It is neither.
    """
    if text == "none":
        return None
    count, separator, unit = text.partition("/")
    if not separator or not count.isdecimal() or unit not in _UNITS or not int(count):
        raise InvalidInputError(f"--create-rate: {one_line(text, _SHOWN)} is neither like 100/h (s, m, h, d) nor none")
    return Rate(int(count), per=_UNITS[unit])


def limits_of(max_active: str | None, create_rate: str | None) -> dict[str, int | Rate | None]:
    """Read limits as they are typed, `none` for no limit; those that are `None` are left out.

    Raises:
        InvalidInputError: One is no limit.
    """
    limits: dict[str, int | Rate | None] = {}
    if max_active is not None:
        if max_active != "none" and not (max_active.isascii() and max_active.isdecimal() and int(max_active)):
            shown = one_line(max_active, _SHOWN)
            raise InvalidInputError(f"--max-active: {shown} is neither a number of at least 1 nor none")
        limits["max_active"] = None if max_active == "none" else int(max_active)
    if create_rate is not None:
        limits["create_rate"] = rate_of(create_rate)
    return limits


def rate_text(rate: Rate) -> str:
    """Give the text of which `rate_of` makes `rate`."""
    (unit,) = (unit for unit, seconds in _UNITS.items() if seconds == rate.per)
    return f"{rate.count}/{unit}"


def tell_refusal(screen: Screen, refusal: Refusal) -> None:
    """Show a task that is not sent, and why."""
    screen.notice(f"{refusal.name} ", ("refused", "bold red"), f": {refusal.reason}")
