from agentjobs_async.batch.states import ENDED, MOVES, State, origins


def test_every_state_has_its_moves() -> None:
    """The table names every state once, and only states."""
    assert set(MOVES) == set(State)
    assert set().union(*MOVES.values()) <= set(State)


def test_terminal_states_are_left_never() -> None:
    """A terminal row never goes back."""
    terminal = {State.COMPLETED, State.FAILED, State.ARCHIVED, State.REJECTED}
    assert {state for state in State if not MOVES[state]} == terminal
    assert terminal <= set(ENDED)


def test_a_create_is_sent_from_planned_only() -> None:
    """Only a planned row is sent, so that no row is sent twice without being planned again."""
    assert origins(State.SENDING) == {State.PLANNED}
    assert origins(State.PLANNED) == {State.SENDING, State.UNKNOWN}


def test_late_answers() -> None:
    """An answer makes a sending row created, and an unknown one."""
    assert origins(State.CREATED) == {State.SENDING, State.UNKNOWN}


def test_what_can_be_abandoned() -> None:
    """A row fails by its job, and an unknown one when it is abandoned; what was never sent can't fail."""
    assert origins(State.FAILED) == {State.CREATED, State.UNKNOWN}
