"""A store that another process fills."""

from functools import partial
from pathlib import Path

from sleeper.adjunct.engines.disk import open_disk_engine
from sleeper.adjunct.folder import StoreFolder
from sleeper.adjunct.store_state import StoreState
from sleeper.adjunct.version import StoreVersion, read_state
from sleeper.errors import UnavailableError

# A version may be replaced and deleted between its name and its lock.
_TRIES = 5


class StoreReader:
    """Reads the version that serves, and what the other process writes.

    `current` is None as long as there is no complete version.
    """

    def __init__(self, parent: Path, name: str) -> None:
        self.folder = StoreFolder(parent, name)
        if not self.folder.path.is_dir():
            raise self.folder.missing_error()
        self.current: StoreVersion | None = None
        self._name: str | None = None
        self.refresh()

    @property
    def state(self) -> StoreState | None:
        """The state of the version that serves."""
        return None if self.current is None else self.current.state

    @property
    def serving(self) -> StoreVersion:
        """The version that serves. UnavailableError if none is complete."""
        if self.current is None:
            raise UnavailableError(
                f"store at {self.folder.path} has no complete version (expected a process that "
                "fills it, with type rocksdb)"
            )
        return self.current

    def refresh(self) -> None:
        """Takes over a new version, or what was written to the current one."""
        for _ in range(_TRIES):
            name = self.folder.current()
            if name is None:
                self.current = self._name = None
                return
            is_same = name == self._name and self.current is not None
            if is_same and self._catch_up(self.serving):
                return
            version = open_version(self.folder, name)
            if version is None:
                continue
            self.current = version
            self._name = name
            return
        raise UnavailableError(f"store at {self.folder.path}: version {name} cannot be locked")

    def close(self) -> None:
        """Closes the version when its last reader has."""
        self.current = None

    def _catch_up(self, version: StoreVersion) -> bool:
        """Returns whether the version has all changes; otherwise it has to be opened again."""
        if not version.engine.catch_up():
            return False
        assert self._name is not None
        version.set_state(read_state(version.engine, self.folder, self._name))
        return True


def open_version(folder: StoreFolder, name: str) -> StoreVersion | None:
    """Opens a version to read it as it is now. None if it was deleted."""
    lock = folder.lock_to_read(name)
    if lock is None:
        return None
    try:
        engine = open_disk_engine(folder.name, folder.data(name), reads_only=True)
        state = read_state(engine, folder, name)
    except BaseException:
        lock.release()
        raise
    on_close = partial(folder.release, name, lock)
    return StoreVersion(folder.name, engine, state, on_close, folder.version(name))
