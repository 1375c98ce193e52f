"""Faults of the emulator: their grammar, plans, and what each one does to an answer."""
