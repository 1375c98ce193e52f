"""The command `emulator`: an emulator of the service on a port of its own."""

import os
import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack

import click

from agentjobs_async import Dialect, InvalidInputError
from agentjobs_async._dialect.service_file import ServiceFile, read_service_file
from agentjobs_async.cli._input.options import COUNT, SHARE, TEXT, FiniteNumber, Read, WholeNumber
from agentjobs_async.cli._input.service import EMULATED_PROJECT
from agentjobs_async.cli._output.logs import LogLines
from agentjobs_async.cli._output.outcomes import ExitCode
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.help import command
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.testing import Emulator, FaultPlan, RandomScripts, RateLimit


def _plan_of(text: str) -> FaultPlan:
    try:
        return FaultPlan.parse(text)
    except ValueError as error:
        defect = f"{error}; python -m pydoc agentjobs_async.testing.Fault lists what there is"
    raise InvalidInputError(defect)


@command("emulator", "", "agentjobs emulator --port 0 --fault '503 x3'")
@click.option(
    "--port", metavar="N", type=WholeNumber(0, 65535), default=8080, show_default=True, help="0 takes any that is free."
)
@click.option(
    "--speed",
    metavar="N",
    type=FiniteNumber(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Factor by which jobs of 1 to 5 minutes run faster.",
)
@click.option(
    "--fault",
    metavar="PLAN",
    type=Read(_plan_of),
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
    "--seed",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="The same seed gives each prompt the same duration and end.",
)
@click.option(
    "--polls-per-second",
    metavar="N",
    type=COUNT,
    help="Refuse with a 429 what is polled beyond N times in any second, all projects together.",
)
@click.option("--service", "service_file", metavar="FILE", type=TEXT, help="Serve the dialect of a service file.")
@click.option("--quiet", is_flag=True, help="Don't show each request.")
def emulator(
    port: int,
    speed: float,
    fault: FaultPlan | None,
    failed: float,
    seed: int,
    polls_per_second: int | None,
    service_file: str | None,
    *,
    quiet: bool,
) -> int:
    """Run an emulator of the service on this machine until Ctrl-C.

    Prints the lines that lead the other commands to it, and on standard error one line for each request.
    """
    quota = None if polls_per_second is None else RateLimit(None, per=1.0, reads=polls_per_second)
    plan = FaultPlan.parse("ok") if fault is None else fault
    script = RandomScripts(seed=seed, failed=failed)
    described = ServiceFile(Dialect()) if service_file is None else read_service_file(service_file)
    emulated = Emulator(port=port, speed=speed, script=script, rate_limit=quota, faults=plan, dialect=described.dialect)

    def lead(screen: Screen) -> None:
        """Show how other commands get to the emulator."""
        own_names = {} if described.key_env is None else {"AGENTJOBS_API_KEY": described.key_env}
        if service_file is not None:
            options = shlex.join(["--service", service_file, "--base-url", emulated.base_url])
            screen.notice(f"It serves the dialect of that file: other commands need {options}")
        for name, value in emulated.environment(EMULATED_PROJECT).items():
            screen.raw_line(f"export {own_names.get(name, name)}={value}")

    return run_action(lambda context: _emulate(context, emulated, port, speed, lead, quiet=quiet))


async def _emulate(
    context: Context, emulated: Emulator, port: int, speed: float, lead: Callable[[Screen], None], *, quiet: bool
) -> int:
    """Run an emulator until a signal stops it; unless `quiet`, show each request on standard error.

    Once it runs, `lead` shows how other commands get to it.
    """
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(emulated)
        except OSError as error:
            defect = f"--port {port}: {os.strerror(error.errno or 0)}; give another one, 0 takes any that is free"
        else:
            if not quiet:
                stack.enter_context(LogLines(context.screen, "agentjobs_async.testing").shown())
            words = f"Emulator at {emulated.base_url}: jobs run {speed:g} times as fast; Ctrl-C stops it."
            context.screen.notice(words)
            lead(context.screen)
            await context.interruption.stop_requested()
            return ExitCode.COMPLETED
    raise InvalidInputError(defect)
