"""The files of a source of files, as they are now."""

import os

from sleeper.adapters.definition import FilesSource
from sleeper.datafiles.sources.files import find_source_files
from sleeper.instance import Instance
from sleeper.storage.bucket_folder import S3File, SourceFile


def find_files(instance: Instance, source: FilesSource) -> list[SourceFile]:
    """Returns the files that the paths of a source name, that match its patterns or are below them.

    A file that several paths name is read once. InvalidRequestError if a file is missing, or
    nothing matches a pattern.
    """
    found = find_source_files([instance.storage.sources.open(name) for name in source.paths])
    return list({_identity(file): file for file in found}.values())


def _identity(file: SourceFile) -> str:
    return str(file) if isinstance(file, S3File) else os.path.realpath(file)
