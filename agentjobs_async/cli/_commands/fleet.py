"""The commands of many machines that share a journal: `submit`, `worker` and `move`.

What they do is imported when they run: the extra `procrastinate` may not be installed.
"""

from typing import Final

import click

from agentjobs_async.cli._commands.help_pages import EXIT_CODES, command, journal_exit_codes
from agentjobs_async.cli._commands.journal_arguments import journal_argument
from agentjobs_async.cli._commands.options import (
    EMULATOR_OPTION,
    MAX_SENDING,
    RUN_FOR,
    TEXT,
    UNKNOWN_FOR,
    WRITTEN_FILE,
    given_limits,
    input_options,
    journal_option,
    shared_options,
)
from agentjobs_async.cli.options import Options
from agentjobs_async.cli.process import run_action

_JOURNAL: Final = "The journal of all workers, such as postgresql+psycopg://host/database."


@command(
    "submit",
    short_help="Hand items to workers on many machines.",
    epilog=journal_exit_codes("all were submitted", "some were refused, the others submitted"),
)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@input_options
@journal_option(_JOURNAL)
@click.option(
    "--max-active", metavar="N", type=TEXT, help="Jobs active at once over all workers, or none.  [default: as it is]"
)
@click.option(
    "--create-rate",
    metavar="N/UNIT",
    type=TEXT,
    help="Creates over all workers, as in agentjobs run, or none.  [default: as it is]",
)
@click.option(
    "--polls-per-second",
    metavar="N",
    type=TEXT,
    help="Polls over all workers, of which each takes an equal part, or none.  [default: as it is]",
)
@click.option(
    "--chunk",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Items in a chunk, which one worker takes.",
)
def submit(
    prompts: tuple[str, ...], journal: str, source: dict[str, str | None], chunk: int, **limits: str | None
) -> int:
    """Plan an item for each PROMPT, and hand them to the workers that use the same journal.

    Submitting the same again continues where a submission was cut off. The limits apply to all workers, at once.
    """
    from agentjobs_async.cli import fleet  # noqa: PLC0415 - see above
    from agentjobs_async.cli.limits import limits_of  # noqa: PLC0415 - see above
    from agentjobs_async.cli.tasks import Input, tasks_of  # noqa: PLC0415 - see above

    options = fleet.SubmitOptions(journal, chunk, limits_of(**limits))
    tasks = tasks_of(prompts, Input(**source))
    return run_action(lambda context: fleet.submit_tasks(context, options, tasks))


@command(
    "worker",
    short_help="Run submitted items, beside other workers.",
    epilog=EXIT_CODES.format(success="with --until-done, all completed"),
)
@journal_argument(_JOURNAL, "agentjobs worker postgresql+psycopg://host/database")
@click.option(
    "--chunks",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Chunks taken at once: see submit --chunk.",
)
@MAX_SENDING
@UNKNOWN_FOR
@click.option("--out", metavar="FILE", type=WRITTEN_FILE, help="Append each result as a line of JSON.")
@click.option("--until-done", is_flag=True, help="End once every item of the journal has ended.")
@RUN_FOR
@EMULATOR_OPTION
@shared_options(None, "For each job, each time it is waited for; none waits for ever.", endless=True)
def worker(
    options: Options,
    journal: str,
    chunks: int,
    max_sending: int | None,
    unknown_for: str | None,
    out: str | None,
    run_for: str | None,
    *,
    until_done: bool,
) -> int:
    """Create and wait for what agentjobs submit planned, beside any number of other workers, until it is stopped.

    With --until-done it ends when all items have ended, those of the other workers too, with the code of them all; if
    the time of --for is up before, with 4.

    At Ctrl-C or SIGTERM it starts nothing more, waits up to 10 s for responses, returns the rest to the queue, and
    ends within 30 s. What a worker that dies was sending is unknown: at most as many as --max-sending; see agentjobs
    resolve.
    """
    from agentjobs_async.cli import fleet  # noqa: PLC0415 - see above
    from agentjobs_async.cli.limits import duration_of  # noqa: PLC0415 - see above

    seconds = None if run_for is None else duration_of("--for", run_for)
    limits = given_limits({"unknown_for": unknown_for})
    worker_options = fleet.WorkerOptions(options, journal, chunks, max_sending, limits, out, until_done, seconds)
    return run_action(lambda context: fleet.work(context, worker_options))


@command(
    "move",
    short_help="Move a journal to PostgreSQL, or elsewhere.",
    epilog=journal_exit_codes("all rows were moved"),
)
@click.option("--from", "source", metavar="FILE|URL", type=TEXT, required=True, help="The journal; nothing may use it.")
@click.option(
    "--to",
    "target",
    metavar="FILE|URL",
    type=TEXT,
    envvar="AGENTJOBS_JOURNAL",
    required=True,
    help="The new one: a file or database without rows.  [env var: AGENTJOBS_JOURNAL]",
)
def move(source: str, target: str) -> int:
    """Move all that a journal holds to a new one, rows under way included, and close the old one for good.

    What was being sent when the last run ended is unknown, as on a resume. If the command is killed, the same command
    continues with the move; in between, neither journal can be used.
    """
    from agentjobs_async.cli import moving  # noqa: PLC0415 - see above

    return run_action(lambda context: moving.move_rows(context, source, target))
