"""The data files of a version, and which of their rows it shows."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from sleeper.files import DataFile, bounds_region
from sleeper.partitions.region import Region, covers, disjoint_regions, join_regions
from sleeper.schema.model import KeyValue, Schema, precedes
from sleeper.statestore.deletes import file_overlap_sql
from sleeper.statestore.fold_tables import range_columns
from sleeper.statestore.reading.delete_queries import Delete, find_deleted
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.reading.version_reader import VersionReader, current
from sleeper.statestore.rows import data_file_columns, data_file_from_columns, region_from_columns

_SIGNATURE_DIGITS = 20
_COMPARED_MAX = 16


@dataclass(frozen=True, slots=True)
class FileRows:
    """A data file that transaction `added` added, and its rows at a version.

    They are the rows in the regions, None for all rows, that no delete hides, and that are no
    tombstones: a file `may_have_tombstones` if its table shows the newest row of each key.
    """

    file: DataFile
    added: int
    regions: tuple[Region, ...] | None
    deletes: tuple[Delete, ...] = ()
    may_have_tombstones: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the version shows all rows of the file, as far as the state tells."""
        return self.regions is None and not self.deletes and not self.may_have_tombstones

    @property
    def signature(self) -> str:
        """A text that is equal for equal rows of the file."""
        deletes = [
            (each.number, each.region, each.keys and each.keys.path) for each in self.deletes
        ]
        content = repr((self.file.path, self.regions, deletes))
        return sha256(content.encode()).hexdigest()[:_SIGNATURE_DIGITS]


@dataclass(frozen=True, slots=True)
class Changes:
    """The files whose rows differ between two versions: as they are now, and paths without rows."""

    present: tuple[FileRows, ...]
    absent: tuple[str, ...]


def all_files(state: TableState) -> list[FileRows]:
    """Returns the data files with rows at the version of the state."""
    return list(_describe(state, state.query(_Queries), None))


def find_changes(state: TableState, after: int) -> Changes:
    """Returns the files whose rows differ from those of an earlier version.

    The state must still have what was removed since then, so its horizon is at most that version.
    """
    queries = state.query(_Queries)
    keys = queries.changed_files(after)
    if not keys:
        return Changes((), ())
    present = tuple(_describe(state, queries, keys))
    paths = {each.file.path for each in present}
    absent = tuple(path for path in queries.paths(keys) if path not in paths)
    return Changes(present, absent)


def schema_versions(state: TableState) -> set[int]:
    """Returns the versions of the schemas of the data files."""
    return state.query(_Queries).schema_versions()


def _describe(
    state: TableState, queries: "_Queries", keys: frozenset[int] | None
) -> Iterator[FileRows]:
    has_deletes = state.deletes.count() > 0
    regions = queries.regions(keys)
    schema = state.schema
    for key, added, file in queries.files(keys):
        if key not in regions:
            continue
        bounds = bounds_region(schema, file)
        within = _regions(regions[key], file, bounds)
        deletes = find_deleted(file, state.deletes.overlapping(bounds)) if has_deletes else ()
        if not _hide_all(deletes, bounds):
            yield FileRows(file, added, within, deletes, schema.latest is not None)


def have_common_keys(schema: Schema, files: Iterable[FileRows]) -> bool:
    """Returns whether two of the files may have rows with equal keys, by their key bounds."""
    parts = sorted(
        (part for rows in files for part in _parts(schema, rows)),
        key=lambda part: [within.min for within in part[0].ranges],
    )
    before: list[tuple[Region, str]] = []
    for region, path in parts:
        low = region.ranges[0].min
        before = [each for each in before if _reaches(each[0], low)]
        if any(other != path and region.overlaps(each) for each, other in before):
            return True
        before.append((region, path))
    return False


