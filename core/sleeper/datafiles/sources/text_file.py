"""Sources of text: users' files, and the contents of requests."""

from dataclasses import dataclass

from sleeper.storage.bucket_folder import SourceFile


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """The content of a file in memory, uncompressed, with its name in errors."""

    name: str
    content: bytes

    def __str__(self) -> str:
        return self.name


TextFile = SourceFile | MemoryFile
