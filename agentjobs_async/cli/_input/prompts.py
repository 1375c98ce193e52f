"""The items of a batch, from prompts and from the records of an input."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from attrs import evolve, field, frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._extra import checked_extra, extra_text
from agentjobs_async._text import one_line, suggestion
from agentjobs_async._validation import checked_prompt
from agentjobs_async.batch import BatchItem, InvalidItems
from agentjobs_async.cli._input.extras import TAKEN, ExtraField, Extras
from agentjobs_async.cli._input.questions import confirmed
from agentjobs_async.cli._input.records import Reading, Record, read_records
from agentjobs_async.cli._input.templates import Template, field_text, text_of
from agentjobs_async.cli._output.columns import in_words
from agentjobs_async.cli._output.screen import Screen

_NAMES: Final = frozenset({"key", "prompt", "project", "extra"})
_SHOWN: Final = 60  # characters of what was typed, in a message
_MOST_REPEATS: Final = 10  # shown in one line


@frozen
class InvalidPrompt:
    """A prompt of the input that is not sent.

    Attributes:
        name: Its key, or where it is in the input.
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
class Prompts:
    """The prompts that were read.

    Attributes:
        items: The items that they make; all keys differ.
        invalid: The prompts that are not sent.
        repeats: The keys of items whose prompt, project and extra an earlier item has as well.
        lone_words: The prompts that are arguments of one word each, which forgotten quotes look like; 0 unless there
            are several, and no longer ones.
    """

    items: tuple[BatchItem, ...]
    invalid: tuple[InvalidPrompt, ...]
    repeats: tuple[str, ...] = ()
    lone_words: int = 0


