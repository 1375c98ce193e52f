"""The commands of batches: `run`, `plan` and `resume`.

What they do is imported when they run: it loads SQLAlchemy, which no other command waits for.
"""

from typing import TYPE_CHECKING, Any, Final

import click

from agentjobs_async import InvalidInputError
from agentjobs_async.cli._commands.help_pages import RUN_EPILOG, command, journal_exit_codes
from agentjobs_async.cli._commands.journal_arguments import existing, journal_argument
from agentjobs_async.cli._commands.options import (
    CREATE_RATE,
    EMULATOR_OPTION,
    ITEM_TIMEOUT,
    MAX_ACTIVE,
    TEXT,
    YES_OPTION,
    FiniteNumber,
    batch_options,
    given_limits,
    input_options,
)
from agentjobs_async.cli.options import Options, most_tries
from agentjobs_async.cli.outcomes import ExitCode
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.cli.prompts import check_quotes, confirmed, is_asked

if TYPE_CHECKING:
    from agentjobs_async.cli.batch_options import BatchOptions
    from agentjobs_async.cli.plan import PlanOptions
    from agentjobs_async.cli.tasks import Tasks

_MOST_UNASKED: Final = 100  # creates that a terminal is not asked about

_PLAN_EPILOG: Final = journal_exit_codes("nothing would be refused", "some would be refused")


@command("run", short_help="Create jobs and wait for all of them.", epilog=RUN_EPILOG)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@input_options
@click.option("--journal", metavar="FILE|URL", type=TEXT, help="Record there what is sent and how it ends.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent, and what refused.")
@YES_OPTION
@EMULATOR_OPTION
@batch_options
@ITEM_TIMEOUT
def run(
    options: Options,
    prompts: tuple[str, ...],
    source: dict[str, str | None],
    journal: str | None,
    settings: dict[str, Any],
    *,
    dry_run: bool,
    is_confirmed: bool,
) -> int:
    """Create a job for each PROMPT and wait for all of them; one that fails leaves the others alone.

    A line of the file is a prompt, or a JSON object with a prompt and, optionally, a key and a project. --prompt makes
    the prompts from the columns of a table, or from the fields of JSON objects.

    A journal records what was sent and how it ended, whatever ends this command. Without --journal, the run makes a
    journal of its own, and removes it when all jobs have ended. Otherwise the journal is kept: agentjobs status lists
    it, and agentjobs resume continues it.
    """
    from agentjobs_async.cli import batches  # noqa: PLC0415 - see above
    from agentjobs_async.cli.plan import PlanOptions, show_plan  # noqa: PLC0415 - see above
    from agentjobs_async.cli.tasks import Input, tasks_of  # noqa: PLC0415 - see above

    tasks = tasks_of(prompts, Input(**source))
    check_quotes(prompts, is_confirmed=is_confirmed or dry_run)
    batch = _options(options, journal, settings)
    plan = PlanOptions(journal, batch.given, batch.limit, batch.max_tries)
    if dry_run:
        return run_action(lambda context: show_plan(context, plan, tasks))
    if is_asked() and not is_confirmed and (code := _asked(plan, tasks)):
        return code
    return run_action(lambda context: batches.run_tasks(context, batch, tasks))


def _asked(plan: "PlanOptions", tasks: "Tasks") -> int:
    """Show a plan of many creates, and ask whether to start them; return an exit code other than 0 for a fault.

    Raises:
        InvalidInputError: They are not to be started.
    """
    from agentjobs_async.cli.plan import sending_of, show_sending  # noqa: PLC0415 - see above

    is_large = False

    async def show(context: Context) -> int:
        nonlocal is_large
        sending = await sending_of(plan, tasks)
        is_large = len(sending.items) > _MOST_UNASKED
        if is_large:
            show_sending(context.screen, plan, tasks, sending)
        return ExitCode.COMPLETED

    code = run_action(show)
    if is_large and not confirmed("Start them?"):
        raise InvalidInputError("nothing was sent")
    return code


@command("plan", short_help="Show what a run would send, its duration and cost.", epilog=_PLAN_EPILOG)
@click.argument("prompts", metavar="[PROMPT]...", nargs=-1)
@input_options
@click.option("--journal", metavar="FILE|URL", type=TEXT, help="What it has already is not sent.")
@MAX_ACTIVE
@CREATE_RATE
@click.option("--minutes", type=FiniteNumber(min=0, min_open=True), help="What each job is expected to take.")
@click.option("--price", type=FiniteNumber(min=0), help="What each job is expected to cost.")
def plan(
    prompts: tuple[str, ...],
    source: dict[str, str | None],
    journal: str | None,
    minutes: float | None,
    price: float | None,
    **limits: Any,
) -> int:
    """Show what agentjobs run would send for the same prompts, and what it would refuse, without sending anything.

    The duration follows from --create-rate; with --minutes, from --max-active as well.
    """
    from agentjobs_async.cli.plan import PlanOptions, show_plan  # noqa: PLC0415 - see above
    from agentjobs_async.cli.tasks import Input, tasks_of  # noqa: PLC0415 - see above

    tasks = tasks_of(prompts, Input(**source))
    options = PlanOptions(journal, given_limits(limits), minutes=minutes, price=price)
    return run_action(lambda context: show_plan(context, options, tasks))


@command("resume", short_help="Continue the run of a journal.", epilog=RUN_EPILOG)
@journal_argument("The journal of an earlier run.", "agentjobs resume FILE; agentjobs status lists those that are left")
@EMULATOR_OPTION
@batch_options
@ITEM_TIMEOUT
def resume(options: Options, journal: str, settings: dict[str, Any]) -> int:
    """Continue where a run stopped, with the journal FILE.

    What was planned is sent, what is active is waited for. What was being sent when that run ended is unknown: it is
    listed, and not sent again; see agentjobs resolve.
    """
    from agentjobs_async.cli import batches  # noqa: PLC0415 - see above

    batch = _options(options, existing(journal), settings)
    return run_action(lambda context: batches.run_tasks(context, batch, batches.NO_TASKS))


def _options(shared: Options, journal: str | None, settings: dict[str, Any]) -> "BatchOptions":
    from agentjobs_async.cli.batch_options import BatchOptions  # noqa: PLC0415 - see above

    given = given_limits(settings)
    if shared.has_timeout:
        given["timeout"] = shared.timeout
    options = BatchOptions(shared, journal, given, **{**settings, "max_tries": most_tries(settings["max_tries"])})
    _ = options.seconds  # checked before any I/O
    return options
