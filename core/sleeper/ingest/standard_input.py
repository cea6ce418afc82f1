"""The standard input of a command as a file on local disk, because an ingest may read it twice."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sleeper.datafiles.engine.settings import spill_folder
from sleeper.datafiles.sources.files import GZIP_SUFFIX, ZSTD_SUFFIX
from sleeper.errors import InvalidRequestError, UnavailableError, describe_error
from sleeper.instance import Instance
from sleeper.properties.instance import SORT_MEMORY_BYTES
from sleeper.runs.engine import engine_settings
from sleeper.storage.source_options import STANDARD_INPUT, FileFormat, SourceOptions

_COPY_BYTES = 1024**2
_MAGIC_BYTES = {b"\x1f\x8b": GZIP_SUFFIX, b"\x28\xb5\x2f\xfd": ZSTD_SUFFIX}


@contextmanager
def stage_standard_input(
    instance: Instance, stream: IO[bytes], options: SourceOptions
) -> Iterator[Path]:
    """Copies the stream to the spill folder, and deletes the copy at the end.

    InvalidRequestError if the options do not say the format.
    """
    if options.format is None:
        formats = ", ".join(each.value for each in FileFormat)
        raise InvalidRequestError(
            f"file {STANDARD_INPUT} has no known format (expected --format with one of {formats})"
        )
    with spill_folder(engine_settings(instance, SORT_MEMORY_BYTES), "standard-input") as folder:
        try:
            head = stream.read(max(map(len, _MAGIC_BYTES)))
            ending = next((e for magic, e in _MAGIC_BYTES.items() if head.startswith(magic)), "")
            path = folder / f"standard-input.{options.format.value}{ending}"
            with path.open("wb") as copy:
                copy.write(head)
                shutil.copyfileobj(stream, copy, _COPY_BYTES)
        except OSError as error:
            raise UnavailableError(
                f"cannot copy standard input to {folder}: {describe_error(error)}"
            ) from error
        yield path
