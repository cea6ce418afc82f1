"""Patterns that stand for files: `*`, `?`, `[...]`, and `**` for folders of any depth."""

import glob
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from sleeper.storage.bucket_folder import S3File

_ANY_FOLDERS = "**"


def is_pattern(path: str | Path) -> bool:
    """Whether a local path is a pattern, and not the name of a file."""
    return glob.has_magic(str(path)) and not Path(path).exists()


def find_matches(pattern: str | Path) -> list[Path]:
    """Returns the local files and folders that match, in order."""
    return sorted(map(Path, glob.glob(str(pattern), recursive=True)))


def find_matching_objects(pattern: S3File) -> list[S3File]:
    """Returns the objects whose keys match, in order; none if the key is no pattern."""
    if not glob.has_magic(pattern.key):
        return []
    parts = pattern.key.split("/")
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    below = replace(pattern, key="/".join(parts[:fixed])).below()
    matches = (each for each in below if _matches(each.key.split("/"), parts))
    return sorted(matches, key=lambda each: each.key)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == _ANY_FOLDERS:
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
