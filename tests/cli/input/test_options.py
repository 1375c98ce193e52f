import click
from click.testing import CliRunner

from agentjobs_async.batch import Where
from agentjobs_async.cli._input.options import filter_options, options_of


def test_options_of_conditions() -> None:
    """Conditions as options read as the same conditions, whatever is in their texts."""
    read: list[Where] = []

    @click.command()
    @filter_options
    def named(where: Where) -> None:
        read.append(where)

    conditions = [
        Where(),
        Where(states={"failed", "unknown"}),
        Where(text="timed out", key="--key", prefix="chat-7/", project="docs", older_than=21_600.0),
        Where(text="-x 'y' $z", older_than=90.5),
        Where(older_than=30 * 86_400.0),
        Where(older_than=1_234_567.875),
    ]
    for where in conditions:
        options = options_of(where)
        assert CliRunner().invoke(named, options, catch_exceptions=False).exit_code == 0, options
    assert read == conditions
