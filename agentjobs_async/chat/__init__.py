"""Jobs that are asked for in a chat: the commands of a bot, and the ends told where they were asked for.

Needs the extra `batch`, of whose journal the durable jobs are made. It knows no chat framework: a bot maps each command
to a `Place`, and has a function that sends a text there.
"""

from agentjobs_async._extras import extra_named

with extra_named("agentjobs_async.chat"):
    from agentjobs_async.chat.jobs import ChatJobs, Send
    from agentjobs_async.chat.place import Place
    from agentjobs_async.chat.texts import Texts
    from agentjobs_async.chat.writing import slack_text, split_command

__all__ = ["ChatJobs", "Place", "Send", "Texts", "slack_text", "split_command"]
