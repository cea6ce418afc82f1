"""`sleeper query` and `sleeper sql`."""

import typer


def query(context: typer.Context) -> None:
    """Query."""


def sql(context: typer.Context) -> None:
    """SQL."""
