"""The commands of batches: `run` and `resume`.

What they do is imported when they run: it loads SQLAlchemy, which no other command waits for.
"""

from typing import TYPE_CHECKING, Any

import click

from agentjobs_async import InvalidInputError
from agentjobs_async.cli._commands.help_pages import RUN_EPILOG, command
from agentjobs_async.cli._commands.journals import existing
from agentjobs_async.cli._commands.options import (
    EMULATOR_OPTION,
    ITEM_TIMEOUT,
    TEXT,
    batch_options,
    file_option,
    journal_option,
)
from agentjobs_async.cli.options import Options
from agentjobs_async.cli.process import run_action, show_error
from agentjobs_async.cli.prompts import numbered_prompts

if TYPE_CHECKING:
    from agentjobs_async.cli.batch_options import BatchOptions

__all__ = ["resume", "run"]


@command("run", short_help="Create jobs and wait for all of them.", epilog=RUN_EPILOG)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@file_option("One prompt or JSON object per line; blank lines don't count. - is standard input.")
@click.option("--journal", metavar="FILE|URL", type=TEXT, help="Record there what is sent and how it ends.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and what refused.")
@EMULATOR_OPTION
@batch_options
@ITEM_TIMEOUT
def run(
    options: Options,
    prompts: tuple[str, ...],
    file: str | None,
    journal: str | None,
    settings: dict[str, Any],
    *,
    dry_run: bool,
) -> int:
    """Create a job for each PROMPT and wait for all of them; one that fails leaves the others alone.

    A line of the file is a prompt, or a JSON object with prompt, and key and project where wanted.

    What was sent and how it ended is recorded in a journal, which survives any end of this command. Without --journal
    it is one of its own, which is removed when all jobs have ended; otherwise agentjobs resume goes on with it, and
    agentjobs status lists it.
    """
    lines = numbered_prompts(prompts, file)
    if len(prompts) > 1 and not any(" " in prompt for prompt in prompts):
        show_error(f"{len(prompts)} prompts of one word each: put a prompt of several words in quotes")
    from agentjobs_async.cli import batches, journals  # noqa: PLC0415 - see above
    from agentjobs_async.cli.tasks import tasks_of  # noqa: PLC0415 - see above

    tasks = tasks_of(lines, may_be_json=not prompts)
    batch = _options(options, journal, settings)
    if dry_run:
        return run_action(lambda context: journals.show_plan(context, journal, tasks))
    return run_action(lambda context: batches.run_tasks(context, batch, tasks))


@command("resume", short_help="Go on with a journal.", epilog=RUN_EPILOG)
@click.argument("place", metavar="[FILE|URL]", required=False)
@journal_option("The journal of an earlier run.", required=False)
@EMULATOR_OPTION
@batch_options
@ITEM_TIMEOUT
def resume(options: Options, place: str | None, journal: str | None, settings: dict[str, Any]) -> int:
    """Go on where a run stopped, with the journal FILE.

    What was planned is sent, what was created is waited for. What was being sent when that run ended is unknown: it is
    listed, and not sent again; see agentjobs resolve.
    """
    named = place or journal
    if named is None:
        raise InvalidInputError("give the journal: agentjobs resume FILE; agentjobs status lists those that are left")
    from agentjobs_async.cli import batches  # noqa: PLC0415 - see above

    batch = _options(options, existing(named), settings)
    return run_action(lambda context: batches.run_tasks(context, batch, batches.NO_TASKS))


def _options(shared: Options, journal: str | None, settings: dict[str, Any]) -> "BatchOptions":
    from agentjobs_async.cli.batch_options import BatchOptions  # noqa: PLC0415 - see above
    from agentjobs_async.cli.tasks import rate_of  # noqa: PLC0415 - see above

    rate = rate_of(settings["create_rate"] or "none")
    return BatchOptions(shared, journal, **{**settings, "create_rate": rate})
