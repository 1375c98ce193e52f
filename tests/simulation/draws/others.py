"""Which other owners work on the rows of a batch at the same time, in the same process."""

import random
from typing import Final

from attrs import evolve

from tests.simulation.activities import Batch, Durable, Program

_MOST: Final = 12  # items: who waits for another owner looks each second what it has left


def with_others(seed: int, program: Program) -> Program:
    """Return a program in which another batch has the items of the first one, beside durable jobs at times."""
    draw = random.Random(f"{seed} {program.name} others")
    position = next((number for number, one in enumerate(program.activities) if isinstance(one, Batch)), None)
    if position is None or draw.random() > 0.2:
        return program
    batch = program.activities[position]
    assert isinstance(batch, Batch)
    batch = evolve(batch, count=min(batch.count, _MOST))
    other = evolve(
        batch,
        max_active=draw.choice((1, batch.max_active)),
        source=draw.choice(("", batch.source)),
        interventions=(),
        shared_with=position,
    )
    more: tuple[Batch | Durable, ...] = (other,)
    if draw.random() < 0.3 and not any(isinstance(one, Durable) for one in program.activities):
        more += (Durable(draw.choice((1, 4)), 0.5, 0.0, waits=draw.random() < 0.5),)
    before, after = program.activities[:position], program.activities[position + 1 :]
    return evolve(program, activities=(*before, batch, *after, *more))
