"""Loads objects by their registered names, in processes that merge rows or create jobs.

A wheel is unpacked once into a folder named after the hash of its content, and that folder
appended to `sys.path`. Where another wheel has the same modules (one that it replaces, or one
of another instance), that one and its modules are forgotten first; objects of it that are in
use stay what they are.
"""

import atexit
import errno
import functools
import importlib
import io
import os
import shutil
import stat
import sys
import threading
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from sleeper.errors import (
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
    UserCodeError,
    classify_error,
)
from sleeper.temporary import temporary_folder
from sleeper.user_code.calls import contain_errors
from sleeper.user_code.registry import Registry, StoredWheel, unpacked_on_path
from sleeper.user_code.wheel import CodeKind, EntryPoint, Wheel, hash_content

_UNPACKING = "unpacking-"
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
# All threads of a process share its modules.
_import_lock = threading.RLock()


@dataclass(frozen=True, slots=True)
class WheelObject:
    """An object of a wheel that is unpacked in the folder."""

    point: EntryPoint
    file_name: str
    folder: Path


class UserCode:
    """The registered objects of an instance. `folder` is local; processes may share it."""

    def __init__(self, registry: Registry, folder: Path) -> None:
        self.registry = registry
        self._folder = folder
        self._loaded: dict[tuple[str, EntryPoint], Any] = {}

    def load(self, kind: CodeKind, name: str) -> Any:
        """Returns the object of that name.

        InvalidRequestError if the name is not registered; UserCodeError if its code cannot
        be imported; UnavailableError if the disk refuses it.
        """
        point, wheel = self.registry.find(kind, name)
        key = ("" if wheel is None else wheel.sha256, point)
        with _import_lock:
            if key not in self._loaded:
                if wheel is not None:
                    self._make_importable(wheel)
                self._loaded[key] = _import(point, None if wheel is None else wheel.file_name)
            return self._loaded[key]

    def locate(self, kind: CodeKind, name: str) -> WheelObject | None:
        """Unpacks the wheel of the name. None if the object is built in. Errors are of `load`."""
        point, wheel = self.registry.find(kind, name)
        if wheel is None:
            return None
        with _import_lock:
            return WheelObject(point, wheel.file_name, self._unpacked(wheel))

    def _make_importable(self, wheel: Wheel) -> None:
        folder = self._unpacked(wheel)
        for entry in unpacked_on_path():
            if Path(entry) != folder and any(_has_module(Path(entry), m) for m in wheel.modules):
                _forget(entry)
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
            importlib.invalidate_caches()

    def _unpacked(self, wheel: Wheel) -> Path:
        """Returns the folder with the wheel's modules.

        It is shared by the instance's processes, unless this user may not read or write there:
        then it is this process's own.
        """
        try:
            try:
                return self._unpacked_in(self._folder, wheel)
            except OSError as error:
                if error.errno not in _NO_ACCESS:
                    raise
            return self._unpacked_in(_folder_of_process(), wheel)
        except OSError as error:
            raise UnavailableError(f"cannot unpack {wheel.file_name}: {error}") from error

    def _unpacked_in(self, folder: Path, wheel: Wheel) -> Path:
        target = folder / wheel.sha256
        if target.exists():
            if not os.access(target, os.R_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "the folder is not readable", str(target))
            return target
        folder.mkdir(parents=True, exist_ok=True)
        whole = Path(mkdtemp(prefix=_UNPACKING, dir=folder))
        try:
            with zipfile.ZipFile(io.BytesIO(self._content(wheel))) as archive:
                archive.extractall(whole)
            # A temporary folder is closed to other users.
            whole.chmod(stat.S_IMODE(folder.stat().st_mode))
            _sync(whole)
            whole.rename(target)
        except OSError:
            # Another process has put it there, with the same content.
            if not target.exists():
                raise
        finally:
            shutil.rmtree(whole, ignore_errors=True)
        return target

    def _content(self, wheel: Wheel) -> bytes:
        """Returns the content of the checked wheel, whose file may have been replaced."""
        content = self.registry.read(wheel)
        if hash_content(content) != wheel.sha256:
            raise UnavailableError(f"{wheel.file_name} was replaced during loading; try again")
        return content


@functools.cache
def _folder_of_process() -> Path:
    folder = Path(mkdtemp(dir=temporary_folder("code")))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sync(folder: Path) -> None:
    """Syncs the folder before its rename, because an existing folder is not unpacked again."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _has_module(folder: Path, module: str) -> bool:
    return (folder / module).exists() or (folder / f"{module}.py").exists()


def _forget(entry: str) -> None:
    sys.path.remove(entry)
    below = entry + os.sep
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and file.startswith(below):
            del sys.modules[name]


def import_object(wheel_object: WheelObject) -> Any:
    """Imports an object in a process that imports from no other wheel. Errors are of `load`."""
    sys.path.append(str(wheel_object.folder))
    return _import(wheel_object.point, wheel_object.file_name)


def _import(point: EntryPoint, file_name: str | None) -> Any:
    where = f"{point.kind.noun} {point.name!r} ({point.place}"
    where += ")" if file_name is None else f" of {file_name})"
    try:
        with contain_errors(lambda why: UserCodeError(f"{where} cannot be imported: {why}")):
            module = importlib.import_module(point.module)
    except UserCodeError as error:
        # The disk may have failed, not the code.
        cause = error.__cause__ or error
        raise classify_error(cause, str(error), UserCodeError) from cause
    result = getattr(module, point.attribute, None)
    if not callable(result):
        what = (
            "the module has no such attribute" if result is None else "the object is not callable"
        )
        raise InvalidRequestError(f"{where}: {what}")
    return result


class _NoWheels:
    """A store without wheels."""

    def list(self) -> list[StoredWheel]:
        return []

    def read(self, file_name: str) -> bytes:
        raise NotFoundError(f"no wheel {file_name}")

    def write(self, file_name: str, content: bytes) -> None:  # noqa: ARG002
        raise InvalidRequestError(f"this instance has no wheel store: {file_name}")

    def delete(self, file_name: str) -> None:
        raise NotFoundError(f"no wheel {file_name}")


BUILT_IN_CODE = UserCode(Registry(_NoWheels()), Path())
"""The built-in iterators and strategies."""
