"""Answers and their bytes."""

from agentjobs_async.testing._answers import Answer, Message, error, reason


def test_message_bytes() -> None:
    """A message is a status line, its headers in order, and its body."""
    message = Message(201, (("A", "1"), ("A", "2")), b"{}")
    assert message.to_bytes() == b"HTTP/1.1 201 Created\r\nA: 1\r\nA: 2\r\n\r\n{}"


def test_reasons() -> None:
    """A status that HTTP does not define has the phrase Unknown."""
    assert [reason(404), reason(999)] == ["Not Found", "Unknown"]


def test_error_documents() -> None:
    """An error document has one field, the reason."""
    assert error(405, "no", ("Allow", "GET")) == Answer(405, {"error": "no"}, (("Allow", "GET"),))
