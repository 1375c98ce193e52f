"""The command `plan`, and what a run shows before it asks: what it would send, how long that takes and costs."""

import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen

from agentjobs_async import InvalidInputError
from agentjobs_async._text import span
from agentjobs_async.batch import BatchItem, Journal, Limits, State, check_items
from agentjobs_async.batch._estimates import estimate
from agentjobs_async.batch.limits import in_force
from agentjobs_async.cli._input.limits import rate_notice
from agentjobs_async.cli._input.options import (
    CREATE_RATE,
    LIMIT,
    MAX_ACTIVE,
    TEXT,
    FiniteNumber,
    input_options,
    limit_options,
    tries_options,
)
from agentjobs_async.cli._input.prompts import InvalidPrompt, Prompts, show_invalid, show_repeats
from agentjobs_async.cli._input.service import EMULATED_PROJECT, NO_PROJECT
from agentjobs_async.cli._input.service_options import project_option
from agentjobs_async.cli._output.columns import columns_of, cut_at_a_word, cut_in_the_middle, in_words
from agentjobs_async.cli._output.outcomes import ExitCode
from agentjobs_async.cli._output.screen import Screen
from agentjobs_async.cli.help import command, journal_exit_codes
from agentjobs_async.cli.process import Context, run_action
from agentjobs_async.session import EMULATOR

_MOST_INVALID: Final = 10  # lines
_MOST_PROMPTS: Final = 3  # lines
_PROMPT_COLUMNS: Final = 60  # beside a key, in a terminal of 80


@command(
    "plan",
    journal_exit_codes("nothing would be refused", "some would be refused"),
    "agentjobs plan 'Fix the broken links' --price 0.40",
)
@input_options
@click.option("--journal", metavar="FILE|URL", type=TEXT, help="What it has already is not sent.")
@project_option("Project of prompts that name none: a journal knows them by it.")
@limit_options(max_active=MAX_ACTIVE, create_rate=CREATE_RATE)
@LIMIT
@tries_options("Failed and rejected items of the journal would be tried again.")
@click.option(
    "--minutes", metavar="N", type=FiniteNumber(min=0, min_open=True), help="What each job is expected to take."
)
@click.option("--price", metavar="N", type=FiniteNumber(min=0), help="What each job is expected to cost.")
def plan(prompts: Prompts, journal: str | None, limits: Mapping[str, Any], **how: Any) -> int:
    """Show what agentjobs run would send for the same prompts, and what it would refuse, without sending anything.

    The duration follows from --create-rate; with --minutes, from --max-active as well.
    """
    return run_action(lambda context: _show_plan(context, prompts, journal, limits, **how))


@frozen
class Sending:
    """What a run would send, and what it would refuse.

    Attributes:
        items: The items of the journal and of the input that it would send.
        invalid: The prompts that it would refuse.
        kept: The limits that the journal keeps.
    """

    items: Sequence[BatchItem]
    invalid: Sequence[InvalidPrompt]
    kept: Limits


async def sending_of(
    prompts: Prompts,
    journal: str | None,
    *,
    project_id: str | None,
    limit: int | None,
    max_tries: int | None,
) -> Sending:
    """Return what a run of these prompts would send: what is planned, what is new, then what is tried again.

    Args:
        prompts: The prompts.
        journal: The file or URL of the journal; `None` for none.
        project_id: The project of prompts that name none; `None` takes that of the emulator where the journal is its.
        limit: The number of items to start; `None` for all.
        max_tries: Failed and rejected items that had fewer tries are sent again; `None` for any number.

    Raises:
        InvalidInputError: There is a journal, and a prompt has no project.
    """
    opened = None if journal is None else Journal.open(journal, read_only=True)
    planned: list[BatchItem] = []
    retried: list[BatchItem] = []
    known: set[str] = set()
    if opened is None or not (opened.is_shared or Path(opened.address).exists()):  # noqa: ASYNC240 - one look at a name
        invalid, kept = check_items(prompts.items)[1], Limits()
    else:
        async with opened:
            opened._opened.check_not_moved()
            async for row in opened.rows():
                known.add(row.key)
                if row.state is State.PLANNED:
                    planned.append(row.item)
                elif row.state.has_failed and (max_tries is None or row.tries < max_tries):
                    retried.append(row.item)
            if project_id is None and (await opened.store.meta()).service == EMULATOR:
                project_id = EMULATED_PROJECT
            if project_id is None and any(item.project_id is None for item in prompts.items):
                raise InvalidInputError(NO_PROJECT)
            invalid, kept = await opened.check(prompts.items, project_id=project_id), await opened.limits()
    invalid_keys = {item.key for item, _ in invalid}
    new = [item for item in prompts.items if item.key not in known and item.key not in invalid_keys]
    all_invalid = [*prompts.invalid, *(InvalidPrompt(item.key, str(why)) for item, why in invalid)]
    return Sending([*planned, *new, *retried][:limit], all_invalid, kept)


