"""The wheels of an instance and the names that they register."""

import importlib.machinery
import importlib.metadata
import logging
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sleeper.errors import InvalidRequestError, NotFoundError, classify_error
from sleeper.user_code.wheel import BUILT_IN, CodeKind, EntryPoint, Wheel, read_wheel

logger = logging.getLogger(__name__)

_UNPACKED = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class StoredWheel:
    """A wheel in the store. Another content under the same name has another `tag`."""

    file_name: str
    tag: str


class WheelStore(Protocol):
    """The port of the instance's `code/`. Raises NotFoundError and UnavailableError only."""

    def list(self) -> Sequence[StoredWheel]:
        """Lists the wheels, by name."""

    def read(self, file_name: str) -> bytes:
        """Returns the wheel's bytes, or NotFoundError."""

    def write(self, file_name: str, content: bytes) -> None:
        """Stores a wheel atomically."""

    def delete(self, file_name: str) -> None:
        """Deletes the wheel. Idempotent."""


class Registry:
    """The registered names and their wheels. Runs no user code. Thread-safe."""

    def __init__(self, store: WheelStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._read: dict[StoredWheel, Wheel | None] = {}

    def wheels(self) -> list[Wheel]:
        """Returns every wheel, by file name. Files that are no valid wheel are ignored."""
        return [wheel for wheel in self._refresh().values() if wheel is not None]

    def invalid_files(self) -> list[str]:
        """Returns the names of files that are no valid wheel."""
        return [each.file_name for each, wheel in self._refresh().items() if wheel is None]

    def _refresh(self) -> dict[StoredWheel, Wheel | None]:
        with self._lock:
            before = self._read
            self._read = {
                each: before[each] if each in before else self._wheel(each)
                for each in self._store.list()
            }
            return self._read

    def _wheel(self, stored: StoredWheel) -> Wheel | None:
        try:
            return read_wheel(stored.file_name, self._store.read(stored.file_name))
        except (InvalidRequestError, NotFoundError) as error:
            logger.warning("invalid wheel ignored: %s", error)
            return None

    def read(self, wheel: Wheel) -> bytes:
        """Returns the wheel's bytes."""
        return self._store.read(wheel.file_name)

    def find(self, kind: CodeKind, name: str) -> tuple[EntryPoint, Wheel | None]:
        """Returns the entry point of the name, and its wheel unless it is built in.

        InvalidRequestError lists the registered names.
        """
        points = [point for point in BUILT_IN if point.kind is kind]
        for point in points:
            if point.name == name:
                return point, None
        for wheel in self.wheels():
            for point in wheel.entry_points:
                if (point.kind, point.name) == (kind, name):
                    return point, wheel
                if point.kind is kind:
                    points.append(point)
        hint = "one of " + ", ".join(sorted(point.name for point in points))
        expected = hint if points else f"a wheel with an entry point of {kind.value}"
        raise InvalidRequestError(f"no {kind.noun} {name!r} is registered (expected {expected})")

    def add(self, paths: Iterable[Path]) -> list[Wheel]:
        """Adds wheels, all or none. Wheels with the same content are unchanged.

        InvalidRequestError if one is invalid.
        """
        present = self.wheels()
        new: list[tuple[Wheel, bytes]] = []
        for path in paths:
            try:
                content = path.read_bytes()
            except OSError as error:
                raise classify_error(
                    error, f"{path} cannot be read: {error.strerror}", InvalidRequestError
                ) from error
            wheel = read_wheel(path.name, content)
            if wheel in present:
                continue
            check_conflicts(wheel, [*present, *(each for each, _ in new)])
            check_environment(wheel)
            new.append((wheel, content))
        for wheel, content in new:
            self._store.write(wheel.file_name, content)
        return [wheel for wheel, _ in new]

    def restore(self, file_name: str, content: bytes) -> None:
        """Stores a wheel of a backup, which need not fit the environment of this process.

        InvalidRequestError if a name, module or project of it is taken.
        """
        wheel = read_wheel(file_name, content)
        present = self.wheels()
        if wheel not in present:
            check_conflicts(wheel, present)
            self._store.write(file_name, content)

    def get(self, name: str) -> Wheel:
        """Returns the wheel of that file or project name, or NotFoundError."""
        from packaging.utils import canonicalize_name

        wheels = self.wheels()
        for wheel in wheels:
            if name == wheel.file_name or canonicalize_name(name) == wheel.project:
                return wheel
        names = ", ".join(wheel.project for wheel in wheels) or "none"
        raise NotFoundError(f"unknown wheel {name!r} (expected one of: {names})")

    def remove(self, file_name: str) -> None:
        """Removes the file. Processes that have loaded it keep it until their work is done."""
        self._store.delete(file_name)


def check_conflicts(wheel: Wheel, others: Iterable[Wheel]) -> None:
    """Raises InvalidRequestError if a name, module or project of the wheel is taken."""
    built_in = {(point.kind, point.name) for point in BUILT_IN}
    for point in wheel.entry_points:
        if (point.kind, point.name) in built_in:
            raise InvalidRequestError(
                f"{wheel.file_name}: {point.kind.noun} {point.name!r} is built in; "
                "register another name"
            )
    for other in others:
        if other.project == wheel.project:
            raise InvalidRequestError(
                f"{wheel.file_name}: {other.file_name} already exists; remove it first"
            )
        taken = {(point.kind, point.name) for point in other.entry_points}
        for point in wheel.entry_points:
            if (point.kind, point.name) in taken:
                raise InvalidRequestError(
                    f"{wheel.file_name}: {point.kind.noun} {point.name!r} is registered by "
                    f"{other.file_name}"
                )
        for module in set(wheel.modules) & set(other.modules):
            raise InvalidRequestError(
                f"{wheel.file_name}: module {module!r} is also in {other.file_name}"
            )


def check_environment(wheel: Wheel) -> None:
    """Raises InvalidRequestError if a module is shadowed or a requirement is missing."""
    wheels = unpacked_on_path()
    path = [entry for entry in sys.path if entry not in wheels]
    for module in wheel.modules:
        # What is installed comes first on the path, so the wheel's own would never be loaded.
        installed = importlib.machinery.PathFinder.find_spec(module, path)
        is_real = installed is not None and installed.origin is not None
        if module in sys.stdlib_module_names or is_real:
            raise InvalidRequestError(
                f"{wheel.file_name}: a module {module!r} is installed here; rename it"
            )
    for need in wheel.needs:
        missing = _missing(need)
        if missing:
            raise InvalidRequestError(f"{wheel.file_name} needs {need}: {missing}")


def unpacked_on_path() -> list[str]:
    """Returns the folders on `sys.path` with unpacked wheels, which are named by hash."""
    return [entry for entry in sys.path if _UNPACKED.fullmatch(Path(entry).name)]


def _missing(need: str) -> str | None:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(need)
    except InvalidRequirement as error:
        return str(error)
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed here; Sleeper does not install requirements of wheels"
    fits = requirement.specifier.contains(version, prereleases=True)
    return None if fits else f"{version} is installed here"
