"""The options that several commands share."""

import functools
import math
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import click

from agentjobs_async import InvalidInputError
from agentjobs_async._text import one_line
from agentjobs_async.cli.options import ANY_TRIES, DEFAULT_ACTIVE, DEFAULT_TIMEOUT, Options
from agentjobs_async.cli.records import FORMATS
from agentjobs_async.cli.service import Service

Command = TypeVar("Command", bound=Callable[..., Any])


class _Text(click.types.StringParamType):
    """Text that is not empty: an empty one comes from an unset variable of a shell."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("it is empty; is a variable unset?", param, ctx)
        return super().convert(value, param, ctx)


class FiniteNumber(click.FloatRange):
    """A number in a range. NaN is in every range that click knows."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or fail."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{one_line(str(value), 60)} is no finite number.", param, ctx)
        return number


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
SHARE: Final = _Share(0, 100)


def kept_or(default: object) -> str:
    """Return how help shows the default of a limit."""
    return f"as the journal keeps it, else {default}"


EMULATOR_OPTION: Final = click.option(
    "--emulator",
    "emulated",
    is_flag=True,
    help="Run on an emulator in this process: no service, key or real agents.",
)
_SERVICE_SETTINGS: Final = ("base_url", "project_id", "key_file", "allow_insecure", "emulated")
_SERVICE_OPTIONS: Final = (
    click.option("--base-url", metavar="URL", type=TEXT, help="Address of the service.  [env var: AGENTJOBS_BASE_URL]"),
    click.option(
        "--project",
        "project_id",
        metavar="ID",
        type=TEXT,
        help="Project of prompts and bare job ids.  [env var: AGENTJOBS_PROJECT_ID]",
    ),
    click.option(
        "--key-file", metavar="FILE", type=TEXT, help="File with the API key.  [else env var: AGENTJOBS_API_KEY]"
    ),
    click.option("--allow-insecure", is_flag=True, help="Allow plain http: the key crosses the network readable."),
)
_JSON_OPTION: Final = click.option("--json", "as_json", is_flag=True, help="Write JSON, for machines.")


def shared_options(timeout: float | None, words: str, *, endless: bool = False) -> Callable[[Command], Command]:
    """Add the options that several commands share; the command gets them as `options`.

    Args:
        timeout: The default of `--timeout`, in seconds; `None` takes what the journal keeps.
        words: The help of `--timeout`.
        endless: Whether `--timeout none` is allowed.
    """
    default = None if timeout is None else f"{timeout:g}"
    shown = kept_or(f"{DEFAULT_TIMEOUT:g}") if timeout is None else True

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_options(*, timeout: str | None, as_json: bool, **rest: Any) -> Any:
            service = Service.of(**{name: rest.pop(name) for name in _SERVICE_SETTINGS if name in rest})
            seconds = (
                DEFAULT_TIMEOUT
                if timeout is None
                else _seconds("--timeout", timeout, endless="to wait for ever" * endless)
            )
            return command(options=Options(service, seconds, as_json, has_timeout=timeout is not None), **rest)

        seconds = click.option(
            "--timeout", metavar="SECONDS", type=TEXT, default=default, show_default=shown, help=words
        )
        return cast("Command", _with((seconds, *_SERVICE_OPTIONS, _JSON_OPTION), with_options))

    return decorate


ITEM_TIMEOUT: Final = shared_options(None, "For each job, from its create on; none waits for ever.", endless=True)


