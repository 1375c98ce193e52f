from agentjobs_async.cli.template import Template
from tests.cli.checks import taken


def test_filled() -> None:
    """Names in braces are replaced by fields: text as it is, anything else as JSON; a value is not read again."""
    template = Template.of("{{x}} {title}: {the body}, {tags}!")
    assert template.names == ("title", "the body", "tags")
    fields = {"title": "{tags}", "the body": 7, "tags": ["é", None]}
    assert template.filled(fields) == '{x} {tags}: 7, ["é", null]!'


def test_no_template() -> None:
    """A template has at least one name, and nothing but names in its braces."""
    texts = ["{title", "title}", "{}", "{a:>5}", "{a!r}", "Fix it", "", "{{a}}"]
    assert taken(dict.fromkeys(texts, "--prompt"), Template.of) == {}
