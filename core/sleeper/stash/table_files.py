"""What a stash has of a table: the addresses, sizes and rows of its files."""

from dataclasses import dataclass
from pathlib import Path

from sleeper.stash.destination import StashDestination
from sleeper.stash.layout import StashFormat


@dataclass(frozen=True, slots=True)
class StashedFile:
    """A file of a stashed table, which is one of its splits.

    `uri` is its address, such as `s3://bucket/key` or `file:///folder/name`. `rows` is None unless
    rows were counted.
    """

    uri: str
    bytes: int
    split: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table of a stash and its files, in the order of their names, none if it has no rows.

    `stash` is the name of the root, `version` the transaction number. `rows` and `version` are None
    in a stash that EmoDB made, unless rows were counted.
    """

    stash: str
    table: str
    uri: str
    format: StashFormat
    version: int | None
    rows: int | None
    files: tuple[StashedFile, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(each.bytes for each in self.files)


def file_uri(destination: StashDestination, path: str) -> str:
    """Returns the URI of a file or folder by its path relative to the destination."""
    url = destination.root.url_of(path)
    return url if "://" in url else Path(url).as_uri()


def count_rows(destination: StashDestination, path: str, format: StashFormat) -> int:
    """Returns the rows of a file: of Parquet by its footer, of JSON lines by reading all of it."""
    if format is StashFormat.PARQUET:
        from sleeper.stash.batches import open_parquet

        with open_parquet(destination.root, path) as file:
            return int(file.metadata.num_rows)
    from sleeper.stash.gzip_lines import count_lines

    return count_lines(destination.root, path)
