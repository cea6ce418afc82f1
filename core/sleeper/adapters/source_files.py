"""The files of a source of files, as they are now."""

import glob
import os

from sleeper.adapters.definition import FilesSource
from sleeper.adapters.source_text import is_pattern
from sleeper.datafiles.sources.files import find_source_files
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.storage.bucket import is_s3_url
from sleeper.storage.bucket_folder import S3File, SourceFile
from sleeper.storage.location import LOCAL_SCHEME


def find_files(instance: Instance, source: FilesSource) -> list[SourceFile]:
    """Returns the files that the paths of a source name, that match its patterns or are below them.

    A file that several paths name is read once. InvalidRequestError if a file is missing, or
    nothing matches a pattern.
    """
    names = (name for path in source.paths for name in _expand(instance, path))
    found = find_source_files([instance.storage.sources.open(name) for name in names])
    return list({_identity(file): file for file in found}.values())


def _expand(instance: Instance, name: str) -> list[str]:
    bare = name.removeprefix(LOCAL_SCHEME)
    if is_s3_url(name) or not is_pattern(bare):
        return [name]
    found = sorted(glob.glob(bare, recursive=True))
    if not found:
        raise InvalidRequestError(f"no file matches {bare}")
    return [instance.storage.sources.job_name(each) for each in found]


def _identity(file: SourceFile) -> str:
    return str(file) if isinstance(file, S3File) else os.path.realpath(file)
