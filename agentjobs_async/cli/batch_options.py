"""The options of `run` and `resume`."""

from typing import Any

from attrs import frozen

from agentjobs_async.batch import Journal, Rate
from agentjobs_async.cli.options import DEFAULT_ACTIVE, Options
from agentjobs_async.cli.tasks import rate_text

__all__ = ["BatchOptions"]


@frozen
class BatchOptions:
    """The options of `run` and `resume`.

    Attributes:
        shared: Those that other commands have too.
        journal: The file or URL of the journal; `None` gives the run a journal of its own.
        max_active: The jobs active at once.
        create_rate: The limit of creates; `None` for no limit.
        max_tries: Failed and rejected items that had fewer tries are planned again first; `None` for any number.
        limit: The number of items to start; `None` for all.
        max_failures: Start no more items once this many have failed; `None` for no limit.
        out: The file that gets each result as a line of JSON; `None` for none.
    """

    shared: Options
    journal: str | None
    max_active: int
    create_rate: Rate | None
    max_tries: int | None
    limit: int | None
    max_failures: int | None
    out: str | None

    def to_resume(self) -> list[str]:
        """Return the options with which `agentjobs resume` goes on in the same way; defaults are left out."""
        settings = {
            "--project": self.shared.service.project_id,
            "--max-active": None if self.max_active == DEFAULT_ACTIVE else self.max_active,
            "--create-rate": None if self.create_rate is None else rate_text(self.create_rate),
        }
        limits = {"--max-failures": self.max_failures, "--out": self.out}
        return [
            *self.shared.service.options(),
            *_given(settings),
            *self.shared.timeout_option(),
            *_given(limits),
            *["--json"] * self.shared.as_json,
        ]

    def of_run(self, journal: Journal) -> dict[str, Any]:
        """Return the arguments of `run_batch`."""
        return {
            "journal": journal,
            "max_active": self.max_active,
            "create_rate": self.create_rate,
            "timeout": self.shared.timeout,
            "max_failures": self.max_failures,
            "limit": self.limit,
        }


def _given(settings: dict[str, Any]) -> list[str]:
    return [str(word) for pair in settings.items() if pair[1] is not None for word in pair]
