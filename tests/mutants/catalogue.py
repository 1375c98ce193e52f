"""All faults, and what is wrong with their records."""

from collections import Counter
from pathlib import Path
from typing import Final

from tests.checkout import ROOT
from tests.mutants.mutant import Mutant
from tests.mutants.owning import OWNING
from tests.mutants.sending import SENDING
from tests.mutants.watching import WATCHING

MUTANTS: Final = (*SENDING, *OWNING, *WATCHING)


def problems(mutants: tuple[Mutant, ...] = MUTANTS, checkout: Path = ROOT) -> list[str]:
    """Return, in words, which faults can't be put into a checkout."""
    found = [problem for one in mutants if (problem := one.problem_in(checkout)) is not None]
    names = Counter(one.name for one in mutants)
    return [*found, *(f"{name}: {times} faults have this name" for name, times in names.items() if times > 1)]
