"""The commands and their options; the only module that knows click."""

import functools
import io
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from agentjobs_async import InvalidInputError, __version__
from agentjobs_async._text import one_line
from agentjobs_async.cli import actions
from agentjobs_async.cli.actions import DEFAULT_ACTIVE, DEFAULT_TIMEOUT, Order
from agentjobs_async.cli.emulation import emulate
from agentjobs_async.cli.execution import executed
from agentjobs_async.cli.outcomes import ExitCode, described
from agentjobs_async.cli.prompts import checked_prompts, prompts_of
from agentjobs_async.cli.service import Service

if TYPE_CHECKING:
    from agentjobs_async.cli.batches import BatchOrder

__all__ = ["run_command"]

Command = TypeVar("Command", bound=Callable[..., Any])

_EXIT_CODES: Final = """\b
Exit codes:
  0    {success}
  1    some failed, were archived, or were refused by the service
  2    wrong usage, nothing was sent
  3    the API key was refused
  4    some are unfinished (timed out, unreadable), unsure, or were not sent
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
    except SystemExit:
        # click replaces the stream whose reader left, and would end with 1, which means something else here.
        if sys.stdout is stdout:
            raise
        return ExitCode.BROKEN_PIPE


def _shown(error: click.ClickException) -> str:
    """Give click's words; they quote what was typed, or pasted."""
    words = io.StringIO()
    error.show(words)
    return "\n".join(one_line(line) for line in words.getvalue().splitlines())


def _tell(text: str) -> None:
    click.echo(text, err=True)


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
            return command(order=Order(service, _seconds(timeout, endless=endless), machine), **rest)

        patience = click.option("--timeout", metavar="SECONDS", default=f"{timeout:g}", show_default=True, help=words)
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
    click.option("--base-url", metavar="URL", help="Address of the service.  [env var: AGENTJOBS_BASE_URL]"),
    click.option(
        "--project",
        "project_id",
        metavar="ID",
        help="Project of prompts and bare job ids.  [env var: AGENTJOBS_PROJECT_ID]",
    ),
    click.option("--key-file", metavar="FILE", help="File with the API key.  [else env var: AGENTJOBS_API_KEY]"),
    click.option("--allow-insecure", is_flag=True, help="Allow plain http: the key crosses the network readable."),
)
_JSON_OPTION: Final = click.option("--json", "machine", is_flag=True, help="Write JSON, for machines.")


@click.group(epilog=_ALL_COMPLETED, context_settings={"help_option_names": ["-h", "--help"]})
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
    click.option("--create-rate", metavar="N/UNIT", help="Creates per s, m, h or d, such as 100/h.  [default: none]"),
    click.option("--max-failures", type=click.IntRange(min=1), help="Begin nothing more after so many failures."),
    click.option("--limit", type=click.IntRange(min=1), help="Begin at most so many items."),
    click.option("--retry-failed", is_flag=True, help="Plan what failed or was rejected once more, as KEY#2."),
    click.option("--out", metavar="FILE", help="Append each result as a line of JSON."),
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


def _batch_order(order: Order, journal: str, settings: dict[str, Any]) -> "BatchOrder":
    from agentjobs_async.cli.batches import BatchOrder  # noqa: PLC0415 - the extra batch may not be installed
    from agentjobs_async.cli.tasks import rate_of  # noqa: PLC0415 - as above

    rate = rate_of(settings["create_rate"] or "none")
    return BatchOrder(order=order, journal=journal, **{**settings, "create_rate": rate})


def _journal_option(words: str) -> Callable[[Command], Command]:
    """Add `--journal`, which may come from the environment: an address may hold a password."""
    words = f"{words}  [env var: AGENTJOBS_JOURNAL]"
    return click.option("--journal", metavar="FILE|URL", envvar="AGENTJOBS_JOURNAL", required=True, help=words)


