"""The temporary root: one folder of this user, whose contents other users can neither see nor make.

Rows are spilled there, and code is unpacked there and imported. Its parent may be shared, as `/tmp`
is, where any user can create the folder first. So a folder of another user is refused.
"""

import os
import stat
import tempfile
from pathlib import Path

from sleeper.errors import UnavailableError


def temporary_folder(name: str, parent: Path | None = None) -> Path:
    """Returns a folder of the root in `parent`, by default the system's temporary folder.

    UnavailableError if it cannot be created, belongs to another user, or is open to others.
    """
    where = Path(tempfile.gettempdir()) if parent is None else parent
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"cannot create folder {where}: {error.strerror}") from error
    root = _private_folder(where / f"sleeper-{os.getuid()}")
    return _private_folder(root / name)


def _private_folder(folder: Path) -> Path:
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        status = folder.lstat()
    except OSError as error:
        raise UnavailableError(f"cannot create folder {folder}: {error.strerror}") from error
    is_own = status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode)
    if not is_own or stat.S_IMODE(status.st_mode) & 0o077:
        raise UnavailableError(
            f"{folder} is not a folder of this user alone (expected owner {os.getuid()} and mode "
            "0700)"
        )
    return folder
