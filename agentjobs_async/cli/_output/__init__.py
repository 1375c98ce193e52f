"""What a command shows and writes: results as lines, tables, JSON and files; hints; the live view."""
