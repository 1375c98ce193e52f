"""The output of the command line: lines, tables and the live view."""
