"""The tables of a journal, and the two databases that hold them: a file, or PostgreSQL."""
