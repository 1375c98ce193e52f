"""The table at the end of a command: a row for each prompt or job."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Self

from attrs import frozen

from agentjobs_async.cli._output.columns import cut_at_a_word
from agentjobs_async.cli._output.screen import Styled, styled_status
from agentjobs_async.cli.outcomes import Outcome, Result
from agentjobs_async.cli.reasons import reason

Line = tuple[Styled, ...]

_GAP: Final = "  "
_NONE: Final = "-"
_JOB, _STATUS, _LINK, _PROMPT = "JOB", "STATUS", "PULL REQUEST", "PROMPT"
_LONGEST_JOB: Final = 40  # columns
_LONGEST_PROMPT: Final = 60  # columns
_LEAST_PROMPT: Final = 24  # columns


def summary_lines(results: Sequence[Result], width: int | None) -> Iterator[Line]:
    """Return an empty line, the table, another empty line and the counts of the outcomes.

    What is not completed has its reason beneath its row, or at the end of its line without a terminal.

    Args:
        results: The result of each prompt or job.
        width: The columns of the terminal; `None` without one: then each row is one line, however long. On a terminal
            that is too narrow, the pull request has a line of its own: links are never cut.
    """
    layout = _Layout.of(results, width)
    yield ("",)
    yield from layout.header()
    for result in results:
        yield from layout.rows(result)
    counts = Counter(result.outcome for result in results)
    yield ("",)
    yield (", ".join(f"{counts[outcome]} {outcome.shown}" for outcome in Outcome if counts[outcome]),)


@frozen
class _Layout:
    """The widths of the table, in columns.

    Attributes:
        job: Of the job's token.
        status: Of the status.
        link: Of the pull request; 0 if it has a line of its own.
        prompt: Of the prompt beside the status; 0 if there are no prompts, or they have lines of their own.
        width: Of the terminal; 0 without one.
        beneath: Of a prompt on a line of its own; 0 if prompts are beside the status.
    """

    job: int
    status: int
    link: int
    prompt: int
    width: int
    beneath: int = 0

    @classmethod
    def of(cls, results: Sequence[Result], width: int | None) -> Self:
        """Return the layout for these results: everything on one line if it fits, else links beneath, then prompts."""
        job = min(max(len(_JOB), *(len(_token(result)) for result in results)), _LONGEST_JOB)
        status = max(len(_STATUS), *(len(result.outcome) for result in results))
        link = max(len(_LINK), *(len(result.pr_link or "") for result in results))
        prompts = any(result.prompt is not None for result in results)
        if width is None:
            return cls(job, status, link, _LONGEST_PROMPT * prompts, 0)
        room = width - job - status - 2 * len(_GAP)
        beside = room - link - len(_GAP) if prompts else 0
        if link <= room and (beside >= _LEAST_PROMPT or not prompts):
            return cls(job, status, link, beside, width)
        job = min(job, max(width - status - len(_GAP), len(_JOB)))
        if room >= _LEAST_PROMPT or not prompts:
            return cls(job, status, 0, room * prompts, width)
        return cls(job, status, 0, 0, width, beneath=width - len(_GAP))

    def header(self) -> Iterator[Line]:
        cells = (_JOB.ljust(self.job), _STATUS.ljust(self.status), *self._rest(_LINK, _PROMPT))
        line = _GAP.join(cells)
        yield (((f"{line}, {_LINK}" if self.link == 0 and self.prompt else line).rstrip(), "bold"),)
        if self.beneath:
            yield ((f"{_GAP}{_PROMPT}, {_LINK}", "bold"),)

    def rows(self, result: Result) -> Iterator[Line]:
        word, style = styled_status(result.outcome)
        link = result.pr_link
        why = reason(result)
        rest = _GAP.join(self._rest(link or _NONE, cut_at_a_word(result.prompt or "", self.prompt)))
        rest = f"{rest.ljust(self.link + len(_GAP) + self.prompt)}{_GAP}{why}" if why and not self.width else rest
        yield (
            _token(result).ljust(self.job),
            _GAP,
            (word, style),
            f"{' ' * (self.status - len(word))}{_GAP}{rest}".rstrip(),
        )
        if self.beneath and result.prompt:
            yield (f"{_GAP}{cut_at_a_word(result.prompt, self.beneath)}",)
        if self.link == 0 and link:
            yield (f"{' ' * self._indent(link)}{link}",)
        if why and self.width:
            yield (f"{_GAP}{why}",)

    def _rest(self, link: str, prompt: str) -> list[str]:
        cells = [link.ljust(self.link)] if self.link else []
        return cells + [prompt] * bool(self.prompt)

    def _indent(self, link: str) -> int:
        beneath = self.job + self.status + 2 * len(_GAP)
        return beneath if beneath + len(link) <= self.width else len(_GAP)


def _token(result: Result) -> str:
    return _NONE if result.ref is None else result.ref.to_token()
