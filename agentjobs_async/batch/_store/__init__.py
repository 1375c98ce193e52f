"""Rows on disk: the journal's tables, statements and databases."""
