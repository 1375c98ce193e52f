"""What a command is given: options, limits, the service, journals, and the items of an input."""
