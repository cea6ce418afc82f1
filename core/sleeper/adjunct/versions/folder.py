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
from typing import Annotated, Self

from sleeper.adjunct.definition import StoreDefinition, check_store_name
from sleeper.errors import (
    ConflictError,
    DataError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    did_you_mean,
)
from sleeper.json_codec import JsonCodec, Member
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
_DATA = "data"
_LOCK_ATTEMPTS = 5
_LOCK_SECONDS = 0.02
_UPDATED = "updated"
_SEALED = "sealed"
_READERS = "readers"
STATUS = "status.json"
REQUEST_FILE = re.compile(r"(request|refused)-([0-9a-f]+)")
_SPILL = "spill"
_FILES = (_LOCK, _CURRENT, _POSITIONS, _SPILL, STATUS)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class VersionName:
    """The name of a version, which is that of its folder. A later version has a larger number."""

    number: int

    def __str__(self) -> str:
        return f"v-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Returns the name; None if the text is no version's."""
        prefix, _, digits = text.partition("-")
        return cls(int(digits)) if prefix == "v" and digits.isdecimal() else None


@dataclass(frozen=True, slots=True)
class StoreHolder:
    """The process that fills a store, and what it fills it from."""

    process: int
    input: str
    partition: str | None
    extractor: str | None
    ttl_ms: Annotated[int | None, Member(optional=True)] = None


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
        holder = StoreHolder(os.getpid(), definition.input, partition, extractor, definition.ttl_ms)
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
        hint = did_you_mean(self.name, store_names(parent) if parent.is_dir() else ())
        return NotFoundError(f"there is no store {self.name!r} at {parent}{hint}")

    def holder(self) -> str | None:
        """Returns which process fills the store, such as `process 4711`; None if none does."""
        return self._name_holder() if self.is_locked() else None

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

    def current(self) -> VersionName | None:
        """Returns the version that serves, None if there is none."""
        text = self._read_current()
        if text is None:
            return None
        name = VersionName.parse(text)
        if name is None:
            raise DataError(f"store at {self.path}: {_CURRENT} names {text!r:.100}, no version")
        return name if self.version(name).is_dir() else None

    def data(self, version: VersionName) -> Path:
        """Returns the folder of the version's engine."""
        return self.version(version) / _DATA

    def version(self, name: VersionName) -> Path:
        """Returns the folder of a version."""
        return self.path / str(name)

    def new_version(self) -> VersionName:
        """Creates the folder of a version, and returns its name, which no version had before."""
        # The current version may be deleted already, but its name is not free.
        last = VersionName.parse(self._read_current() or "") or VersionName(0)
        name = VersionName(max([*self._versions(), last]).number + 1)
        make_folder(self.version(name))
        return name

    def seal(self, version: VersionName, dataset: str | None) -> None:
        """Marks the version as complete, durably. Its data must be durable already."""
        try:
            sync_folder(self.data(version))
        except OSError as error:
            raise self._write_error(str(version), error) from error
        self._replace(f"{version}/{_SEALED}", dataset or "")

    def switch(self, version: VersionName) -> None:
        """Makes the version the one that serves, durably."""
        self._replace(_CURRENT, str(version))

    def write_updated(self, version: VersionName, time_ms: int) -> None:
        """Records when a version that nobody changes any more was seen to be the newest."""
        self._replace(f"{version}/{_UPDATED}", str(time_ms))

    def read_updated(self, version: VersionName) -> int:
        """Returns that time, 0 if there is none."""
        try:
            return int((self.version(version) / _UPDATED).read_text())
        except (OSError, ValueError):
            return 0

    def find_sealed(self) -> VersionName | None:
        """Returns the newest version that is complete.

        It is newer than the current one if a process died between its seal and the switch.
        """
        return max(filter(self._is_sealed, self._versions()), default=None)

    def is_building(self) -> bool:
        """Returns whether there is a version that is not complete."""
        return not all(map(self._is_sealed, self._versions()))

    def find_dataset(self, dataset: str) -> VersionName | None:
        """Returns the newest complete version that was built of a dataset, None if none was."""
        for name in reversed(self._versions()):
            with contextlib.suppress(FileNotFoundError):
                if (self.version(name) / _SEALED).read_text() == dataset:
                    return name
        return None

    def delete_others(self, kept: VersionName | None) -> None:
        """Deletes all versions but one, except for those that another process reads."""
        for name in self._versions():
            if name != kept:
                self.delete(name)

    def delete_replaced(self) -> None:
        """Deletes the versions before the current one, except for those that a process reads.

        A version that another process builds is newer.
        """
        current = self.current()
        for name in self._versions():
            if current is not None and name < current:
                with contextlib.suppress(NotFoundError):  # another process deletes it
                    self.delete(name)

    def delete(self, version: VersionName) -> bool:
        """Deletes the version. False if another process reads it, or the disk fails."""
        path = self.version(version)
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

    def lock_to_read(self, version: VersionName) -> FileLock | None:
        """Protects the version from deletion. None if it was deleted meanwhile."""
        path = self.version(version)
        try:
            lock = lock_file(path / _READERS, is_shared=True)
        except NotFoundError:
            return None
        if lock is not None and not (path / _SEALED).exists():
            lock.release()
            return None
        return lock

    def release(self, version: VersionName, lock: FileLock | None) -> None:
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

    def _versions(self) -> list[VersionName]:
        names = [VersionName.parse(each.name) for each in self.path.iterdir()]
        return sorted(name for name in names if name is not None)

    def _is_sealed(self, version: VersionName) -> bool:
        return (self.version(version) / _SEALED).exists()

    def _check_content(self) -> None:
        for each in self.path.iterdir():
            name = each.name.removesuffix(".new")
            is_numbered = VersionName.parse(name) or REQUEST_FILE.fullmatch(name)
            if not is_numbered and name not in _FILES:
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
    names = []
    for each in sorted(parent.iterdir()):
        with contextlib.suppress(InvalidRequestError):  # no store has this name
            if StoreFolder(parent, each.name).exists():
                names.append(each.name)
    return names
