"""The settings of a benchmark."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """`rows` None is the benchmark's default. `folder` keeps inputs for later runs."""

    folder: Path
    rows: int | None = None
    repeats: int = 3
