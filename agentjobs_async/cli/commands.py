"""The commands and their options; the only module that knows click."""

import functools
import io
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from agentjobs_async import InvalidInputError, __version__
from agentjobs_async._text import one_line
from agentjobs_async.cli import actions
from agentjobs_async.cli._output.streams import guarded, silence
from agentjobs_async.cli.actions import DEFAULT_ACTIVE, DEFAULT_TIMEOUT, Options
from agentjobs_async.cli.emulation import emulate
from agentjobs_async.cli.outcomes import ExitCode, described
from agentjobs_async.cli.process import run_action
from agentjobs_async.cli.prompts import checked_prompts, prompts_of
from agentjobs_async.cli.service import Service
from agentjobs_async.cli.wrapping import fitted, wrapped

if TYPE_CHECKING:
    from agentjobs_async.cli.ending import BatchOptions

__all__ = ["run_command"]

Command = TypeVar("Command", bound=Callable[..., Any])

_WIDEST_HELP, _NARROW = 80, 58
_EXIT_CODES: Final = """\b
Exit codes:
  0    {success}
  1    some failed, were archived, or were refused by the service
  2    wrong usage, nothing was sent
  3    the API key was refused
  4    some are unfinished (timed out, unreadable), unknown, or were not sent
  130  stopped by Ctrl-C; 143 by SIGTERM; the jobs go on remotely
  141  nobody reads the output any more, as after | head
If several apply: 3, then 4, then 1.
"""
_ALL_COMPLETED: Final = _EXIT_CODES.format(success="all completed")
_CREATED_LINE: Final = "  created  number job status prompt\n"
_JSON_LINES: Final = """\b
With --json each line of output is one JSON object:
{created}  status   number job status               at first sight, and when it changes
  trouble  job error                       it can't be read for the time being
  ended    number job status prompt outcome pr_link error
  summary  outcomes exit_code              the last line
Its name is in "event"; an outcome is one of completed, failed, archived,
rejected, not_sent, unknown, timed_out, unfinished.
"""
_JOURNAL_LINES: Final = """\b
With --journal each item has its key as well, and number is its place there;
the summary counts the items of the journal. Of a task that was refused
before anything was sent there is an ended line with number null.
--out gets the ended lines, each end of an item exactly once.
"""


def run_command(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, and give its exit code."""
    stdout = sys.stdout
    try:
        return int(_agentjobs.main(list(arguments), prog_name="agentjobs", standalone_mode=False) or 0)
    except click.ClickException as error:
        _tell(_shown(error))
        return error.exit_code
    except click.Abort:
        return 130
    except InvalidInputError as error:
        _tell(f"Error: {described(error)}")
        return ExitCode.USAGE
    except OSError as error:
        # Only click's own output can fail here: a help page, or a version.
        silence(sys.stdout)
        _tell(f"Error: the output can't be written: {error.strerror}")
        return ExitCode.UNFINISHED
    except SystemExit:
        # click replaces the stream whose reader left, and would end with 1, which means something else here.
        if sys.stdout is stdout:
            raise
        return ExitCode.BROKEN_PIPE


def _shown(error: click.ClickException) -> str:
    """Return click's words; they quote what was typed, or pasted."""
    words = io.StringIO()
    error.show(words)
    return "\n".join(one_line(line) for line in words.getvalue().splitlines())


def _tell(text: str) -> None:
    """Write to standard error, which may be closed, or on a full disk."""
    stream = guarded(sys.stderr)
    stream.write(f"{fitted(text, stream)}\n")
    stream.flush()


class _Text(click.types.StringParamType):
    """Text that says something: an empty one comes from an unset variable of a shell."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("it is empty; is a variable unset?", param, ctx)
        return super().convert(value, param, ctx)


class _Finite(click.FloatRange):
    """A number in a range; NaN is in every range that click knows."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{one_line(str(value), 60)} is no finite number.", param, ctx)
        return number