async def _show_plan(
    context: Context,
    prompts: Prompts,
    journal: str | None,
    limits: Mapping[str, Any],
    *,
    minutes: float | None,
    price: float | None,
    **what: Any,
) -> int:
    """Show what a run would send, and what it would refuse and why."""
    sending = await sending_of(prompts, journal, **what)
    show_sending(context.screen, prompts, sending, limits, minutes=minutes, price=price)
    return ExitCode.FAILED if sending.invalid else ExitCode.COMPLETED


def show_sending(
    screen: Screen,
    prompts: Prompts,
    sending: Sending,
    limits: Mapping[str, Any],
    *,
    minutes: float | None = None,
    price: float | None = None,
) -> None:
    """Show what `sending_of` has found: the first items, the number of all, the duration and the cost.

    Args:
        screen: The screen to write to.
        prompts: The prompts.
        sending: What would be sent.
        limits: The limits that were given; the journal keeps the others.
        minutes: What each job is expected to take; `None` if that is not known.
        price: What each job costs; `None` if that is not known.
    """
    items, invalid = sending.items, sending.invalid
    for prompt in invalid[:_MOST_INVALID]:
        show_invalid(screen, prompt)
    if len(invalid) > _MOST_INVALID:
        screen.notice(f"… and {len(invalid) - _MOST_INVALID:,} more are refused")
    show_repeats(screen, prompts)
    for item in items[:_MOST_PROMPTS]:
        _show_prompt(screen, item)
    screen.line(f"{len(items):,} would be sent, {len(invalid):,} refused.")
    if items:
        in_effect = in_force(sending.kept, "kept", limits)
        _show_duration(screen, in_effect, items, minutes)
        if in_effect.create_rate is not None:
            screen.line(rate_notice(in_effect.create_rate))
    if items and price is not None:
        cost = Decimal(repr(price))
        screen.line(f"This costs {_amount(len(items) * cost)}: {_amount(cost)} for each job.")


def _show_prompt(screen: Screen, item: BatchItem) -> None:
    """Show the beginning of a prompt; on a terminal it is one line."""
    if screen.width is None:
        screen.line(f"{in_words(item.key)} would be sent: {cut_at_a_word(item.prompt, _PROMPT_COLUMNS)}")
        return
    words = f"{in_words(cut_in_the_middle(item.key, screen.width // 3))} would be sent: "
    screen.line(words, cut_at_a_word(item.prompt, screen.width - columns_of(words)))


def _show_duration(screen: Screen, limits: Limits, items: Sequence[BatchItem], minutes: float | None) -> None:
    """Show the duration as far as it is known."""
    seconds = None if minutes is None else 60 * minutes
    found = estimate(items, max_active=limits.max_active, create_rate=limits.create_rate, job_seconds=seconds)
    if found is not None and found.seconds:
        how, when = ("at least", "at the earliest on") if found.is_least else ("about", "about")
        end = time.strftime("%a %d %b %H:%M", time.localtime(time.time() + found.seconds))
        screen.line(f"This takes {how} {span(found.seconds)}: {found.decision}.")
        screen.line(f"Begun now, it ends {when} {end}.")


def _amount(value: Decimal) -> str:
    """Return an amount with as many decimals as it has, at least two."""
    return f"{value:,.{max(2, -int(value.normalize().as_tuple().exponent))}f}"