def given_limits(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the limits that were given, and remove all limits from `settings`.

    Raises:
        InvalidInputError: The rate or the seconds can't be read.
    """
    from agentjobs_async.cli.limits import rate_of  # noqa: PLC0415 - it loads SQLAlchemy

    limits = {name: settings.pop(name, None) for name in ("max_active", "create_rate", "max_sending", "unknown_for")}
    given = {name: value for name, value in limits.items() if value is not None}
    if "create_rate" in given:
        given["create_rate"] = rate_of(given["create_rate"])
    if "unknown_for" in given:
        given["unknown_for"] = _seconds("--unknown-for", given["unknown_for"], endless="without end", zero=True)
    return given


def _seconds(option: str, text: str, *, endless: str, zero: bool = False) -> float | None:
    """Read a number of seconds above 0, or from 0 on with `zero`; where `endless` has words, `none` is `None`."""
    if endless and text == "none":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds < math.inf or (zero and seconds == 0):
        return seconds
    wanted = (
        f"a finite number of seconds {'from 0 on' if zero else 'above 0'}{f', or none {endless}' if endless else ''}"
    )
    raise InvalidInputError(f"{option}: {one_line(text, 60)} is not {wanted}")


_BATCH_SETTINGS: Final = (
    *("max_active", "create_rate", "max_sending", "unknown_for", "max_failures", "limit", "run_for", "max_tries"),
    *("out", "report", "learn"),
)
MAX_ACTIVE: Final = click.option(
    "--max-active",
    type=click.IntRange(min=1),
    show_default=kept_or(DEFAULT_ACTIVE),
    help="Jobs active at once.",
)
CREATE_RATE: Final = click.option(
    "--create-rate",
    metavar="N/UNIT",
    type=TEXT,
    show_default=kept_or("none"),
    help="Creates per s, m, h or d and project, such as 100/h, evenly spaced; 100/h/burst as soon as possible;"
    " 100/h/all for all projects together; none for any number.",
)
RUN_FOR: Final = click.option(
    "--for", "run_for", metavar="TIME", type=TEXT, help="Stop after a time such as 90s, 30m, 5h or 1d."
)
MAX_SENDING: Final = click.option(
    "--max-sending", type=click.IntRange(min=1), show_default=kept_or(10), help="Creates in flight at once."
)
UNKNOWN_FOR: Final = click.option(
    "--unknown-for",
    metavar="SECONDS",
    type=TEXT,
    show_default=kept_or(600),
    help="Seconds for which an unknown item counts as active: its agent may be at work. 0: not at all; none: for ever.",
)
_BATCH_OPTIONS: Final = (
    MAX_ACTIVE,
    CREATE_RATE,
    MAX_SENDING,
    UNKNOWN_FOR,
    click.option("--max-failures", type=click.IntRange(min=1), help="Start no more items after this many failures."),
    click.option("--limit", type=click.IntRange(min=1), help="Start at most this many items."),
    RUN_FOR,
    click.option(
        "--retry-failed",
        "max_tries",
        metavar="[=TRIES]",
        is_flag=False,
        flag_value=ANY_TRIES,
        help="Try failed and rejected items again; with =3 those that had fewer than 3 tries.",
    ),
    click.option(
        "--out",
        metavar="FILE",
        type=WRITTEN_FILE,
        help="Append each result, and those of earlier runs that it lacks: as JSON Lines, or CSV by its suffix.",
    ),
    click.option(
        "--report",
        metavar="FILE",
        type=WRITTEN_FILE,
        help="Write a report at the end, in the format of its suffix: see agentjobs report.",
    ),
    click.option(
        "--learn/--no-learn",
        "learn",
        default=None,
        help="Poll at the ages at which earlier jobs ended.  [default: from 20 ended jobs of a project on]",
    ),
)


def batch_options(command: Command) -> Command:
    """Add the options of a batch; the command gets them as `settings`."""

    @functools.wraps(command)
    def with_settings(**options: Any) -> Any:
        return command(settings={name: options.pop(name) for name in _BATCH_SETTINGS}, **options)

    return cast("Command", _with(_BATCH_OPTIONS, with_settings))


_INPUT_SETTINGS: Final = ("file", "form", "key", "template")
_INPUT_OPTIONS: Final = (
    click.option(
        "--file",
        metavar="FILE",
        type=TEXT,
        help="Prompts, one per line, or records: CSV, TSV, JSON Lines or a JSON array. - is standard input.",
    ),
    click.option(
        "--input-format",
        "form",
        metavar="FORMAT",
        type=click.Choice(FORMATS),
        help=f"The format of the file: {', '.join(FORMATS)}.  [default: by its suffix and first line]",
    ),
    click.option(
        "--key", metavar="NAME", type=TEXT, help="The column or field of keys.  [default: the record's number]"
    ),
    click.option(
        "--prompt",
        "template",
        metavar="TEMPLATE",
        type=TEXT,
        help="The prompt of each record, such as 'Document {title}: {body}'.",
    ),
)


def input_options(command: Command) -> Command:
    """Add the options of an input; the command gets them as `source`, the arguments of `tasks.Input`."""

    @functools.wraps(command)
    def with_source(**options: Any) -> Any:
        return command(source={name: options.pop(name) for name in _INPUT_SETTINGS}, **options)

    return cast("Command", _with(_INPUT_OPTIONS, with_source))


YES_OPTION: Final = click.option("--yes", "is_confirmed", is_flag=True, help="Do it without asking.")


def journal_option(words: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Add `--journal`, which may come from the environment: a URL may contain a password."""
    words = f"{words}  [env var: AGENTJOBS_JOURNAL]"
    return click.option(
        "--journal", metavar="FILE|URL", type=TEXT, envvar="AGENTJOBS_JOURNAL", required=required, help=words
    )


def _with(options: tuple[Callable[[Any], Any], ...], command: Any) -> Any:
    """Add options to a command, in the order of the help page."""
    for option in reversed(options):
        command = option(command)
    return command