class _Share(_Finite):
    """A share as a percentage: `5%` is 0.05."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).endswith("%"):
            self.fail(f"{one_line(str(value), 60)} is no percentage, such as 5%.", param, ctx)
        return super().convert(str(value).removesuffix("%"), param, ctx) / 100


_TEXT: Final = _Text()
_SHARE: Final = _Share(0, 100)


def _order_options(timeout: float, words: str, *, endless: bool = False) -> Callable[[Command], Command]:
    """Add the options that several commands have in common; the command gets what they say as `order`.

    Args:
        timeout: The default of `--timeout`, in seconds.
        words: What the timeout is for.
        endless: Whether `none` may be given for it.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_order(*, timeout: str, machine: bool, **rest: Any) -> Any:
            service = Service.of(**{name: rest.pop(name) for name in _SERVICE_SETTINGS if name in rest})
            return command(order=Options(service, _seconds(timeout, endless=endless), machine), **rest)

        patience = click.option(
            "--timeout", metavar="SECONDS", type=_TEXT, default=f"{timeout:g}", show_default=True, help=words
        )
        for option in reversed((patience, *_SERVICE_OPTIONS, _JSON_OPTION)):
            with_order = option(with_order)
        return with_order  # type: ignore[return-value]  # click sees a command's options, not its signature

    return decorate


def _seconds(text: str, *, endless: bool) -> float | None:
    if endless and text == "none":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds < math.inf:
        return seconds
    wanted = "a finite number of seconds above 0" + ", or none to wait for ever" * endless
    raise InvalidInputError(f"--timeout: {one_line(text, 60)} is not {wanted}")


_SERVICE_SETTINGS: Final = ("base_url", "project_id", "key_file", "allow_insecure", "emulated")
_SERVICE_OPTIONS: Final = (
    click.option(
        "--base-url", metavar="URL", type=_TEXT, help="Address of the service.  [env var: AGENTJOBS_BASE_URL]"
    ),
    click.option(
        "--project",
        "project_id",
        metavar="ID",
        type=_TEXT,
        help="Project of prompts and bare job ids.  [env var: AGENTJOBS_PROJECT_ID]",
    ),
    click.option(
        "--key-file", metavar="FILE", type=_TEXT, help="File with the API key.  [else env var: AGENTJOBS_API_KEY]"
    ),
    click.option("--allow-insecure", is_flag=True, help="Allow plain http: the key crosses the network readable."),
)
_JSON_OPTION: Final = click.option("--json", "machine", is_flag=True, help="Write JSON, for machines.")


