"""The items of a batch, from prompts and from the records of an input."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.batch import BatchItem
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.prompts import checked_prompts, read_text
from agentjobs_async.cli.records import Record, records_of, table_format
from agentjobs_async.cli.template import Template, text_of

__all__ = ["Input", "Refusal", "Tasks", "show_refusal", "show_repeats", "tasks_of"]

_NAMES: Final = frozenset({"key", "prompt", "project"})
_SHOWN: Final = 60  # characters of what was typed, in a message
_MOST_REPEATS: Final = 10  # shown in one line


@frozen
class Refusal:
    """A task that is not sent.

    Attributes:
        name: Its key, or its place in the input.
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
    """The tasks that were read.

    Attributes:
        items: The items; all keys differ.
        refusals: The tasks that are not sent.
        repeats: The keys of items whose prompt and project an earlier item has as well.
    """

    items: tuple[BatchItem, ...]
    refusals: tuple[Refusal, ...]
    repeats: tuple[str, ...] = ()


@frozen
class Input:
    """Where tasks are read from, and how.

    Attributes:
        file: The file; `-` is standard input; `None` for none.
        form: The format; `None` goes by the suffix and the first line.
        key: The field that is the key; `None` for the default key.
        template: The template of the prompt; `None` takes the field `prompt`, or the whole line.
    """

    file: str | None = None
    form: str | None = None
    key: str | None = None
    template: str | None = None


def tasks_of(prompts: Sequence[str], source: Input) -> Tasks:
    """Return the tasks of the prompts, then those of the records of the input.

    The default key is the place: 1 for the first task. Of two tasks with one key the second is refused.

    Raises:
        InvalidInputError: There is no task, a prompt cannot be sent, or the input cannot be read as a whole.
    """
    arguments = [Record(f"prompt {number}", prompt) for number, prompt in enumerate(checked_prompts(prompts), 1)]
    template = None if source.template is None else Template.of(source.template)
    if source.key is not None and template is None:
        raise InvalidInputError("--key needs --prompt, such as --prompt 'Document {title}'")
    records = [*arguments, *_records(source, template, beside_prompts=bool(prompts))]
    if not records:
        raise InvalidInputError("there is no prompt: give PROMPT..., or --file with one prompt per line")
    items: dict[str, BatchItem] = {}
    refusals: list[Refusal] = []
    for number, record in enumerate(records, 1):
        task = _task(record, str(number), source.key, template)
        if isinstance(task, str):
            refusals.append(Refusal(record.place, task))
        elif task.key in items:
            refusals.append(Refusal(task.key, "the key came before in this file", key=task.key))
        else:
            items[task.key] = task
    return Tasks(tuple(items.values()), tuple(refusals), tuple(_repeats(items.values())))


def _records(source: Input, template: Template | None, *, beside_prompts: bool) -> list[Record]:
    if source.file is None:
        if template is not None or source.form is not None:
            raise InvalidInputError("--prompt, --key and --input-format need --file, with - for standard input")
        return []
    text = read_text(source.file)
    named = source.form or ("lines" if beside_prompts and template is None else None)
    form = table_format(source.file, text, named, has_template=template is not None)
    records = records_of(source.file, text, form)
    if template is not None:
        _check_names(records, [*template.names, *([] if source.key is None else [source.key])])
    return records


def _check_names(records: Sequence[Record], wanted: Sequence[str]) -> None:
    names = dict.fromkeys(name for record in records if isinstance(record.fields, Mapping) for name in record.fields)
    for name in wanted:
        if names and name not in names:
            there = one_line(", ".join(names), 200)
            raise InvalidInputError(f"--file has no column or field {one_line(name, _SHOWN)!r}; it has {there}")


def _repeats(items: Iterable[BatchItem]) -> Iterator[str]:
    known: set[tuple[str, str | None]] = set()
    for item in items:
        if (item.prompt, item.project_id) in known and item.prompt.strip():  # blank ones are refused
            yield item.key
        known.add((item.prompt, item.project_id))


def _task(record: Record, default_key: str, key: str | None, template: Template | None) -> BatchItem | str:
    """Return the item of a record, or why there is none."""
    fields = record.fields
    if record.defect or fields is None:
        return record.defect
    if isinstance(fields, str):
        return BatchItem(default_key, fields)
    return _item(fields, default_key) if template is None else _filled(fields, default_key, key, template)


def _filled(fields: Mapping[str, Any], default_key: str, key: str | None, template: Template) -> BatchItem | str:
    used = [*template.names, *([] if key is None else [key])]
    for name in used:
        if fields.get(name) is None:
            return f"it has no {one_line(name, _SHOWN)!r}"
    found = default_key if key is None else text_of(fields[key]).strip()
    context = {name: value for name, value in fields.items() if name not in used}
    return BatchItem(found, template.filled(fields), context=context or None) if found else "its key is empty"


def _item(document: Mapping[str, Any], default_key: str) -> BatchItem | str:
    if not isinstance(document.get("prompt"), str):
        return "it is no JSON object with a prompt"
    if foreign := sorted(set(document) - _NAMES):
        return f"{one_line(foreign[0], _SHOWN)!r} is none of key, prompt and project"
    key, project = document.get("key", default_key), document.get("project")
    key = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(key, str) or not (project is None or isinstance(project, str)):
        return "its key or project is no text"
    return BatchItem(key, document["prompt"], project) if key else "its key is empty"


def show_refusal(screen: Screen, refusal: Refusal) -> None:
    """Show a task that is not sent, and why."""
    screen.notice(f"{refusal.name} ", ("refused", "bold red"), f": {refusal.reason}")


def show_repeats(screen: Screen, tasks: Tasks) -> None:
    """Show which prompts occurred before; they are sent all the same."""
    if tasks.repeats:
        shown = ", ".join(tasks.repeats[:_MOST_REPEATS]) + ", …" * (len(tasks.repeats) > _MOST_REPEATS)
        screen.notice(f"The same prompt as an earlier item ({len(tasks.repeats)}): {shown}")