@_agentjobs.command(
    "run",
    short_help="Create jobs and wait for all of them.",
    epilog=f"{_JSON_LINES.format(created=_CREATED_LINE)}\n{_ALL_COMPLETED}",
)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@click.option("--file", metavar="FILE", help="One prompt per line; blank lines don't count. - is standard input.")
@click.option("--journal", metavar="FILE", help="Keep what becomes of each there, so that resume can go on.")
@click.option("--dry-run", is_flag=True, help="With --journal: tell what would be sent, and what refused.")
@_EMULATOR_OPTION
@_batch_options
@_order_options(DEFAULT_TIMEOUT, "For each job, from its create on; none is for ever.", endless=True)
def _run(
    order: Order,
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
        return executed(lambda context: actions.run_prompts(context, order, checked, settings["max_active"]))
    from agentjobs_async.cli import batches  # noqa: PLC0415 - the extra batch may not be installed
    from agentjobs_async.cli.tasks import tasks_of  # noqa: PLC0415 - as above

    tasks = tasks_of(prompts, file)
    batch = _batch_order(order, journal, settings)
    if dry_run:
        return executed(lambda context: batches.show_what_would_be_sent(context, journal, tasks))
    return executed(lambda context: batches.run_tasks(context, batch, tasks))


@_agentjobs.command("resume", short_help="Go on with a journal.", epilog=_ALL_COMPLETED)
@_journal_option("The journal of an earlier run.")
@_EMULATOR_OPTION
@_batch_options
@_order_options(DEFAULT_TIMEOUT, "For each job, from its create on; none is for ever.", endless=True)
def _resume(order: Order, journal: str, settings: dict[str, Any]) -> int:
    """Go on where a run with a journal stopped.

    What was planned is sent, what was created is waited for. What was being sent when that run ended is unsure:
    it is listed, and not sent again; see agentjobs resolve.
    """
    from agentjobs_async.cli import batches  # noqa: PLC0415 - the extra batch may not be installed

    batch = _batch_order(order, _existing(journal), settings)
    return executed(lambda context: batches.run_tasks(context, batch, batches.NO_TASKS))


@_agentjobs.command("status", short_help="Show what a journal holds.", epilog=_ALL_COMPLETED)
@_journal_option("The journal; a run may be using it.")
@click.option("--format", "form", type=click.Choice(["table", "markdown", "jsonl"]), default="table", show_default=True)
def _status(journal: str, form: str) -> int:
    """Show what a journal holds, while a run uses it or later. The exit code is that of all items."""
    from agentjobs_async.cli import batches  # noqa: PLC0415 - the extra batch may not be installed

    existing = _existing(journal)
    return executed(lambda context: batches.show_status(context, existing, form))


@_agentjobs.command("resolve", short_help="Settle an item that nobody is sure of.", epilog=_ALL_COMPLETED)
@click.argument("key")
@_journal_option("The journal; no run may be using a file.")
@click.option(
    "--job", "job_id", metavar="JOB", help="The job that you found: an id or project/job; resume waits for it."
)
@click.option("--send-again", is_flag=True, help="There is none, or a second one does no harm; resume creates it.")
def _resolve(key: str, journal: str, job_id: str | None, *, send_again: bool) -> int:
    """Settle the item KEY, which may have started an agent: look at the project first."""
    from agentjobs_async.cli import batches  # noqa: PLC0415 - the extra batch may not be installed

    if (job_id is None) != send_again:
        raise InvalidInputError("give either --job ID or --send-again")
    existing = _existing(journal)
    return executed(lambda context: batches.resolve_row(context, existing, key, job_id))


@_agentjobs.command(
    "submit",
    short_help="Hand tasks to workers on many machines.",
    epilog=_EXIT_CODES.format(success="all were submitted"),
)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@click.option("--file", metavar="FILE", help="As in agentjobs run. - is standard input.")
@_journal_option("The journal of all workers, such as postgresql+psycopg://host/database.")
@click.option("--max-active", metavar="N", help="Jobs active at once over all workers, or none.  [default: as it is]")
@click.option("--create-rate", metavar="N/UNIT", help="Creates over all workers, or none.  [default: as it is]")
@click.option("--chunk", type=click.IntRange(1, 1000), default=100, show_default=True, help="Items a worker takes.")
def _submit(prompts: tuple[str, ...], journal: str, file: str | None, chunk: int, **limits: str | None) -> int:
    """Plan a task for each PROMPT, and hand them to the workers that use the same journal.

    Submitting the same again goes on where a submission was cut off. The limits hold for all workers, at once.
    """
    from agentjobs_async.cli import fleet  # noqa: PLC0415 - the extra procrastinate may not be installed
    from agentjobs_async.cli.tasks import limits_of, tasks_of  # noqa: PLC0415 - as above

    order = fleet.SubmitOrder(journal, chunk, limits_of(**limits))
    tasks = tasks_of(prompts, file)
    return executed(lambda context: fleet.submit_tasks(context, order, tasks))


@_agentjobs.command(
    "worker",
    short_help="Work off what was submitted, with others.",
    epilog=_EXIT_CODES.format(success="it was not stopped by a signal"),
)
@_journal_option("The journal of all workers, such as postgresql+psycopg://host/database.")
@click.option("--chunks", type=click.IntRange(min=1), default=100, show_default=True, help="Tasks taken at once.")
@click.option("--gate", type=click.IntRange(min=1), default=10, show_default=True, help="Creates under way at once.")
@click.option("--out", metavar="FILE", help="Append each result as a line of JSON.")
@_EMULATOR_OPTION
@_order_options(DEFAULT_TIMEOUT, "For each job, each time it is waited for; none is for ever.", endless=True)
def _worker(order: Order, journal: str, chunks: int, gate: int, out: str | None) -> int:
    """Create and wait for what agentjobs submit planned, beside any number of other workers, until it is stopped.

    Ctrl-C and SIGTERM begin nothing more, wait up to 10 s for answers, give the rest back, and end within 30 s.
    What a worker that dies was sending is unsure: at most as many as --gate; see agentjobs resolve.
    """
    from agentjobs_async.cli import fleet  # noqa: PLC0415 - the extra procrastinate may not be installed

    worker = fleet.WorkerOrder(order, journal, chunks, gate, out)
    return executed(lambda context: fleet.work(context, worker))


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
def _create(order: Order, prompt: str) -> int:
    """Create a job for PROMPT and print its token project/job, without waiting for it."""
    (checked,) = checked_prompts((prompt,))
    return executed(lambda context: actions.create_job(context, order, checked))


@_agentjobs.command("get", short_help="Read one job once.", epilog=_EXIT_CODES.format(success="the job was read"))
@click.argument("job")
@_order_options(30.0, "For the answer.")
def _get(order: Order, job: str) -> int:
    """Read JOB once: a token project/job, or the id of a job in --project.

    The exit code is 0 when it could be read, whatever its status.
    """
    return executed(lambda context: actions.get_job(context, order, job))


@_agentjobs.command(
    "wait", short_help="Wait until jobs have ended.", epilog=f"{_JSON_LINES.format(created='')}\n{_ALL_COMPLETED}"
)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@_order_options(DEFAULT_TIMEOUT, "For each job; none is for ever.", endless=True)
def _wait(order: Order, jobs: tuple[str, ...]) -> int:
    """Wait until every JOB has ended: tokens project/job, or ids of jobs in --project."""
    return executed(lambda context: actions.wait_for_jobs(context, order, jobs))


@_agentjobs.command("emulator", short_help="Run an emulator of the service until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes any that is free."
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="How many times faster than life jobs of 1 to 5 minutes run.",
)
@click.option(
    "--fault", metavar="PLAN", help="Misbehave, such as '503 x3 then hang:body'; see agentjobs_async.testing.Fault."
)
def _emulator(port: int, speed: float, fault: str | None) -> int:
    """Run an emulator of the service on this machine until Ctrl-C.

    Prints the lines that lead the other commands to it.
    """
    return executed(lambda context: emulate(context, port, speed, fault))
