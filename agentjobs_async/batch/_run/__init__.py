"""A run's inside: which item begins when, its create, its wait, and how the run ends."""
