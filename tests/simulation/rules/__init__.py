"""The rules of the referee: each module yields what was broken, one sentence each."""