def _parts(schema: Schema, rows: FileRows) -> Iterator[tuple[Region, str]]:
    """Yields the regions of a file, within its key bounds, with its path."""
    bounds = bounds_region(schema, rows.file)
    for region in rows.regions or (bounds,):
        part = region.intersect(bounds)
        if part is not None:
            yield part, rows.file.path


def _reaches(region: Region, low: KeyValue) -> bool:
    end = region.ranges[0].max
    return end is None or precedes(low, end)


def _hide_all(deletes: tuple[Delete, ...], bounds: Region) -> bool:
    """Returns whether few regions of deletes contain a file, so that it need not be read."""
    regions = [each.region for each in deletes if each.keys is None]
    return 0 < len(regions) <= _COMPARED_MAX and covers(disjoint_regions(regions), bounds)


def _regions(regions: list[Region], file: DataFile, bounds: Region) -> tuple[Region, ...] | None:
    if len(regions) == 1 and regions[0].contains_bounds(file.smallest_key, file.largest_key):
        return None
    joined = join_regions(regions)
    return None if covers(joined, bounds) else tuple(joined)


class _Queries(VersionReader):
    """Queries of the reader's version. A key is that of a file in the state."""

    def files(self, keys: frozenset[int] | None) -> Iterator[tuple[int, int, DataFile]]:
        """Yields the key, the number of the addition, and the file; all files by default."""
        source, parameters = _from_files(keys)
        columns = data_file_columns(self.dimensions)
        rows = self.stream(
            f"SELECT f.key, f.added, {columns} {source} ORDER BY f.key", **parameters
        )
        for key, added, *columns_of_file in rows:
            yield key, added, data_file_from_columns(columns_of_file)

    def regions(self, keys: frozenset[int] | None) -> dict[int, list[Region]]:
        """Returns the regions of the references of files, by key."""
        source, parameters = _from_files(keys)
        rows = self.stream(
            f"SELECT r.file, {range_columns(self.dimensions)} {source}"
            " CROSS JOIN refs r ON r.file = f.key"
            f" CROSS JOIN partitions p ON p.key = r.partition WHERE {current('r')}",
            **parameters,
        )
        result: dict[int, list[Region]] = defaultdict(list)
        for key, *columns in rows:
            result[key].append(region_from_columns(columns))
        return result

    def paths(self, keys: frozenset[int]) -> list[str]:
        """Returns the paths of the files."""
        source, parameters = _from_files(keys)
        return [path for (path,) in self.rows(f"SELECT f.path {source}", **parameters)]

    def schema_versions(self) -> set[int]:
        """Returns the versions of the schemas of files with references."""
        rows = self.rows(
            "SELECT DISTINCT f.schema_version FROM files f WHERE EXISTS"
            f" (SELECT 1 FROM refs r WHERE r.file = f.key AND {current('r')})"
        )
        return {version for (version,) in rows}

    def changed_files(self, after: int) -> frozenset[int]:
        """Returns the files with references or deletes that began or ended after the version."""
        rows = self.rows(
            f"SELECT r.file FROM refs r WHERE {_changed('r', 'added')} UNION"
            " SELECT f.key FROM deletes d CROSS JOIN files f ON d.number > f.applied AND"
            f" {file_overlap_sql(self.dimensions)} WHERE {_changed('d', 'since')}",
            after=after,
        )
        return frozenset(key for (key,) in rows)


def _from_files(keys: frozenset[int] | None) -> tuple[str, dict[str, str]]:
    """Returns SQL: the files `f` of the keys, or all; and its parameters."""
    if keys is None:
        return "FROM files f", {}
    joined = "FROM json_each(:keys) e CROSS JOIN files f ON f.key = e.value"
    return joined, {"keys": json.dumps([*keys])}


def _changed(alias: str, began: str) -> str:
    """Returns SQL: what the row stands for began or ended after `:after`, up to `:n`."""
    columns = (f"{alias}.{began}", f"{alias}.removed")
    return " OR ".join(f"({each} > :after AND {each} <= :n)" for each in columns)
