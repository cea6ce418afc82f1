"""Names of user code, and reading and validation of a wheel without running its code.

The format is PEP 427's: a zip with the modules, and a folder `.dist-info` with METADATA,
WHEEL, RECORD and entry_points.txt.
"""

import configparser
import hashlib
import io
import lzma
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from sleeper.errors import InvalidRequestError
from sleeper.properties.value_kind import CLASS_NAME

NAME_EXPECTED = "a letter, then letters, digits and underscores, at most 100 together"


class CodeKind(Enum):
    """The kind of a registered object; the value is the group of its entry points."""

    ITERATOR = "sleeper.iterators"
    STRATEGY = "sleeper.compaction_strategies"
    EXPORTER = "sleeper.exporters"
    EXTRACTOR = "sleeper.extractors"

    @property
    def noun(self) -> str:
        """The readable form, such as `iterator`."""
        return "compaction strategy" if self is CodeKind.STRATEGY else self.name.lower()


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A registered name, and the module and attribute of its object."""

    kind: CodeKind
    name: str
    module: str
    attribute: str

    @property
    def place(self) -> str:
        """The value of the entry point."""
        return f"{self.module}:{self.attribute}"


def is_code_name(text: str) -> bool:
    """Returns whether the text is a valid name."""
    return CLASS_NAME.fullmatch(text) is not None


BUILT_IN = (
    EntryPoint(CodeKind.ITERATOR, "AgeOffByField", "sleeper.iterators.builtin", "AgeOffByField"),
    EntryPoint(
        CodeKind.ITERATOR, "LatestBySortKey", "sleeper.iterators.builtin", "LatestBySortKey"
    ),
    EntryPoint(CodeKind.ITERATOR, "RowSecurity", "sleeper.iterators.builtin", "RowSecurity"),
    EntryPoint(CodeKind.ITERATOR, "SumByKey", "sleeper.iterators.builtin", "SumByKey"),
    EntryPoint(
        CodeKind.STRATEGY,
        "BasicCompactionStrategy",
        "sleeper.compaction.strategy",
        "basic_groups",
    ),
    EntryPoint(
        CodeKind.STRATEGY,
        "CostCompactionStrategy",
        "sleeper.compaction.strategy",
        "cost_groups",
    ),
    EntryPoint(
        CodeKind.STRATEGY,
        "SizeRatioCompactionStrategy",
        "sleeper.compaction.strategy",
        "size_ratio_groups",
    ),
)
"""What comes with the product. Wheels cannot register these names again."""


_FILES_MAX = 10_000
_UNPACKED_BYTES_MAX = 512 * 1024**2
# Texts are read at once, by Python or here.
_TEXT_BYTES_MAX = 8 * 1024**2
_PLACE = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*)\s*:\s*(?P<attribute>[^\W\d]\w*)")
# What `zipfile` raises of bytes that are no zip, or a damaged one.
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, KeyError, NotImplementedError, OSError, RuntimeError, ValueError),
)
_BAD_IN_PATH = re.compile(r'[\\:*?"<>|\x00-\x1f]')


@dataclass(frozen=True, slots=True)
class Wheel:
    """A valid wheel. `modules` are its top-level ones; `needs` is Requires-Dist."""

    file_name: str
    project: str
    version: str
    sha256: str
    bytes: int
    entry_points: tuple[EntryPoint, ...]
    modules: tuple[str, ...]
    needs: tuple[str, ...]


def read_wheel(file_name: str, content: bytes) -> Wheel:
    """Parses a wheel. InvalidRequestError if it is invalid."""
    # Most processes read no wheel, so the functions that need `packaging` import it.
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        project, version, _, tags = parse_wheel_filename(file_name)
    except InvalidWheelFilename as error:
        raise InvalidRequestError(f"{file_name} is not a valid name of a wheel: {error}") from error
    _check_platform(file_name, tags)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_members(file_name, archive)
            names = archive.namelist()
            info = _info_folder(file_name, project, names)
            metadata = archive.read(f"{info}/METADATA").decode()
            has_points = f"{info}/entry_points.txt" in names
            points = archive.read(f"{info}/entry_points.txt").decode() if has_points else ""
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{file_name}: its metadata is not UTF-8: {error}") from error
    except _BROKEN as error:
        raise InvalidRequestError(f"{file_name} is not a readable zip file: {error}") from error
    return Wheel(
        file_name,
        project,
        str(version),
        hash_content(content),
        len(content),
        tuple(_entry_points(file_name, points, set(names))),
        tuple(sorted(_modules(names))),
        tuple(_needs(metadata)),
    )


def hash_content(content: bytes) -> str:
    """Returns the SHA-256 of the content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _check_platform(file_name: str, tags: Iterable[object]) -> None:
    from packaging.tags import sys_tags

    if frozenset(tags).isdisjoint(sys_tags()):
        wanted = ", ".join(sorted(str(tag) for tag in tags))
        raise InvalidRequestError(
            f"{file_name} does not support this platform: it is built for {wanted} "
            "(expected py3-none-any)"
        )


