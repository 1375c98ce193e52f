from typing import Any

from agentjobs_async import JobRef
from agentjobs_async.cli._output.summary import summary_lines
from agentjobs_async.cli.outcomes import Outcome, Result

LINK = "https://code.example/acme/docs/pull/1"


def result(prompt: str | None, *, token: str | None = "docs/job_1", link: str | None = LINK) -> Result:  # noqa: S107 - a job's token, no secret
    if token is None:
        return Result(1, Outcome.NOT_SENT, prompt=prompt)
    return Result(1, Outcome.COMPLETED, prompt=prompt, ref=JobRef.from_token(token), status="completed", pr_link=link)


def shown(results: list[Result], width: int | None) -> list[str]:
    return ["".join(map(_plain, line)) for line in summary_lines(results, width)]


def _plain(part: Any) -> str:
    return part if isinstance(part, str) else str(part[0])


def test_without_a_terminal() -> None:
    """Without a terminal each row is one line, with the prompt's beginning at its end."""
    assert shown([result("word " * 30), result("b", token=None)], None) == [
        "",
        "JOB         STATUS     PULL REQUEST                           PROMPT",
        f"docs/job_1  completed  {LINK}  {'word ' * 11}word…",
        "-           not sent   -                                      b",
        "",
        "1 completed, 1 not sent",
    ]


def test_narrow_terminal() -> None:
    """A terminal too narrow for a row gets the link below the prompt, whole."""
    assert shown([result("word " * 30), result("b", link=None)], 80)[1:-2] == [
        "JOB         STATUS     PROMPT, PULL REQUEST",
        f"docs/job_1  completed  {'word ' * 10}word…",
        f"                       {LINK}",
        "docs/job_1  completed  b",
    ]


def test_wide_terminal() -> None:
    """A wide terminal gets it all in one line, which fills it at the most."""
    lines = shown([result("word " * 30)], 100)
    assert lines[1].endswith("PULL REQUEST                           PROMPT")
    assert len(lines[2]) == 97  # it ends with a whole word


def test_link_that_fits_nowhere() -> None:
    """A link too long to stand below the prompt starts further left."""
    lines = shown([result("a", link=f"{LINK}{'0' * 30}")], 80)
    assert lines[3] == f"  {LINK}{'0' * 30}"


def test_without_prompts() -> None:
    """Jobs that were only waited for have no prompt column."""
    assert shown([result(None)], 80)[1:-2] == ["JOB         STATUS     PULL REQUEST", f"docs/job_1  completed  {LINK}"]
    assert shown([result(None)], 40)[1:-2] == ["JOB         STATUS", "docs/job_1  completed", f"  {LINK}"]


def test_long_tokens() -> None:
    """A very long token pushes only its own row."""
    lines = shown([result("a", token=f"docs/{'x' * 60}"), result("b")], None)
    assert lines[1].index("STATUS") == 42
    assert lines[3].index("completed") == 42
    assert lines[2].startswith(f"docs/{'x' * 60}  completed")


def test_very_narrow_terminal() -> None:
    """Where a prompt does not fit beside a row either, it stands beneath it, before the link."""
    assert shown([result("word " * 30)], 40)[1:-2] == [
        "JOB         STATUS",
        "  PROMPT, PULL REQUEST",
        "docs/job_1  completed",
        f"  {'word ' * 6}word…",
        f"  {LINK}",
    ]
