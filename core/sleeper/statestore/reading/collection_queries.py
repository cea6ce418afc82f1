"""What garbage collection asks, and who keeps it from collecting. Of the newest state."""

from dataclasses import dataclass
from typing import NamedTuple

from sleeper.statestore.file_rows import sidecars_from_column
from sleeper.statestore.reading.version_reader import VersionReader


class CollectableFile(NamedTuple):
    """A file without references; `unreferenced` is the number at which the last one went."""

    path: str
    sidecars: tuple[str, ...]
    bytes: int
    unreferenced: int
    unreferenced_time_ms: int


@dataclass(frozen=True, slots=True)
class Hold:
    """An expiring claim on a version."""

    id: str
    owner: str
    version: int
    expiry_ms: int


@dataclass(frozen=True, slots=True)
class Follower:
    """A named reader of changes. It has read to `position` and `lag` transactions follow."""

    name: str
    cursor_key: str
    start: int
    position: int
    lag: int


@dataclass(frozen=True, slots=True)
class CollectionQueries:
    _reader: VersionReader

    def unreferenced(self, before_ms: int, limit: int) -> list[CollectableFile]:
        """Files whose last reference went at or before that time, longest ago first."""
        rows = self._reader.rows(
            "SELECT path, sidecars, bytes, unreferenced, unreferenced_time FROM files"
            " WHERE unreferenced IS NOT NULL AND unreferenced_time <= :before"
            " AND collecting IS NULL ORDER BY unreferenced_time LIMIT :limit",
            before=before_ms,
            limit=limit,
        )
        return [_collectable(row) for row in rows]

    def collecting(self, limit: int) -> list[CollectableFile]:
        """Files taken out by step one whose step two has not come: their objects may be left."""
        rows = self._reader.rows(
            "SELECT path, sidecars, bytes, unreferenced, unreferenced_time FROM files"
            " WHERE unreferenced IS NOT NULL AND collecting IS NOT NULL"
            " ORDER BY unreferenced_time LIMIT :limit",
            limit=limit,
        )
        return [_collectable(row) for row in rows]

    def holds(self) -> list[Hold]:
        """Every hold that is kept in mind, expired ones too, oldest version first."""
        rows = self._reader.rows(
            "SELECT id, owner, version, expiry FROM holds ORDER BY version, id"
        )
        return [Hold(*row) for row in rows]

    def follower_starts(self) -> list[tuple[str, str, int]]:
        """Name, cursor key and start of every follower; `StateStore.followers` adds positions."""
        return self._reader.rows("SELECT name, cursor_key, start FROM followers ORDER BY name")


def _collectable(row: tuple[str, str, int, int, int]) -> CollectableFile:
    path, sidecars, size, number, time_ms = row
    return CollectableFile(path, sidecars_from_column(sidecars), size, number, time_ms)