@frozen
class _How:
    """How records become items.

    Attributes:
        key: The field that is the key; `None` for the default key.
        template: The template of the prompt; `None` takes the field `prompt`, or the whole line.
        extras: The fields that each create has besides.
        allow_empty: Whether a field of the template may be missing, `None` or white space.
    """

    key: str | None
    template: Template | None
    extras: Extras
    allow_empty: bool

    @property
    def wanted(self) -> list[str]:
        """The fields that records must have."""
        of_prompts = () if self.template is None else self.template.names
        return [*of_prompts, *(() if self.key is None else (self.key,)), *self.extras.names]

    def extra_of(self, fields: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the extra of a record with these fields, those of its `own` first; `None` for an empty one.

        Raises:
            InvalidInputError: It can't be sent.
        """
        return checked_extra(self.extras.filled(fields) | dict(own or {}), fields=TAKEN) or None


def _template(text: str) -> Template:
    template = Template.of(text)
    if not template.names:
        raise InvalidInputError(
            "--prompt: it names no column or field, so that all prompts would be the same; write it like"
            " 'Document {title}', and {{ for a brace"
        )
    return template


def prompts_of(
    prompts: Sequence[str],
    *,
    file: str | None = None,
    form: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    key: str | None = None,
    template: str | None = None,
    extras: Sequence[ExtraField] = (),
    allow_empty: bool = False,
) -> Prompts:
    """Return the prompts among the arguments, then those of the records of the input.

    The default key is the number: 1 for the first prompt. Of two prompts with one key the second is refused.

    Args:
        prompts: The prompts among the arguments.
        file: The input; `-` is standard input; `None` for none.
        form: Its format, as of `Reading`.
        delimiter: The delimiter of its cells, as of `Reading`.
        encoding: Its encoding, as of `Reading`.
        key: The field that is the key; `None` for the default key.
        template: The template of the prompt; `None` takes the field `prompt`, or the whole line.
        extras: The fields that each create has besides; those of a record's own extra come before them.
        allow_empty: Whether a record is sent of which a field of the template is missing, `None` or white space.

    Raises:
        InvalidInputError: There is no prompt, an argument cannot be sent, or the input cannot be read as a whole.
    """
    arguments = [Record(f"prompt {number}", prompt) for number, prompt in enumerate(checked_prompts(prompts), 1)]
    filled = None if template is None else _template(template)
    how = _How(key, filled, Extras.of(extras), allow_empty)
    if prompts or file is None:
        how.extras.constants()
    if (key is not None or allow_empty) and filled is None:
        option = "--allow-empty" if key is None else "--key"
        raise InvalidInputError(f"{option} needs --prompt, such as --prompt 'Document {{title}}'")
    reading = Reading(form, delimiter, encoding)
    records = [*arguments, *_records(file, reading, how, beside_prompts=bool(prompts))]
    if not records and file is not None:
        raise InvalidInputError(f"--file: {one_line(file, _SHOWN)} has no prompt, or column names alone")
    if not records:
        raise InvalidInputError("there is no prompt: give PROMPT..., or --file with one prompt per line")
    items: dict[str, BatchItem] = {}
    firsts: dict[str, Record] = {}
    invalid: list[InvalidPrompt] = []
    for number, record in enumerate(records, 1):
        item = _item(record, str(number), how)
        if isinstance(item, str):
            invalid.append(InvalidPrompt(record.position, item))
        elif item.key in items:
            repeats = f"{record.position} repeats the key of {firsts[item.key].position}"
            invalid.append(InvalidPrompt(item.key, repeats, key=item.key))
        else:
            items[item.key], firsts[item.key] = item, record
    lone_words = len(prompts) * (len(prompts) > 1 and not any(" " in prompt for prompt in prompts))
    return Prompts(tuple(items.values()), tuple(invalid), tuple(_repeats(items.values())), lone_words)


def checked_prompts(prompts: Sequence[str], reading: str = "--file") -> Sequence[str]:
    """Return `prompts`, which are arguments, unchanged; ask whether one that is the path of a file is meant as it is.

    Args:
        prompts: The prompts.
        reading: The option, or the command with it, that sends what is in a file.

    Raises:
        InvalidInputError: One is blank, is `-`, or is not valid text; or it is the path of a file, and nobody can be
            asked, or the answer is no.
    """
    for number, prompt in enumerate(prompts, 1):
        if prompt == "-":
            raise InvalidInputError("- is no prompt: for prompts from standard input say --file -")
        checked_prompt(f"prompt {number}" if len(prompts) > 1 else "the prompt", prompt)
    if files := list(filter(_is_file, prompts)):
        _check_files_are_meant(files, reading)
    return prompts


def _is_file(prompt: str) -> bool:
    """Return whether a prompt is the path of a file that exists, or of a pipe or a device."""
    with suppress(OSError, ValueError):  # such as a name that is too long
        path = Path(prompt)
        return path.exists() and not path.is_dir()
    return False


def _check_files_are_meant(files: Sequence[str], reading: str) -> None:
    first = one_line(files[0], _SHOWN)
    others = f" (and {len(files) - 1:,} more)" * (len(files) > 1)
    words = f"the prompt {first}{others} is the path of a file, whose text would not be sent"
    if not confirmed(f"{words[:1].upper()}{words[1:]}. Send the path itself?"):
        raise InvalidInputError(f"{words}: to send what is in it, say {reading} {one_line(shlex.quote(files[0]))}")


def _records(file: str | None, reading: Reading, how: _How, *, beside_prompts: bool) -> list[Record]:
    if file is None:
        if how.template is not None or reading != Reading():
            raise InvalidInputError(
                "--prompt, --key, --input-format, --delimiter and --encoding need --file, with - for standard input"
            )
        return []
    if how.template is None and beside_prompts:
        reading = evolve(reading, form=reading.form or "lines")
    records = read_records(file, reading, how.wanted, has_template=how.template is not None)
    _check_names(records, how.wanted)
    return records


def _check_names(records: Sequence[Record], wanted: Sequence[str]) -> None:
    names = dict.fromkeys(name for record in records if isinstance(record.fields, Mapping) for name in record.fields)
    for name in wanted:
        if names and name not in names:
            there = one_line(", ".join(names), 200)
            unknown = f"--file has no column or field {one_line(name, _SHOWN)!r}; it has {there}"
            raise InvalidInputError(f"{unknown}{suggestion(name, names)}")


def _repeats(items: Iterable[BatchItem]) -> Iterator[str]:
    known: set[tuple[str | None, ...]] = set()
    for item in items:
        same = (item.prompt, item.project_id, extra_text(item.extra))
        if same in known and item.prompt.strip():  # blank ones are refused
            yield item.key
        known.add(same)


def _item(record: Record, default_key: str, how: _How) -> BatchItem | str:
    """Return the item of a record, or why there is none."""
    fields = record.fields
    if record.defect or fields is None:
        return record.defect
    try:
        if isinstance(fields, str):
            return BatchItem(default_key, fields, extra=how.extra_of({}))
        if how.template is None:
            return _given(fields, default_key, how)
        if not how.allow_empty and (defect := _empty(fields, how.template)):
            return defect
        return _filled(fields, default_key, how, how.template)
    except InvalidInputError as error:  # of its extra
        return str(error)


def _empty(fields: Mapping[str, Any], template: Template) -> str:
    """Return why the prompt of a record would lack a part: a field that has no more than white space; else nothing."""
    for name in template.names:
        if not field_text(fields, name).strip():
            state = "no" if fields.get(name) is None else "an empty"
            advice = suggestion(name, fields) or "; --allow-empty sends it"
            return f"it has {state} {one_line(name, _SHOWN)!r}{advice}"
    return ""


def _filled(fields: Mapping[str, Any], default_key: str, how: _How, template: Template) -> BatchItem | str:
    key = how.key
    if key is not None and fields.get(key) is None:
        return f"it has no {one_line(key, _SHOWN)!r}{suggestion(key, fields)}"
    found = default_key if key is None else text_of(fields[key]).strip()
    if not found:
        return "its key is empty"
    context = {name: value for name, value in fields.items() if name not in how.wanted}
    return BatchItem(found, template.filled(fields), context=context or None, extra=how.extra_of(fields))


def _given(document: Mapping[str, Any], default_key: str, how: _How) -> BatchItem | str:
    if not isinstance(document.get("prompt"), str):
        return f"it is no JSON object with a prompt{suggestion('prompt', document)}"
    if foreign := sorted(set(document) - _NAMES - set(how.wanted)):
        return f"{one_line(foreign[0], _SHOWN)!r} is none of key, prompt, project and extra"
    key, project, extra = document.get("key", default_key), document.get("project"), document.get("extra")
    key = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(key, str) or not (project is None or isinstance(project, str)):
        return "its key or project is no text"
    if not (extra is None or isinstance(extra, dict)):
        return "its extra is no JSON object"
    if not key:
        return "its key is empty"
    return BatchItem(key, document["prompt"], project, extra=how.extra_of(document, extra))


def show_invalid(screen: Screen, invalid: InvalidPrompt) -> None:
    """Show a prompt that is not sent, and why."""
    screen.notice(f"{in_words(invalid.name)} ", ("refused", "bold red"), f": {invalid.reason}")


def show_all_invalid(screen: Screen, prompts: Prompts, items: InvalidItems) -> list[InvalidPrompt]:
    """Show the prompts that are not sent, those whose items a journal refused too, and the repeats; return the first.

    Args:
        screen: The screen to write to.
        prompts: The prompts.
        items: The items that the journal refused.
    """
    all_invalid = [*prompts.invalid, *(InvalidPrompt(item.key, str(why), key=item.key) for item, why in items)]
    for invalid in all_invalid:
        show_invalid(screen, invalid)
    show_repeats(screen, prompts)
    return all_invalid


def show_repeats(screen: Screen, prompts: Prompts) -> None:
    """Show which prompts occurred before; they are sent all the same."""
    if prompts.repeats:
        shown = ", ".join(prompts.repeats[:_MOST_REPEATS]) + ", …" * (len(prompts.repeats) > _MOST_REPEATS)
        screen.notice(f"The same prompt as an earlier item ({len(prompts.repeats)}): {shown}")
