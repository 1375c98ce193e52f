"""One fault that a maintainer could make: which text of a module becomes which."""

import ast
from pathlib import Path
from typing import Final

from attrs import frozen

_TESTS: Final = {"session": "tests/test_session.py"}
"""The tests of modules that stand alone, by the module's name."""


@frozen
class Mutant:
    """One fault.

    Attributes:
        name: What names it: some words, joined by hyphens.
        module: The path of its module below the package.
        there: The text that is there, exactly once.
        instead: The text that comes in its place.
        harm: What a user would suffer, as a sentence.
        tests: The files or folders of the tests that are to find it; empty for those of the module's room.
    """

    name: str
    module: str
    there: str
    instead: str
    harm: str
    tests: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The files or folders of the tests that are to find it."""
        room = self.module.partition("/")[0].removesuffix(".py")
        return self.tests or (_TESTS.get(room, f"tests/{room.removeprefix('_')}"),)

    def path_in(self, checkout: Path) -> Path:
        """Return the path of its module in a checkout."""
        return checkout / "agentjobs_async" / self.module

    def put_into(self, checkout: Path) -> None:
        """Write the fault into the module of a copy.

        Raises:
            ValueError: It can't be put there, as `problem_in` says.
        """
        if (problem := self.problem_in(checkout)) is not None:
            raise ValueError(problem)
        path = self.path_in(checkout)
        path.write_text(path.read_text().replace(self.there, self.instead))

    def problem_in(self, checkout: Path) -> str | None:
        """Return why it can't be put into a checkout, or not be tested there; `None` if it can."""
        path = self.path_in(checkout)
        if not path.is_file():
            return f"{self.name}: there is no module {self.module}: move the fault to where its code went"
        text = path.read_text()
        if (times := text.count(self.there)) != 1:
            return f"{self.name}: its text is {times} times in {self.module}, not once: move the fault along"
        if missing := [place for place in self.places if not (checkout / place).exists()]:
            return f"{self.name}: there are no tests {missing}"
        try:
            ast.parse(text.replace(self.there, self.instead))
        except SyntaxError as error:
            return f"{self.name}: what comes instead is no Python: {error}"
        return f"{self.name}: what comes instead is the same" if self.there == self.instead else None
