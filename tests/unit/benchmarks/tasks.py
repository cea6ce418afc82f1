"""Tasks of `benchmarks.measuring` that do no work."""

from benchmarks.measuring import Watch


def nothing(watch: Watch) -> None:
    """A task that does no work."""
    with watch:
        pass