class _Formatter(click.HelpFormatter):
    """Help pages for terminals of any width; click's have 50 columns at least."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        columns = min(shutil.get_terminal_size().columns, max_width or _WIDEST_HELP)
        super().__init__(indent_increment, columns - 2 if width is None else width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        if self.width >= _NARROW:
            super().write_dl(list(rows), col_max, col_spacing)
            return
        for term, words in rows:
            self.write(f"{' ' * self.current_indent}{term}\n")
            self.write(f"{wrapped(words, self.width, indent=self.current_indent + 4)}\n" if words else "")

    def write_text(self, text: str) -> None:
        before = len(self.buffer)
        super().write_text(text)
        lines = "".join(self.buffer[before:]).splitlines()
        self.buffer[before:] = [f"{wrapped(line, self.width)}\n" for line in lines]


class _Context(click.Context):
    formatter_class = _Formatter


class _Command(click.Command):
    context_class = _Context


class _Group(click.Group):
    context_class = _Context
    command_class = _Command


@click.group(cls=_Group, epilog=_ALL_COMPLETED, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def _agentjobs() -> None:
    """Create background agent jobs and wait for them."""


_EMULATOR_OPTION: Final = click.option(
    "--emulator",
    "emulated",
    is_flag=True,
    help="Run on an emulator in this process: no service, key or real agents.",
)
_BATCH_OPTIONS: Final = (
    click.option(
        "--max-active",
        type=click.IntRange(min=1),
        default=DEFAULT_ACTIVE,
        show_default=True,
        help="Jobs active at once.",
    ),
    click.option(
        "--create-rate",
        metavar="N/UNIT",
        type=_TEXT,
        help="Creates per s, m, h or d and project, such as 100/h; 100/h/all for all together.  [default: none]",
    ),
    click.option("--max-failures", type=click.IntRange(min=1), help="Begin nothing more after so many failures."),
    click.option("--limit", type=click.IntRange(min=1), help="Begin at most so many items."),
    click.option("--retry-failed", is_flag=True, help="Plan what failed or was rejected once more, as KEY#2."),
    click.option(
        "--out",
        metavar="FILE",
        type=_TEXT,
        help="Append each result as a line of JSON, those of earlier runs that it lacks too.",
    ),
)


def _batch_options(command: Command) -> Command:
    """Add the options of a batch; the command gets them as `settings`."""

    @functools.wraps(command)
    def with_settings(**options: Any) -> Any:
        names = ("max_active", "create_rate", "max_failures", "limit", "retry_failed", "out")
        return command(settings={name: options.pop(name) for name in names}, **options)

    for option in reversed(_BATCH_OPTIONS):
        with_settings = option(with_settings)
    return with_settings  # type: ignore[return-value]  # click sees a command's options, not its signature


def _batch_order(order: Options, journal: str, settings: dict[str, Any]) -> "BatchOptions":
    from agentjobs_async.cli.ending import BatchOptions  # noqa: PLC0415 - the extra batch may not be installed
    from agentjobs_async.cli.tasks import rate_of  # noqa: PLC0415 - as above

    rate = rate_of("none" if settings["create_rate"] is None else settings["create_rate"])
    return BatchOptions(order=order, journal=journal, **{**settings, "create_rate": rate})


def _journal_option(words: str) -> Callable[[Command], Command]:
    """Add `--journal`, which may come from the environment: an address may hold a password."""
    words = f"{words}  [env var: AGENTJOBS_JOURNAL]"
    return click.option(
        "--journal", metavar="FILE|URL", type=_TEXT, envvar="AGENTJOBS_JOURNAL", required=True, help=words
    )


@_agentjobs.command(
    "run",
    short_help="Create jobs and wait for all of them.",
    epilog=f"{_JSON_LINES.format(created=_CREATED_LINE)}\n{_JOURNAL_LINES}\n{_ALL_COMPLETED}",
)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@click.option(
    "--file", metavar="FILE", type=_TEXT, help="One prompt per line; blank lines don't count. - is standard input."
)
@click.option(
    "--journal", metavar="FILE", type=_TEXT, help="Keep what becomes of each there, so that resume can go on."
)
@click.option("--dry-run", is_flag=True, help="With --journal: tell what would be sent, and what refused.")
@_EMULATOR_OPTION
@_batch_options
@_order_options(DEFAULT_TIMEOUT, "For each job, from its create on; none is for ever.", endless=True)
def _run(
    order: Options,
    prompts: tuple[str, ...],
    file: str | None,
    journal: str | None,
    settings: dict[str, Any],
    *,
    dry_run: bool,
) -> int:
    """Create a job for each PROMPT and wait for all of them.

    Each change is a line, and a table comes at the end. One that fails disturbs no other.

    With --journal, what was sent and what became of it survives any end of this command. A line of the file is
    then a prompt, or a JSON object with prompt, and key and project where wanted.
    """
    if journal is None:
        given = {"dry_run": dry_run, **settings, "max_active": None}
        if needing := [name for name, value in given.items() if value]:
            raise InvalidInputError(f"--{needing[0].replace('_', '-')} needs --journal FILE")
        checked = prompts_of(prompts, file)
        if not prompts and checked[0].lstrip().startswith("{"):
            raise InvalidInputError("--file holds JSON Lines: they need --journal FILE; else each line is a prompt")
        if len(prompts) > 1 and not any(" " in prompt for prompt in prompts):
            _tell(f"{len(prompts)} prompts of one word each: put a prompt of several words in quotes")
        return run_action(lambda context: actions.run_prompts(context, order, checked, settings["max_active"]))
    from agentjobs_async.cli import batches  # noqa: PLC0415 - the extra batch may not be installed
    from agentjobs_async.cli.tasks import tasks_of  # noqa: PLC0415 - as above

    tasks = tasks_of(prompts, file)
    batch = _batch_order(order, journal, settings)
    if dry_run:
        return run_action(lambda context: batches.show_what_would_be_sent(context, journal, tasks))
    return run_action(lambda context: batches.run_tasks(context, batch, tasks))


@_agentjobs.command(
    "resume",
    short_help="Go on with a journal.",
    epilog=f"{_JSON_LINES.format(created=_CREATED_LINE)}\n{_JOURNAL_LINES}\n{_ALL_COMPLETED}",
)
@_journal_option("The journal of an earlier run.")
@_EMULATOR_OPTION
@_batch_options
@_order_options(DEFAULT_TIMEOUT, "For each job, from its create on; none is for ever.", endless=True)
def _resume(order: Options, journal: str, settings: dict[str, Any]) -> int:
    """Go on where a run with a journal stopped.

    What was planned is sent, what was created is waited for. What was being sent when that run ended is unknown:
    it is listed, and not sent again; see agentjobs resolve.
    """
    from agentjobs_async.cli import batches  # noqa: PLC0415 - the extra batch may not be installed

    batch = _batch_order(order, _existing(journal), settings)
    return run_action(lambda context: batches.run_tasks(context, batch, batches.NO_TASKS))


@_agentjobs.command("status", short_help="Show what a journal holds.", epilog=_ALL_COMPLETED)
@_journal_option("The journal; a run may be using it.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "jsonl"]),
    default="table",
    show_default=True,
    help="A table for people, one in Markdown, or a JSON object per row.",
)
def _status(journal: str, form: str) -> int:
    """Show what a journal holds, while a run uses it or later. The exit code is that of all items."""
    from agentjobs_async.cli import batches  # noqa: PLC0415 - the extra batch may not be installed

    existing = _existing(journal)
    return run_action(lambda context: batches.show_status(context, existing, form))


@_agentjobs.command("resolve", short_help="Settle an item that nobody is sure of.", epilog=_ALL_COMPLETED)
@click.argument("key")
@_journal_option("The journal; no run may be using a file.")
@click.option(
    "--job",
    "job_id",
    metavar="JOB",
    type=_TEXT,
    help="The job that you found: its id, or its token project/job, in which %2F stands for a slash of an id. "
    "resume waits for it.",
)
@click.option("--send-again", is_flag=True, help="There is none, or a second one does no harm; resume creates it.")
@click.option("--abandon", is_flag=True, help="End it as failed, whatever became of its job; nothing is waited for.")
def _resolve(key: str, journal: str, job_id: str | None, *, send_again: bool, abandon: bool) -> int:
    """Settle the item KEY, which may have started an agent: look at the project first.

    --abandon also ends an item whose job can't be read any more.
    """
    from agentjobs_async.cli import batches  # noqa: PLC0415 - the extra batch may not be installed

    if (job_id is not None) + send_again + abandon != 1:
        raise InvalidInputError("give either --job ID or --send-again, or --abandon")
    existing = _existing(journal)
    if abandon:
        return run_action(lambda context: batches.abandon_row(context, existing, key))
    return run_action(lambda context: batches.resolve_row(context, existing, key, job_id))


@_agentjobs.command(
    "submit",
    short_help="Hand tasks to workers on many machines.",
    epilog=_EXIT_CODES.format(success="all were submitted"),
)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@click.option("--file", metavar="FILE", type=_TEXT, help="As in agentjobs run. - is standard input.")
@_journal_option("The journal of all workers, such as postgresql+psycopg://host/database.")
@click.option(
    "--max-active", metavar="N", type=_TEXT, help="Jobs active at once over all workers, or none.  [default: as it is]"
)
@click.option(
    "--create-rate",
    metavar="N/UNIT",
    type=_TEXT,
    help="Creates over all workers, as in agentjobs run, or none.  [default: as it is]",
)
@click.option("--chunk", type=click.IntRange(1, 1000), default=100, show_default=True, help="Items a worker takes.")
def _submit(prompts: tuple[str, ...], journal: str, file: str | None, chunk: int, **limits: str | None) -> int:
    """Plan a task for each PROMPT, and hand them to the workers that use the same journal.

    Submitting the same again goes on where a submission was cut off. The limits hold for all workers, at once.
    """
    from agentjobs_async.cli import fleet  # noqa: PLC0415 - the extra procrastinate may not be installed
    from agentjobs_async.cli.tasks import limits_of, tasks_of  # noqa: PLC0415 - as above

    order = fleet.SubmitOrder(journal, chunk, limits_of(**limits))
    tasks = tasks_of(prompts, file)
    return run_action(lambda context: fleet.submit_tasks(context, order, tasks))


@_agentjobs.command(
    "worker",
    short_help="Work off what was submitted, with others.",
    epilog=_EXIT_CODES.format(success="it was not stopped by a signal"),
)
@_journal_option("The journal of all workers, such as postgresql+psycopg://host/database.")
@click.option("--chunks", type=click.IntRange(min=1), default=100, show_default=True, help="Tasks taken at once.")
@click.option(
    "--max-sending", type=click.IntRange(min=1), default=10, show_default=True, help="Creates under way at once."
)
@click.option("--out", metavar="FILE", type=_TEXT, help="Append each result as a line of JSON.")
@_EMULATOR_OPTION
@_order_options(DEFAULT_TIMEOUT, "For each job, each time it is waited for; none is for ever.", endless=True)
def _worker(order: Options, journal: str, chunks: int, max_sending: int, out: str | None) -> int:
    """Create and wait for what agentjobs submit planned, beside any number of other workers, until it is stopped.

    Ctrl-C and SIGTERM begin nothing more, wait up to 10 s for answers, give the rest back, and end within 30 s.
    What a worker that dies was sending is unknown: at most as many as --max-sending; see agentjobs resolve.
    """
    from agentjobs_async.cli import fleet  # noqa: PLC0415 - the extra procrastinate may not be installed

    worker = fleet.WorkerOrder(order, journal, chunks, max_sending, out)
    return run_action(lambda context: fleet.work(context, worker))


def _existing(journal: str) -> str:
    from agentjobs_async.batch import Journal  # noqa: PLC0415 - the extra batch may not be installed

    if not Journal.open(journal).is_shared and not Path(journal).exists():
        raise InvalidInputError(f"--journal: there is no {one_line(journal, 200)}")
    return journal


@_agentjobs.command(
    "create",
    short_help="Create a job and print its token project/job.",
    epilog=_EXIT_CODES.format(success="the job was created"),
)
@click.argument("prompt")
@_order_options(120.0, "Give up after this long, retries included.")
def _create(order: Options, prompt: str) -> int:
    """Create a job for PROMPT and print its token project/job, without waiting for it."""
    (checked,) = checked_prompts((prompt,))
    return run_action(lambda context: actions.create_job(context, order, checked))


@_agentjobs.command("get", short_help="Read one job once.", epilog=_EXIT_CODES.format(success="the job was read"))
@click.argument("job")
@_order_options(30.0, "For the answer.")
def _get(order: Options, job: str) -> int:
    """Read JOB once: a token project/job, or the id of a job in --project.

    The exit code is 0 when it could be read, whatever its status.
    """
    return run_action(lambda context: actions.get_job(context, order, job))


@_agentjobs.command(
    "wait", short_help="Wait until jobs have ended.", epilog=f"{_JSON_LINES.format(created='')}\n{_ALL_COMPLETED}"
)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@_order_options(DEFAULT_TIMEOUT, "For each job; none is for ever.", endless=True)
def _wait(order: Options, jobs: tuple[str, ...]) -> int:
    """Wait until every JOB has ended: tokens project/job, or ids of jobs in --project."""
    return run_action(lambda context: actions.wait_for_jobs(context, order, jobs))


@_agentjobs.command("emulator", short_help="Run an emulator of the service until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes any that is free."
)
@click.option(
    "--speed",
    type=_Finite(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="How many times faster than life jobs of 1 to 5 minutes run.",
)
@click.option(
    "--fault",
    metavar="PLAN",
    type=_TEXT,
    help="Misbehave, such as '503 x3 then hang:body'; see agentjobs_async.testing.Fault.",
)
@click.option(
    "--fail",
    "failed",
    metavar="SHARE",
    type=_SHARE,
    default="0%",
    show_default=True,
    help="The share of jobs that end as failed, such as 5%.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The same seed gives each prompt the same duration and end."
)
@click.option("--quiet", is_flag=True, help="Don't show each request.")
def _emulator(port: int, speed: float, fault: str | None, failed: float, seed: int, *, quiet: bool) -> int:
    """Run an emulator of the service on this machine until Ctrl-C.

    Prints the lines that lead the other commands to it, and on standard error one line for each request.
    """
    return run_action(lambda context: emulate(context, port, speed, fault, failed, seed, quiet=quiet))
