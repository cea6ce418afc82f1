"""The wheels of a local instance: files in the folder `code/`."""

import stat
from dataclasses import dataclass
from pathlib import Path

from sleeper.errors import NotFoundError, UnavailableError
from sleeper.local.folder import write_whole_bytes
from sleeper.storage.disk import make_folder
from sleeper.user_code.registry import StoredWheel


@dataclass(frozen=True, slots=True)
class CodeFolder:
    """The port `WheelStore` over a folder, which need not be there yet."""

    folder: Path

    def list(self) -> list[StoredWheel]:
        """By name. A file's tag changes with its time, size and place on the disk."""
        try:
            found = [(path.name, path.stat()) for path in sorted(self.folder.glob("*.whl"))]
        except OSError as error:
            raise UnavailableError(f"cannot list {self.folder}: {error.strerror}") from error
        return [
            StoredWheel(name, f"{each.st_mtime_ns}-{each.st_size}-{each.st_ino}")
            for name, each in found
            if stat.S_ISREG(each.st_mode)
        ]

    def read(self, file_name: str) -> bytes:
        """The file's bytes, or NotFoundError."""
        try:
            return (self.folder / file_name).read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(f"{self.folder / file_name} does not exist") from error
        except OSError as error:
            raise UnavailableError(f"cannot read {file_name}: {error.strerror}") from error

    def write(self, file_name: str, content: bytes) -> None:
        """Writes the file: after a crash it is there whole, or not at all."""
        make_folder(self.folder)
        write_whole_bytes(self.folder / file_name, content)

    def delete(self, file_name: str) -> None:
        """Deletes the file, if it is there."""
        try:
            (self.folder / file_name).unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(f"cannot delete {file_name}: {error.strerror}") from error
