"""The commands of single jobs: `create`, `get` and `wait`; and the `emulator`."""

import click

from agentjobs_async.cli import actions
from agentjobs_async.cli._commands.help_pages import EXIT_CODES, WAIT_EPILOG, command
from agentjobs_async.cli._commands.options import SHARE, TEXT, FiniteNumber, journal_option, shared_options
from agentjobs_async.cli.emulation import emulate
from agentjobs_async.cli.options import DEFAULT_TIMEOUT, Options
from agentjobs_async.cli.process import run_action
from agentjobs_async.cli.prompts import checked_prompts


@command(
    "create",
    short_help="Create a job and print its token project/job.",
    epilog=EXIT_CODES.format(success="the job was created"),
)
@click.argument("prompt")
@shared_options(120.0, "Give up after this long, retries included.")
def create(options: Options, prompt: str) -> int:
    """Create a job for PROMPT and print its token project/job, without waiting for it."""
    (checked,) = checked_prompts((prompt,))
    return run_action(lambda context: actions.create_job(context, options, checked))


@command("get", short_help="Read one job once.", epilog=EXIT_CODES.format(success="the job was read"))
@click.argument("job")
@shared_options(30.0, "For the response.")
def get(options: Options, job: str) -> int:
    """Read JOB once: a token project/job, or the id of a job in --project.

    The exit code is 0 when it could be read, whatever its status.
    """
    return run_action(lambda context: actions.get_job(context, options, job))


@command("wait", short_help="Wait until jobs have ended.", epilog=WAIT_EPILOG)
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@journal_option(
    "Its ended jobs tell how long such jobs take: when each JOB will end, and when to poll it.", required=False
)
@shared_options(DEFAULT_TIMEOUT, "For each job; none waits for ever.", endless=True)
def wait(options: Options, jobs: tuple[str, ...], journal: str | None) -> int:
    """Wait until every JOB has ended: tokens project/job, or ids of jobs in --project.

    Once 20 jobs have ended, in the journal or here, it shows when the others will.
    """
    return run_action(lambda context: actions.wait_for_jobs(context, options, jobs, journal))


@command("emulator", short_help="Run an emulator of the service until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes any that is free."
)
@click.option(
    "--speed",
    type=FiniteNumber(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Factor by which jobs of 1 to 5 minutes run faster.",
)
@click.option(
    "--fault",
    metavar="PLAN",
    type=TEXT,
    help="Misbehave, such as '503 x3 then hang:body'; see agentjobs_async.testing.Fault.",
)
@click.option(
    "--fail",
    "failed",
    metavar="SHARE",
    type=SHARE,
    default="0%",
    show_default=True,
    help="The share of jobs that end as failed, such as 5%.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The same seed gives each prompt the same duration and end."
)
@click.option(
    "--polls-per-second",
    metavar="N",
    type=click.IntRange(min=1),
    help="Refuse with a 429 what is polled beyond N times in any second, all projects together.",
)
@click.option("--quiet", is_flag=True, help="Don't show each request.")
def emulator(
    port: int, speed: float, fault: str | None, failed: float, seed: int, *, polls_per_second: int | None, quiet: bool
) -> int:
    """Run an emulator of the service on this machine until Ctrl-C.

    Prints the lines that lead the other commands to it, and on standard error one line for each request.
    """
    return run_action(
        lambda context: emulate(
            context, port, speed, fault, failed, seed, polls_per_second=polls_per_second, quiet=quiet
        )
    )
