"""The items of a batch, from a file of tasks or from prompts."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from attrs import field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.batch import BatchItem, Rate
from agentjobs_async.cli._output.screen import Screen

__all__ = ["Refusal", "Tasks", "limits_of", "rate_of", "rate_text", "tasks_of", "tell_refusal"]

_NAMES: Final = frozenset({"key", "prompt", "project"})
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_RATE: Final = re.compile(r"(?P<count>0{0,9}[1-9][0-9]{0,18})/(?P<unit>[smhd])(?P<all>/all)?")
_SHOWN: Final = 60


@frozen
class Refusal:
    """A task that is not sent.

    Attributes:
        name: Its key, or its line in the file.
        reason: Why.
        key: Its key; `None` without one.
    """

    name: str
    reason: str
    key: str | None = field(default=None, kw_only=True, eq=False)

    @property
    def words(self) -> str:
        """Why, and where it is unless its key says that."""
        return self.reason if self.key is not None else f"{self.name}: {self.reason}"


@frozen
class Tasks:
    """What was read: items with different keys, and what was refused."""

    items: tuple[BatchItem, ...]
    refusals: tuple[Refusal, ...]


def tasks_of(lines: Sequence[tuple[int, str]], *, may_be_json: bool) -> Tasks:
    """Return the tasks of numbered lines: JSON Lines with `key`, `prompt` and `project`, or one prompt per line.

    They are JSON Lines if the first one begins with a brace. The default key is the place: 1 for the first task. Of two
    tasks with one key the second is refused. A refused line without a key is named by its number.

    Args:
        lines: The lines, each with its number in the file or among the arguments.
        may_be_json: Whether they may be JSON Lines; an argument is always a prompt.
    """
    as_json = may_be_json and lines[0][1].lstrip().startswith("{")
    items: dict[str, BatchItem] = {}
    refusals: list[Refusal] = []
    for place, (number, line) in enumerate(lines, 1):
        task = _task(place, line) if as_json else BatchItem(str(place), line)
        if isinstance(task, str):
            refusals.append(Refusal(f"line {number}", task))
        elif task.key in items:
            refusals.append(Refusal(task.key, "the key came before in this file", key=task.key))
        else:
            items[task.key] = task
    return Tasks(tuple(items.values()), tuple(refusals))


class _TwiceError(ValueError):
    """An object has two members of one name, of which a lenient parser would take the last."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise _TwiceError(f"it has {one_line(name, _SHOWN)!r} twice")
        members[name] = value
    return members


def _task(place: int, line: str) -> BatchItem | str:
    """Read one line of JSON; return the reason when it is no task."""
    try:
        document = json.loads(line, object_pairs_hook=_members)
    except _TwiceError as error:
        return str(error)
    except (ValueError, RecursionError):
        return "it is no JSON"
    if not isinstance(document, dict) or not isinstance(document.get("prompt"), str):
        return "it is no JSON object with a prompt"
    if foreign := sorted(set(document) - _NAMES):
        return f"{one_line(foreign[0], _SHOWN)!r} is none of key, prompt and project"
    return _item(document, str(place))


def _item(document: dict[str, Any], default_key: str) -> BatchItem | str:
    key, project = document.get("key", default_key), document.get("project")
    key = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(key, str) or not (project is None or isinstance(project, str)):
        return "its key or project is no text"
    return BatchItem(key, document["prompt"], project) if key else "its key is empty"


def rate_of(text: str) -> Rate | None:
    """Read a rate such as `100/h` for each project, or `100/h/all` for all of them together; `none` is no limit.

    Raises:
        InvalidInputError: It is neither.
    """
    if text == "none":
        return None
    found = _RATE.fullmatch(text)
    if found is None:
        shown = one_line(text, _SHOWN) or "an empty text"
        raise InvalidInputError(f"--create-rate: {shown} is neither like 100/h or 100/h/all (s, m, h, d) nor none")
    return Rate(int(found["count"]), per=_UNITS[found["unit"]], scope="all" if found["all"] else "project")


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
    """Return the text of which `rate_of` makes `rate`."""
    (unit,) = (unit for unit, seconds in _UNITS.items() if seconds == rate.per)
    return f"{rate.count}/{unit}{'/all' * (rate.scope == 'all')}"


def tell_refusal(screen: Screen, refusal: Refusal) -> None:
    """Show a task that is not sent, and why."""
    screen.notice(f"{refusal.name} ", ("refused", "bold red"), f": {refusal.reason}")
