"""The commands and their options; only these modules and `commands` know click."""
