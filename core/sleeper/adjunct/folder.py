"""The folder of a store on local disk.

The process that fills the store holds `lock`, and writes the definition into it. `current` names
the version that serves; it is replaced atomically. A version is a folder `v-<number>` with `data`,
and with `sealed` once it is complete, which has the name of its dataset. A process that reads the
version locks `v-<number>/readers`, so a version that was replaced is deleted when the last one has
closed it. `positions.json` has the positions in the input, which survive the loss of the versions.
`status.json` has the status that the filling process reports, and `request-<id>` is a request of
another process; see `requests`. `spill` has temporary files of a load.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sleeper.adjunct.definition import StoreDefinition, check_store_name
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    did_you_mean,
)
from sleeper.json_codec import JsonCodec
from sleeper.json_codec.codec import parse_json
from sleeper.storage.disk import (
    FileLock,
    delete_durably,
    lock_file,
    make_folder,
    replacing_file,
    sync_folder,
)

_LOCK = "lock"
_CURRENT = "current"
_POSITIONS = "positions.json"
_VERSION = re.compile(r"v-(\d+)")
_DATA = "data"
_LOCK_ATTEMPTS = 5
_LOCK_SECONDS = 0.02
_UPDATED = "updated"
_SEALED = "sealed"
_READERS = "readers"
STATUS = "status.json"
REQUEST_FILE = re.compile(r"(request|refused)-([0-9a-f]+)")
_SPILL = "spill"
_KNOWN = (_LOCK, _CURRENT, _POSITIONS, _SPILL, STATUS)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreHolder:
    """The process that fills a store, and what it fills it from."""

    process: int
    input: str
    partition: str | None
    extractor: str | None


_HOLDER = JsonCodec(StoreHolder)


class StoreFolder:
    """The folder of the store `name` in the folder `parent`."""

    def __init__(self, parent: Path, name: str) -> None:
        check_store_name(name)
        self.name = name
        self.path = parent / name

    def lock(self, definition: StoreDefinition) -> FileLock:
        """Locks the store for the process that fills it. ConflictError names another one.

        InvalidRequestError, if the folder has other files than a store's.
        """
        make_folder(self.path)
        self._check_content()
        lock = lock_file(self.path / _LOCK)
        for _ in range(_LOCK_ATTEMPTS):
            if lock is not None:
                break
            # A process that asks whether the store is locked has the lock for a moment.
            time.sleep(_LOCK_SECONDS)
            lock = lock_file(self.path / _LOCK)
        if lock is None:
            raise ConflictError(f"store at {self.path} is in use by {self._name_holder()}")
        extractor, partition = definition.extractor, definition.partition_text
        holder = StoreHolder(os.getpid(), definition.input, partition, extractor)
        try:
            (self.path / _LOCK).write_text(_HOLDER.format(holder))
        except OSError as error:
            lock.release()
            raise UnavailableError(f"cannot write {self.path / _LOCK}: {error.strerror}") from error
        # A process that died during a load left files.
        shutil.rmtree(self.spill, ignore_errors=True)
        return lock

    def read_holder(self) -> StoreHolder | None:
        """Returns the process that fills the store, or was the last one; None if unknown."""
        try:
            content = (self.path / _LOCK).read_text(errors="replace")
            return _HOLDER.parse(content, _LOCK, DataError)
        except (OSError, DataError):
            return None

    @property
    def spill(self) -> Path:
        """The folder for temporary files of the process that fills the store."""
        return self.path / _SPILL

    def exists(self) -> bool:
        """Returns whether this is the folder of a store."""
        return (self.path / _LOCK).is_file()

    def missing_error(self) -> NotFoundError:
        """Returns the error of a store that does not exist."""
        parent = self.path.parent
        known = store_names(parent) if parent.is_dir() else ()
        hint = did_you_mean(self.name, known)
        return NotFoundError(f"there is no store {self.name!r} at {parent}{hint}")

    def holder(self) -> str | None:
        """Returns which process fills the store, such as `process 4711`; None if none does."""
        if not self.is_locked():
            return None
        return self._name_holder()

    def _name_holder(self) -> str:
        holder = self.read_holder()
        return "another process" if holder is None else f"process {holder.process}"

    def is_locked(self) -> bool:
        """Returns whether a process fills the store."""
        if not (self.path / _LOCK).exists():
            return False
        lock = lock_file(self.path / _LOCK)
        if lock is not None:
            lock.release()
        return lock is None

    def current(self) -> str | None:
        """Returns the name of the version that serves, None if there is none."""
        name = self._read_current()
        if name is None:
            return None
        if not _VERSION.fullmatch(name):
            raise DataError(f"store at {self.path}: {_CURRENT} names {name!r:.100}, no version")
        return name if (self.path / name).is_dir() else None

    def data(self, version: str) -> Path:
        """Returns the folder of the version's engine."""
        return self.path / version / _DATA

    def version(self, name: str) -> Path:
        """Returns the folder of a version."""
        return self.path / name

    def new_version(self) -> str:
        """Creates the folder of a version, and returns its name, which no version had before."""
        # The current version may be deleted already, but its name is not free.
        last = _VERSION.fullmatch(self._read_current() or "")
        numbers = [*self._numbers(), int(last[1]) if last else 0]
        name = f"v-{max(numbers) + 1}"
        make_folder(self.path / name)
        return name

    def seal(self, version: str, dataset: str | None) -> None:
        """Marks the version as complete, durably. Its data must be durable already."""
        try:
            sync_folder(self.path / version / _DATA)
        except OSError as error:
            raise self._write_error(version, error) from error
        self._replace(f"{version}/{_SEALED}", dataset or "")

    def switch(self, version: str) -> None:
        """Makes the version the one that serves, durably."""
        self._replace(_CURRENT, version)

    def write_updated(self, version: str, time_ms: int) -> None:
        """Records when a version that nobody changes any more was found to be the newest."""
        self._replace(f"{version}/{_UPDATED}", str(time_ms))

    def read_updated(self, version: str) -> int:
        """Returns that time, 0 if there is none."""
        try:
            return int((self.path / version / _UPDATED).read_text())
        except (OSError, ValueError):
            return 0

    def find_sealed(self) -> str | None:
        """Returns the newest version that is complete.

        It is newer than the current one if a process died between its seal and the switch.
        """
        sealed = [n for n in self._numbers() if (self.path / f"v-{n}" / _SEALED).exists()]
        return f"v-{max(sealed)}" if sealed else None

    def is_building(self) -> bool:
        """Returns whether there is a version that is not complete."""
        return any(not (self.path / f"v-{n}" / _SEALED).exists() for n in self._numbers())

    def find_dataset(self, dataset: str) -> str | None:
        """Returns the newest complete version that was built of a dataset, None if none was."""
        for number in reversed(self._numbers()):
            try:
                found = (self.path / f"v-{number}" / _SEALED).read_text()
            except FileNotFoundError:
                continue
            if found == dataset:
                return f"v-{number}"
        return None

    def delete_others(self, kept: str | None) -> None:
        """Deletes all versions but one, except for those that another process reads."""
        for number in self._numbers():
            name = f"v-{number}"
            if name != kept:
                self.delete(name)

    def delete_replaced(self) -> None:
        """Deletes the versions before the current one, except for those that a process reads.

        A version that another process builds is newer.
        """
        current = self.current()
        if current is None:
            return
        for number in self._numbers():
            if number < int(current[2:]):
                with contextlib.suppress(NotFoundError):  # another process deletes it
                    self.delete(f"v-{number}")

    def delete(self, version: str) -> bool:
        """Deletes the version. False if another process reads it, or the disk fails."""
        path = self.path / version
        if path.exists():
            readers = lock_file(path / _READERS)
            if readers is None:
                return False
            try:
                # A process that dies meanwhile leaves a part, which must not be a version.
                delete_durably([path / _SEALED])
                shutil.rmtree(path, ignore_errors=True)
            except OSError as error:
                logger.warning("cannot delete %s: %s", path, error.strerror)
                return False
            finally:
                readers.release()
        return True

    def lock_to_read(self, version: str) -> FileLock | None:
        """Protects the version from deletion. None if it was deleted meanwhile."""
        path = self.path / version
        try:
            lock = lock_file(path / _READERS, is_shared=True)
        except NotFoundError:
            return None
        if lock is not None and not (path / _SEALED).exists():
            lock.release()
            return None
        return lock

    def release(self, version: str, lock: FileLock | None) -> None:
        """Ends the protection of `lock_to_read`, and deletes the version if it was replaced."""
        if lock is not None:
            lock.release()
        # A version that serves stays for the next start.
        if self.current() != version:
            with contextlib.suppress(NotFoundError):  # another process deletes it
                self.delete(version)

    def read_positions(self) -> dict[str, str]:
        """Returns the saved positions, none if they were never saved or are damaged."""
        try:
            raw = parse_json((self.path / _POSITIONS).read_bytes(), _POSITIONS, DataError)
        except (OSError, DataError):
            return {}
        is_valid = isinstance(raw, dict) and all(isinstance(each, str) for each in raw.values())
        return raw if is_valid else {}

    def write_positions(self, positions: Mapping[str, str]) -> None:
        """Replaces the saved positions, durably."""
        self._replace(_POSITIONS, json.dumps(dict(positions)))

    def forget_positions(self) -> None:
        """Deletes the saved positions. Idempotent."""
        (self.path / _POSITIONS).unlink(missing_ok=True)

    def _read_current(self) -> str | None:
        try:
            return (self.path / _CURRENT).read_text(errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(f"store at {self.path}: {_CURRENT} cannot be read: {error}") from error

    def _numbers(self) -> list[int]:
        found = [_VERSION.fullmatch(each.name) for each in self.path.iterdir()]
        return sorted(int(each[1]) for each in found if each is not None)

    def _check_content(self) -> None:
        for each in self.path.iterdir():
            name = each.name.removesuffix(".new")
            is_numbered = _VERSION.fullmatch(name) or REQUEST_FILE.fullmatch(name)
            if not is_numbered and name not in _KNOWN:
                raise InvalidRequestError(
                    f"{self.path} is not the folder of a store: it has {each.name!r} (expected a "
                    "new or empty folder)"
                )

    def _replace(self, name: str, content: str) -> None:
        try:
            with replacing_file(self.path / name, self.path / f"{name}.new") as new:
                new.write_text(content)
        except OSError as error:
            raise self._write_error(name, error) from error

    def _write_error(self, name: str, error: OSError) -> UnavailableError:
        return UnavailableError(f"store at {self.path}: cannot write {name}: {error.strerror}")


def store_names(parent: Path) -> list[str]:
    """Returns the names of the stores of a folder. NotFoundError if there is no such folder."""
    if not parent.is_dir():
        raise NotFoundError(f"there is no folder {parent} (expected a folder with stores)")
    found = []
    for each in sorted(parent.iterdir()):
        try:
            if StoreFolder(parent, each.name).exists():
                found.append(each.name)
        except InvalidRequestError:
            continue  # no store has this name
    return found
