"""The resource limits of the engine, and its folder for spilled data."""

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sleeper.datafiles.json_limits import NO_LIMITS, JsonLimits
from sleeper.errors import UnavailableError
from sleeper.storage.bucket import Bucket

LINE_BYTES_MAX = 16 * 1024**2
"""The default limit for the length of a line of text, in bytes."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The resource limits of one run of the engine.

    `memory_bytes` is the size of DataFusion's memory pool; sorts beyond it spill to
    `spill_folder`, an existing local folder. `merge_files_max` is the maximum number of sorted
    inputs of one merge. The engine reads S3 objects only in `buckets`. `line_bytes_max` applies
    to ingested text, `key_cache_bytes` to the deleted keys in memory, `json_limits` to new values.
    """

    spill_folder: Path
    memory_bytes: int = 1024**3
    merge_files_max: int = 64
    threads: int = 2
    buckets: tuple[Bucket, ...] = ()
    line_bytes_max: int = LINE_BYTES_MAX
    key_cache_bytes: int = 64 * 1024**2
    json_limits: JsonLimits = NO_LIMITS

    def new_spill_path(self, name: str) -> Path:
        """Returns a path in the spill folder, and creates the folder if it is missing."""
        make_spill_folder(self.spill_folder)
        return self.spill_folder / name


def make_spill_folder(path: Path) -> None:
    """Creates the folder, not durably. UnavailableError if the disk refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot create spill folder {path}: {error.strerror}") from error


@contextlib.contextmanager
def spill_folder(settings: EngineSettings, prefix: str) -> Iterator[Path]:
    """Creates a temporary folder on the spill disk and deletes it at the end."""
    folder = settings.spill_folder / f"{prefix}-{uuid.uuid4().hex}"
    make_spill_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
