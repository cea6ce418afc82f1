"""The inputs of a merge that reads all of them, or most: verified, from S3 fetched to local disk.

The engine asks for a row group when its merge comes to it, and waits. What is fetched before
costs a request for 16 MiB, of which several are on their way, and is verified in memory. Other
files are read once to verify them: from local disk that takes 2 % of a merge's time.
"""

import contextlib
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sleeper.datafiles.extract_files import Extract, make_extracts
from sleeper.datafiles.extracts import Wanted
from sleeper.datafiles.file_check import verify_bytes
from sleeper.datafiles.file_end import FileEnd, read_file_end, row_groups_holding
from sleeper.datafiles.location import DataRoot
from sleeper.files.data_file import DataFile
from sleeper.partitions.region import Region
from sleeper.schema.model import Schema

logger = logging.getLogger(__name__)

_REQUESTS_AT_ONCE = 4
_FILES_AT_ONCE = 64
# Merges in passes, other processes and the output want some of the disk too.
_DISK_SHARE = 4


@contextlib.contextmanager
def fetched(
    root: DataRoot, schema: Schema, wanted: Wanted, folder: Path
) -> Iterator[Mapping[str, Extract]]:
    """By data file, local files in the folder with every row of its regions (None for all rows).

    None of local files, nor if they might take more than a quarter of the disk's free space:
    then the engine reads S3 itself. They are gone at the end. Whether fetched or not, all files
    are held against their checksums first: StateMovedOnError if a file is gone, DataError that
    names it if it is torn or damaged.
    """
    with contextlib.ExitStack() as cleanup:
        extracts: Mapping[str, Extract] = {}
        if root.buckets:
            extracts = _fetched(root, schema, wanted, folder, cleanup)
        for file, _ in wanted:
            if file.path not in extracts or not extracts[file.path].is_verified:
                verify_bytes(root, file.path)
        yield extracts


def _fetched(
    root: DataRoot, schema: Schema, wanted: Wanted, folder: Path, cleanup: contextlib.ExitStack
) -> Mapping[str, Extract]:
    made: dict[str, Extract] = {}
    room = shutil.disk_usage(folder).free // _DISK_SHARE
    with (
        contextlib.ExitStack() as cancelled,
        ThreadPoolExecutor(_REQUESTS_AT_ONCE, "s3-files") as threads,
    ):
        for start in range(0, len(wanted), _FILES_AT_ONCE):
            some = wanted[start : start + _FILES_AT_ONCE]
            files = list(threads.map(lambda each: _chosen(root, schema, *each), some))
            room -= sum(end.bytes_of(groups) + len(end.index) for _, end, groups in files)
            if room < 0:
                logger.info("the engine reads S3 itself: the inputs would fill the disk")
                return {}
            try:
                made |= make_extracts(root, files, folder, threads, cancelled)
            except OSError as error:
                logger.warning("the engine reads S3 itself, the disk refuses: %s", error)
                return {}
        cleanup.enter_context(cancelled.pop_all())
    return made


def _chosen(
    root: DataRoot, schema: Schema, file: DataFile, regions: Sequence[Region] | None
) -> tuple[DataFile, FileEnd, Sequence[int]]:
    end = read_file_end(root, schema, file, verify=True)
    every = range(len(end.places))
    return file, end, every if regions is None else row_groups_holding(end, regions)
