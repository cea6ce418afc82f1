"""Compacts the oldest files of a partition together, whatever their sizes."""

from collections.abc import Sequence

from sleeper.compaction.strategy import FileSize, StrategySettings


def oldest_first(files: Sequence[FileSize], settings: StrategySettings) -> list[list[FileSize]]:
    """Full groups in order of age: a file's name begins with the time at which it was written."""
    size = settings.files_per_job_max
    sorted_rows = sorted(files, key=lambda file: file.path.rpartition("/")[2])
    whole = len(sorted_rows) - len(sorted_rows) % size
    return [sorted_rows[start : start + size] for start in range(0, whole, size)]
