"""What a command is given: options, limits, the service, journals, and the prompts of an input."""
