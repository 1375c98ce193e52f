"""The options that several commands share, and how the text of an option is read."""

import functools
import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from agentjobs_async import InvalidInputError, batch
from agentjobs_async._text import one_line
from agentjobs_async.cli._input.encodings import encoding_of
from agentjobs_async.cli._input.extras import ExtraField, Extras
from agentjobs_async.cli._input.limits import duration_of, number_of, rate_of, whole_of
from agentjobs_async.cli._input.own_journals import BESIDE
from agentjobs_async.cli._input.prompts import prompts_of
from agentjobs_async.cli._input.records import FORMATS
from agentjobs_async.cli._input.tables import delimiter_of

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]


class _Text(click.types.StringParamType):
    """Text that is not empty: an empty one comes from an unset variable of a shell."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("it is empty; is a variable unset?", param, ctx)
        return super().convert(value, param, ctx)


class Read(_Text):
    """Text that a function reads, whose InvalidInputError becomes click's error of the option."""

    def __init__(self, read: Callable[[str], object]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return what the function makes of the text, or fail."""
        text = super().convert(value, param, ctx)
        try:
            return self._read(text)
        except InvalidInputError as error:
            defect = str(error)
        return self.fail(defect, param, ctx)


class WholeNumber(click.IntRange):
    """A whole number in a range."""

    def _describe_range(self) -> str:
        return _in_words(self)


class FiniteNumber(click.FloatRange):
    """A number in a range. NaN is in every range that click knows."""

    def _describe_range(self) -> str:
        return _in_words(self)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{one_line(str(value), 60)} is no finite number.", param, ctx)
        return number


def _in_words(bounds: click.IntRange | click.FloatRange) -> str:
    if bounds.max is not None:
        return f"from {bounds.min} to {bounds.max}"
    return f"above {bounds.min}" if bounds.min_open else f"from {bounds.min} on"


class _Share(FiniteNumber):
    """A share as a percentage: `5%` is 0.05."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).endswith("%"):
            self.fail(f"{one_line(str(value), 60)} is no percentage, such as 5%.", param, ctx)
        return super().convert(str(value).removesuffix("%"), param, ctx) / 100


TEXT: Final = _Text()
WRITTEN_FILE: Final = _Text()
"""The type of every option that names a file to write: `command` checks it before the command runs."""
COUNT: Final = Read(whole_of)
SHARE: Final = _Share(0, 100)
DURATION: Final = Read(duration_of)


def joined(options: Mapping[str, Option], join: Callable[..., Mapping[str, Any]]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, which gets what `join` makes of them.

    Args:
        options: The options by the names of their values, in the order of the help page.
        join: Called with the values by their names; returns arguments of the command by theirs.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_joined(**values: Any) -> Any:
            arguments = join(**{name: values.pop(name) for name in options if name in values})
            return command(**arguments, **values)

        found: Any = with_joined
        for option in reversed(list(options.values())):
            found = option(found)
        return cast("Command", found)

    return decorate


JSON_OPTION: Final = click.option("--json", "as_json", is_flag=True, help="Write JSON, for machines.")
YES_OPTION: Final = click.option("--yes", "is_confirmed", is_flag=True, help="Do it without asking.")
PROMPTS_OPTION: Final = click.option(
    "--prompts/--no-prompts", default=True, help="Whether the prompts are shown.  [default: prompts]"
)


def timeout_option(default: float, words: str, *, endless: str = "") -> Option:
    """Return `--timeout`; with words of `endless`, `none` is allowed."""
    read = Read(partial(number_of, unit="seconds", endless=endless))
    return click.option(
        "--timeout", metavar="SECONDS", type=read, default=f"{default:g}", show_default=True, help=words
    )


# Limits


_DEFAULTS: Final = batch.Limits()


def _kept_or(default: object) -> str:
    """Return how help shows the default of a limit; click would put it in brackets of its own."""
    shown = "none" if default is None else f"{default:g}"
    return f"  [default: as the journal keeps it, else {shown}]"


MAX_ACTIVE: Final = click.option(
    "--max-active",
    metavar="N",
    type=Read(partial(whole_of, endless="for no limit")),
    help=f"Jobs active at once, or none.{_kept_or(_DEFAULTS.max_active)}",
)
CREATE_RATE: Final = click.option(
    "--create-rate",
    metavar="N/TIME",
    type=Read(rate_of),
    help="At most so many creates of each project in any span of a time, such as 100/h or 5/2h (s, m, h, d); 1/36s"
    f" spaces them evenly; 100/h/all for all projects together; or none.{_kept_or(_DEFAULTS.create_rate)}",
)
_MAX_SENDING: Final = click.option(
    "--max-sending",
    metavar="N",
    type=Read(partial(whole_of, endless="for no limit")),
    help=f"Creates in flight at once, or none: what one crash can leave unknown.{_kept_or(_DEFAULTS.max_sending)}",
)
_POLLS_PER_SECOND: Final = click.option(
    "--polls-per-second",
    metavar="N",
    type=Read(partial(number_of, endless="for no limit")),
    help="Polls that start per second, or none; runs and workers of a database share it equally."
    f"{_kept_or(_DEFAULTS.polls_per_second)}",
)
_UNKNOWN_FOR: Final = click.option(
    "--unknown-for",
    metavar="SECONDS",
    type=Read(partial(number_of, unit="seconds", endless="without end", zero=True)),
    help="Seconds for which an unknown item counts as active: its agent may be at work. 0: not at all; none: for ever."
    f"{_kept_or(_DEFAULTS.unknown_for)}",
)
_TIMEOUT: Final = click.option(
    "--timeout",
    metavar="SECONDS",
    type=Read(partial(number_of, unit="seconds", endless="to wait for ever")),
    help=f"For each job, its create included, in each run or worker; none waits for ever.{_kept_or(_DEFAULTS.timeout)}",
)
LIMITS: Final[Mapping[str, Option]] = {
    "max_active": MAX_ACTIVE,
    "create_rate": CREATE_RATE,
    "max_sending": _MAX_SENDING,
    "polls_per_second": _POLLS_PER_SECOND,
    "unknown_for": _UNKNOWN_FOR,
    "timeout": _TIMEOUT,
}
"""The option of each limit, by its name in `Limits`."""
MAX_TRIES: Final = click.option(
    "--max-tries", metavar="N", type=WholeNumber(min=2), help="Only items that had fewer than N tries."
)
_ALL_TRIES: Final = click.option(
    "--tries",
    type=click.Choice(["last", "all"]),
    default="last",
    show_default=True,
    help="Of an item that was retried: its last try, or all, each with its number.",
)
all_tries_option: Final = joined({"tries": _ALL_TRIES}, lambda tries: {"all_tries": tries == "all"})
"""Add `--tries`; the command gets whether it says all as `all_tries`."""
LIMIT: Final = click.option("--limit", metavar="N", type=COUNT, help="Start at most N items.")


def _tries(max_tries: int | None, *, retry_failed: bool) -> Mapping[str, Any]:
    """Return how many tries an item may have in all, as `max_tries`: one unless it is tried again; `None` for any."""
    if max_tries is not None and not retry_failed:
        raise InvalidInputError("--max-tries is the bound of --retry-failed: give both")
    return {"max_tries": max_tries if retry_failed else 1}


def tries_options(words: str) -> Callable[[Command], Command]:
    """Add `--retry-failed` with this help, and `--max-tries`; the command gets the tries of an item as `max_tries`."""
    retry_failed = click.option("--retry-failed", is_flag=True, help=words)
    return joined({"retry_failed": retry_failed, "max_tries": MAX_TRIES}, _tries)


def limit_options(**options: Option) -> Callable[[Command], Command]:
    """Add the options of limits; the command gets those that were given as `limits`: the journal keeps the others."""

    def given(**values: Any) -> Mapping[str, Any]:
        source = click.get_current_context().get_parameter_source
        return {
            "limits": {name: value for name, value in values.items() if source(name) is not ParameterSource.DEFAULT}
        }

    return joined(options, given)


# The input

_INPUT_OPTIONS: Final = {
    "prompts": click.argument("prompts", metavar="[PROMPT]...", nargs=-1),
    "file": click.option(
        "--file",
        metavar="FILE",
        type=TEXT,
        help="Prompts, one per line, or records: CSV or JSON Lines. - is standard input.",
    ),
    "form": click.option(
        "--input-format",
        "form",
        metavar="FORMAT",
        type=click.Choice(FORMATS),
        help=f"The format of the file: {', '.join(FORMATS)}.  [default: by its suffix and first line]",
    ),
    "delimiter": click.option(
        "--delimiter",
        metavar="CHARACTER",
        type=Read(delimiter_of),
        help="What stands between two cells of CSV, such as ';' or tab.  [default: its line sep=; or a comma]",
    ),
    "encoding": click.option(
        "--encoding",
        metavar="NAME",
        type=Read(encoding_of),
        help="The encoding of the file, such as cp1252 or utf-16.  [default: utf-8]",
    ),
    "key": click.option(
        "--key", metavar="NAME", type=TEXT, help="The column or field of keys.  [default: the record's number]"
    ),
    "template": click.option(
        "--prompt",
        "template",
        metavar="TEMPLATE",
        type=TEXT,
        help="The prompt of each record, such as 'Document {title}: {body}'.",
    ),
    "extras": click.option(
        "--extra",
        "extras",
        metavar="NAME=TEMPLATE",
        type=Read(ExtraField.of),
        multiple=True,
        help="One more field of each create, such as 'branch={branch}', from a column or field; repeatable.",
    ),
    "allow_empty": click.option(
        "--allow-empty", is_flag=True, help="Send a prompt of which a column or field is empty or missing, too."
    ),
}
input_options: Final = joined(_INPUT_OPTIONS, lambda prompts, **how: {"prompts": prompts_of(prompts, **how)})
"""Add the prompts and the options of an input; the command gets what they say as `prompts`."""

extra_option: Final = joined(
    {
        "extras": click.option(
            "--extra",
            "extras",
            metavar="NAME=TEXT",
            type=Read(ExtraField.of),
            multiple=True,
            help="One more field of the create, such as branch=main; repeatable.",
        )
    },
    lambda extras: {"extra": Extras.of(extras).constants()},
)
"""Add `--extra` for one prompt; the command gets the fields as `extra`, empty without any."""


# The journal, and which of its items


def journal_option(words: str, *, required: bool = True) -> Option:
    """Return `--journal`, which may come from the environment: a URL may contain a password."""
    words = f"{words}  [env var: AGENTJOBS_JOURNAL]"
    return click.option(
        "--journal", metavar="FILE|URL", type=TEXT, envvar="AGENTJOBS_JOURNAL", required=required, help=words
    )


def journal_argument(words: str, example: str | None, *, exists: bool = True) -> Callable[[Command], Command]:
    """Add a first argument and `--journal`; the command gets the one that is given, an argument first, as `journal`.

    Args:
        words: The help of `--journal`.
        example: A command with its journal, shown where none is given; `None`: the command gets `None`.
        exists: Whether it must exist.
    """

    def named(location: str | None, journal: str | None) -> Mapping[str, Any]:
        found = location or journal
        if found is None and example is not None:
            raise InvalidInputError(f"give the journal: {example}")
        return {"journal": _existing(found) if exists and found is not None else found}

    argument = click.argument("location", metavar="[FILE|URL]", required=False, type=TEXT)
    return joined({"location": argument, "journal": journal_option(words, required=False)}, named)


def journal_before_keys(example: str, keys: str) -> Callable[[Command], Command]:
    """Add `--journal` and arguments: keys, and before them the journal, unless the option or the environment names it.

    Args:
        example: A command with its journal, shown where none is given.
        keys: How the usage shows the keys.
    """

    def named(given: tuple[str, ...], journal: str | None) -> Mapping[str, Any]:
        found = given if journal is None else (journal, *given)
        if not found:
            raise InvalidInputError(f"give the journal: {example}")
        return {"journal": _existing(found[0]), "keys": found[1:]}

    argument = click.argument("given", metavar=f"[FILE|URL] {keys}", nargs=-1)
    option = journal_option("The journal; if it is a file, no run may be using it.", required=False)
    return joined({"given": argument, "journal": option}, named)


def _existing(journal: str) -> str:
    """Return the file or URL of a journal.

    Raises:
        InvalidInputError: There is no such file.
    """
    if not batch.Journal.open(journal).is_shared and not Path(journal).exists():
        raise InvalidInputError(f"there is no journal {one_line(journal, 200)}")
    return journal


def journal_files(journal: str) -> list[str]:
    """Return the paths of the files of a journal, which need not exist; none if it is on a server."""
    if batch.Journal.open(journal).is_shared:
        return []
    return [f"{os.path.realpath(journal)}{suffix}" for suffix in BESIDE]


_FILTER_OPTIONS: Final = {
    "states": click.option(
        "--state",
        "states",
        metavar="STATE",
        multiple=True,
        type=click.Choice([state.value for state in batch.State]),
        help=f"Items in this state, repeatable: {', '.join(batch.State)}.",
    ),
    "text": click.option(
        "--grep", "text", metavar="TEXT", type=TEXT, help="Items with this text in key, prompt or error (same case)."
    ),
    "key": click.option("--key", metavar="KEY", type=TEXT, help="The item of this key."),
    "prefix": click.option(
        "--prefix",
        metavar="TEXT",
        type=TEXT,
        help="Items whose keys begin with this text, such as chat-7/.",
    ),
    "project": click.option("--project", metavar="ID", type=TEXT, help="Items of this project."),
    "older_than": click.option(
        "--older-than", metavar="AGE", type=DURATION, help="Last changed at least this long ago: 90s, 30m, 6h or 2d."
    ),
}


def _where(states: tuple[batch.State, ...], **others: Any) -> Mapping[str, Any]:
    return {"where": batch.Where(states=states or None, **others)}


def options_of(where: batch.Where) -> list[str]:
    """Return the options that name the items which meet these conditions."""
    named = [("--state", state.value) for state in batch.State if state in (where.states or ())]
    texts = {"--grep": where.text, "--key": where.key, "--prefix": where.prefix, "--project": where.project}
    named += [(name, text) for name, text in texts.items() if text is not None]
    if where.older_than is not None:
        named.append(("--older-than", f"{_in_digits(where.older_than)}s"))
    return list(chain.from_iterable(named))


def _in_digits(seconds: float) -> str:
    """Return a number of seconds as an option is given it, to the microsecond: never with an exponent."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


filter_options: Final = joined(_FILTER_OPTIONS, _where)
"""Add the options that name items; the command gets them as `where`, which is `Where()` without any."""
