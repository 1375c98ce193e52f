"""The options of `run` and `resume`."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from agentjobs_async._validation import MAX_COUNT, checked_count
from agentjobs_async.batch import Journal
from agentjobs_async.cli.limits import duration_of
from agentjobs_async.cli.options import Options

__all__ = ["BatchOptions"]


@frozen
class BatchOptions:
    """The options of `run` and `resume`.

    Attributes:
        shared: Those that other commands have too.
        journal: The file or URL of the journal; `None` gives the run a journal of its own.
        given: The limits that were given, of `max_active`, `create_rate`, `timeout`, `max_sending` and `unknown_for`:
            the journal keeps them.
        max_tries: Failed and rejected items that had fewer tries are planned again first; `None` for any number.
        limit: The number of items to start; `None` for all.
        max_failures: Start no more items once this many have failed; `None` for no limit.
        out: The file that gets each result as a line of JSON; `None` for none.
        run_for: The time after which the run stops itself, as it was given; `None` for none.
        report: The file that gets a report at the end; `None` for none.
        learn: Whether waits learn from the journal; `None` for where it holds enough.

    Raises:
        InvalidInputError: A count is larger than any journal.
    """

    shared: Options
    journal: str | None
    given: Mapping[str, Any]
    max_tries: int | None
    limit: int | None
    max_failures: int | None
    out: str | None
    run_for: str | None
    report: str | None
    learn: bool | None = None

    def __attrs_post_init__(self) -> None:
        for option, count in {"--limit": self.limit, "--max-failures": self.max_failures}.items():
            if count is not None:
                checked_count(option, count, most=MAX_COUNT)

    def to_resume(self) -> list[str]:
        """Return the options with which `agentjobs resume` continues in the same way; the journal keeps the limits."""
        settings = {
            "--project": self.shared.service.project_id,
            "--max-failures": self.max_failures,
            "--out": self.out,
            "--report": self.report,
            "--for": self.run_for,
        }
        named = [str(word) for pair in settings.items() if pair[1] is not None for word in pair]
        learning = {None: [], True: ["--learn"], False: ["--no-learn"]}[self.learn]
        return [*self.shared.service.options(), *named, *learning, *["--json"] * self.shared.as_json]

    @property
    def seconds(self) -> float | None:
        """The seconds after which the run stops itself; `None` for never."""
        return None if self.run_for is None else duration_of("--for", self.run_for)

    def of_run(self, journal: Journal) -> dict[str, Any]:
        """Return the arguments of `run_batch`; it takes the limits from the journal."""
        return {"journal": journal, "max_failures": self.max_failures, "limit": self.limit, "learn": self.learn}
