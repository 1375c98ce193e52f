from agentjobs_async.batch.states import ENDED, MOVES, State, open_in, origins


def test_moves() -> None:
    """Only planned rows are sent, an unknown row may still get its answer or be settled, and ended rows never go back.

    What was never sent can't fail, but be withdrawn.
    """
    job_ends = {state: {State.ACTIVE} for state in (State.COMPLETED, State.FAILED, State.ARCHIVED)}
    assert {state: origins(state) for state in State} == job_ends | {
        State.PLANNED: {State.SENDING, State.UNKNOWN},
        State.SENDING: {State.PLANNED},
        State.ACTIVE: {State.SENDING, State.UNKNOWN},
        State.ABANDONED: {State.PLANNED, State.ACTIVE, State.UNKNOWN},
        State.REJECTED: {State.SENDING, State.UNKNOWN},
        State.UNKNOWN: {State.SENDING},
    }
    assert set(MOVES) == set(State)
    assert {state for state in State if not MOVES[state]} == ENDED - {State.UNKNOWN}


def test_open() -> None:
    """What a run has something to do about is counted: neither ends nor what is unknown."""
    assert open_in(dict.fromkeys(State, 2)) == 6
    assert open_in(dict.fromkeys(ENDED, 2)) == 0


def test_order() -> None:
    """All lists of states have one order: what needs a person, what is under way, what has ended."""
    order = "unknown failed rejected active sending planned abandoned archived completed"
    assert list(State) == order.split()
