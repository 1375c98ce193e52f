import logging

from agentjobs_async.cli._output.logs import LogLines
from tests.cli.checks import Captured, screen

LOGGER = logging.getLogger("tests.of.lines")


def test_lines(capsys: Captured) -> None:
    """Each record is one line with the time of day; a critical one is an error, and is never cut."""
    ids = ", ".join(f"the job of 'k{number}' is docs~.job_{number}" for number in range(100))
    with LogLines(screen(), LOGGER.name).shown():
        LOGGER.info("done\nnow")
        LOGGER.debug("a detail")
        LOGGER.critical("%s", ids)
    first, rest = capsys.readouterr().err.split("\n", 1)
    assert first[len("12:34:56 ") :] == "done\\nnow"
    assert "".join(rest.split()) == "".join(f"Error: {ids}".split())


def test_a_level(capsys: Captured) -> None:
    """Records below the level are not shown; after the block the logger is as it was before."""
    before = LOGGER.level, list(LOGGER.handlers)
    with LogLines(screen(), LOGGER.name, level=logging.CRITICAL).shown():
        LOGGER.error("not shown")
    assert capsys.readouterr().err == ""
    assert (LOGGER.level, LOGGER.handlers) == before
