import pytest

from agentjobs_async import InvalidInputError
from agentjobs_async.cli.template import Template


def test_filled() -> None:
    """Names in braces are replaced by fields: text as it is, anything else as JSON; a value is not read again."""
    template = Template.of("{{x}} {title}: {the body}, {tags}!")
    assert template.names == ("title", "the body", "tags")
    fields = {"title": "{tags}", "the body": 7, "tags": ["é", None]}
    assert template.filled(fields) == '{x} {tags}: 7, ["é", null]!'


@pytest.mark.parametrize("text", ["{title", "title}", "{}", "{a:>5}", "{a!r}", "Fix it", "", "{{a}}"])
def test_no_template(text: str) -> None:
    """A template has at least one name, and nothing but names in its braces."""
    with pytest.raises(InvalidInputError, match="--prompt"):
        Template.of(text)
