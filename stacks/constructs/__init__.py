"""Constructs of the stacks, with the project's defaults."""
