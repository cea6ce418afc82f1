"""Opens the engine on disk, whose library is the extra `adjunct`."""

from pathlib import Path
from typing import TYPE_CHECKING

from sleeper.errors import InvalidRequestError

if TYPE_CHECKING:
    from sleeper.adjunct.engines.rocksdb import RocksDbEngine


def open_disk_engine(
    store: str, folder: Path, reads_only: bool = False, is_fixed: bool = False
) -> "RocksDbEngine":
    """Opens the files of a store. InvalidRequestError names the extra that is missing."""
    check_disk_engine(store)
    from sleeper.adjunct.engines.rocksdb import RocksDbEngine

    return RocksDbEngine(folder, reads_only, is_fixed=is_fixed)


def check_disk_engine(store: str) -> None:
    """Raises InvalidRequestError if stores on disk cannot be opened."""
    try:
        import rocksdict  # noqa: F401 (only whether it is there)
    except ImportError as error:
        raise InvalidRequestError(
            f"store {store!r} of type rocksdb: {error} (expected the extra "
            "sleeper-store[adjunct], or type memory)"
        ) from error