def _check_members(file_name: str, archive: zipfile.ZipFile) -> None:
    """Raises InvalidRequestError for a member that is no plain file below the target folder."""
    members = archive.infolist()
    if len(members) > _FILES_MAX or sum(m.file_size for m in members) > _UNPACKED_BYTES_MAX:
        raise InvalidRequestError(
            f"{file_name} is too large: at most {_FILES_MAX} files and "
            f"{_UNPACKED_BYTES_MAX // 1024**2} MiB unpacked"
        )
    for member in members:
        path = PurePosixPath(member.orig_filename)
        is_text = path.suffix == ".py" or any(p.endswith(".dist-info") for p in path.parts[:1])
        if is_text and member.file_size > _TEXT_BYTES_MAX:
            raise InvalidRequestError(
                f"{file_name}: {member.orig_filename!r} has {member.file_size:,} bytes (expected "
                f"at most {_TEXT_BYTES_MAX // 1024**2} MiB of text)"
            )
        if path.is_absolute() or ".." in path.parts or _BAD_IN_PATH.search(member.orig_filename):
            raise InvalidRequestError(
                f"{file_name}: member {member.orig_filename!r} is outside its folder"
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise InvalidRequestError(f"{file_name}: member {member.filename!r} is a link")
        if path.parts and path.parts[0].endswith(".data"):
            raise InvalidRequestError(
                f"{file_name}: files of {path.parts[0]} require an installation (expected only "
                "modules)"
            )
    broken = archive.testzip()
    if broken is not None:
        raise InvalidRequestError(f"{file_name}: member {broken!r} is damaged")


def _info_folder(file_name: str, project: str, names: Iterable[str]) -> str:
    from packaging.utils import canonicalize_name

    paths = set(names)
    for folder in {name.partition("/")[0] for name in paths}:
        stem = folder.removesuffix(".dist-info")
        if folder != stem and canonicalize_name(stem.rpartition("-")[0]) == project:
            missing = [f for f in ("METADATA", "WHEEL", "RECORD") if f"{folder}/{f}" not in paths]
            if missing:
                raise InvalidRequestError(
                    f"{file_name} is not a wheel: {folder} has no {missing[0]}"
                )
            return folder
    raise InvalidRequestError(f"{file_name} is not a wheel: it has no .dist-info of {project}")


def _entry_points(file_name: str, text: str, names: set[str]) -> Iterator[EntryPoint]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True)
    # Names keep their case.
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        reason = " ".join(str(error).split())
        raise InvalidRequestError(f"{file_name}: entry_points.txt: {reason}") from error
    count = 0
    for kind in CodeKind:
        for name, location in parser.items(kind.value) if parser.has_section(kind.value) else ():
            count += 1
            yield _entry_point(file_name, kind, name, location, names)
    if not count:
        groups = " or ".join(kind.value for kind in CodeKind)
        raise InvalidRequestError(f"{file_name} registers nothing: no entry points of {groups}")


def _entry_point(
    file_name: str, kind: CodeKind, name: str, location: str, names: set[str]
) -> EntryPoint:
    where = f"{file_name}: entry point {name!r} of {kind.value}"
    if not is_code_name(name):
        raise InvalidRequestError(f"{where}: invalid name (expected {NAME_EXPECTED})")
    match = _PLACE.fullmatch(location.strip())
    if match is None:
        raise InvalidRequestError(f"{where}: {location!r} is not module:Object")
    path = match["module"].replace(".", "/")
    if names.isdisjoint((f"{path}.py", f"{path}/__init__.py")):
        raise InvalidRequestError(f"{where}: the wheel has no module {match['module']}")
    return EntryPoint(kind, name, match["module"], match["attribute"])


def _modules(names: Iterable[str]) -> set[str]:
    tops = {name.partition("/")[0] for name in names}
    return {top.partition(".")[0] for top in tops if not top.endswith(".dist-info")}


def _needs(metadata: str) -> Iterator[str]:
    for line in metadata.partition("\n\n")[0].splitlines():
        header, _, value = line.partition(":")
        if header.strip().lower() == "requires-dist":
            yield value.strip()
