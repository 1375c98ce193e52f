"""Faults in what keeps the tries of an item apart, and says who has a row."""

from typing import Final

from tests.mutants.mutant import Mutant

OWNING: Final = (
    Mutant(
        "a-retry-that-keeps-no-try",
        "batch/_store/statements.py",
        "tries = (keeping_tries(conditions),) if move.begins_try else ()",
        "tries = ()",
        "What an item was before it was retried is gone: its job, its error, and the id of a late answer.",
        ("tests/batch", "tests/durable"),
    ),
    Mutant(
        "a-create-recorded-in-any-try",
        "batch/states.py",
        """\
    "active",
    matches="claim",
""",
        """\
    "active",
""",
        "The late answer of a create that was given up becomes the job of the next try, which starts a second agent.",
    ),
    Mutant(
        "a-release-of-any-claim",
        "batch/states.py",
        """"sending unknown", "planned", matches="claim sent_once", clears""",
        """"sending unknown", "planned", matches="sent_once", clears""",
        "An owner that was counted as dead plans a row again that another one is sending: two agents for one item.",
    ),
    Mutant(
        "a-repeated-create-that-is-planned-again",
        "batch/_store/statements.py",
        """"sent_once": or_(_ROW.idempotency_key.is_(None), _ROW.idempotency_key == _ROW.claim),""",
        """"sent_once": _ROW.state != State.PLANNED,""",
        "A create in doubt whose repetition gets a 429 is sent with another key: two agents for one item.",
    ),
    Mutant(
        "a-late-answer-told-as-an-end",
        "batch/_store/late.py",
        'words |= {"follow": Follow.NO.value, "error": _ANSWERED_LATE}',
        'words |= {"error": _ANSWERED_LATE}',
        "A chat is told of the job of a create that its user had given up, as if it were the one of its message.",
        ("tests/batch", "tests/durable"),
    ),
    Mutant(
        "a-late-job-that-nobody-polls",
        "batch/_run/item_create.py",
        "            self.item.context.has_late_job.set()\n",
        "",
        "The end of an agent whose create was answered late is recorded a minute later, or never.",
    ),
    Mutant(
        "a-take-of-rows-that-others-own",
        "batch/_store/owning.py",
        "or_(_ROW.owner.is_(None), _ROW.owner == owner, _ROW.change == change))",
        "or_(_ROW.state == State.ACTIVE, _ROW.change == change))",
        "Two runs on one journal poll each job twice, and give each result twice.",
    ),
    Mutant(
        "a-run-that-tells-of-rows-of-others",
        "batch/_run/item_create.py",
        "return Ended(None) if row is None else self._end(outcome, error)",
        "return self._end(outcome, error)",
        "A run that stood still gives an end of an item that another run has sent again meanwhile.",
    ),
    Mutant(
        "a-share-that-ignores-a-newcomer",
        "batch/_store/owners.py",
        "all(other.counted_at > owner.joined_at for other in others)",
        "True",
        "While processes start, all of them together poll more often than the journal's limit allows.",
    ),
    Mutant(
        "the-rows-of-the-dead-kept",
        "batch/_store/owning.py",
        "[polled.values(owner=None), late.values(owner=None), followed.values(follower=None)]",
        "[late.values(owner=None), followed.values(follower=None)]",
        "The jobs of a process that was killed are polled by nobody: the batch of the others never ends.",
    ),
)
