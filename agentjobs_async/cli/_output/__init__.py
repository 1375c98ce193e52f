"""What the command line writes: lines, tables, the live view."""
