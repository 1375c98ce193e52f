from agentjobs_async.batch.states import ENDED, MOVES, State, open_in, origins


def test_moves() -> None:
    """Only planned rows are sent, an unknown row may still get its answer or be settled, and an end stays one.

    What was never sent can't fail, but be withdrawn. From its end a row comes back by a new try alone.
    """
    retried = {State.FAILED, State.ARCHIVED, State.REJECTED, State.ABANDONED}
    job_ends = {state: {State.ACTIVE} for state in (State.COMPLETED, State.FAILED, State.ARCHIVED)}
    assert {state: origins(state) for state in State} == job_ends | {
        State.PLANNED: {State.PLANNED, State.SENDING, State.UNKNOWN} | retried,  # the first while it is held back
        State.SENDING: {State.PLANNED, State.UNKNOWN},
        State.ACTIVE: {State.SENDING, State.UNKNOWN, State.ACTIVE},
        State.ABANDONED: {State.PLANNED, State.ACTIVE, State.UNKNOWN},
        State.REJECTED: {State.SENDING, State.UNKNOWN},
        State.UNKNOWN: {State.SENDING},
    }
    left = {state: {move.name for move in MOVES if state in move.origins} for state in ENDED - {State.UNKNOWN}}
    assert left == {state: {"retry"} for state in retried} | {State.COMPLETED: set()}
    assert {move.name for move in MOVES if move.begins_try} == {"retry", "send again"}


def test_names() -> None:
    """Each move has a name of its own."""
    assert len({move.name for move in MOVES}) == len(MOVES)


def test_open() -> None:
    """What a run has something to do about is counted: neither ends nor what is unknown."""
    assert open_in(dict.fromkeys(State, 2)) == 6
    assert open_in(dict.fromkeys(ENDED, 2)) == 0


def test_order() -> None:
    """All lists of states have one order: what needs a person, what is under way, what has ended."""
    order = "unknown failed rejected active sending planned abandoned archived completed"
    assert list(State) == order.split()
