"""Reads stashes. Needs no instance, only permission to list and read the objects.

>>> stash = Stash.open("/data/stash")
>>> with stash.scan("catalog:acme:") as rows:
...     for document in rows:
...         print(document["~id"])
"""

from __future__ import annotations

import base64
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

from sleeper.errors import DataError, InvalidRequestError, NotFoundError, did_you_mean
from sleeper.stash.destination import StashDestination, open_to_read
from sleeper.stash.files import open_stored
from sleeper.stash.layout import (
    EmoTable,
    StashedTable,
    StashFormat,
    is_readable_file,
    root_name,
    root_time_ms,
    table_directory,
    table_of_piece,
)
from sleeper.stash.table_files import StashedFile, TableFiles, file_uri
from sleeper.stash.table_files import count_rows as count_rows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from sleeper.schema.model import Schema


B = TypeVar("B")


class StashView(ABC):
    """Reads the tables of one stash at each call."""

    def __init__(self, destination: StashDestination) -> None:
        self._destination = destination

    @abstractmethod
    def _root(self) -> str:
        """Returns the name of the root to read. NotFoundError if no stash is complete."""

    def stash_time(self) -> datetime:
        """Returns the start of the stash, in UTC.

        Every update that was committed before it is in the stash. NotFoundError if no stash is
        complete.
        """
        return datetime.fromtimestamp(root_time_ms(self._root()) / 1000, UTC)

    def tables(self) -> list[str]:
        """Returns the names of the tables of the stash, in order, also of those without rows."""
        return sorted(table.table for table in self.find_tables())

    def describe_tables(self) -> tuple[StashedTable, ...]:
        """Returns the tables of the stash with their versions, rows and files.

        InvalidRequestError if EmoDB made the stash, because it does not describe them.
        """
        root = self._root()
        tables = self._find_tables(root)
        described = tuple(each for each in tables if isinstance(each, StashedTable))
        if len(described) < len(tables):
            raise InvalidRequestError(
                f"stash {root} of {self._destination.name} was made by EmoDB, and does not "
                "describe its tables"
            )
        return described

    def find_tables(self) -> Sequence[StashedTable | EmoTable]:
        """Returns the tables of the stash. Of one that EmoDB made, names and files are known."""
        return self._find_tables(self._root())

    def exists(self, table: str) -> bool:
        """Returns whether the table is in the stash, with or without rows."""
        return any(each.table == table for each in self.find_tables())

    def describe_table(self, table: str, *, count_rows: bool = False) -> TableFiles:
        """Returns the addresses and sizes of the table's files, for programs that read them.

        With `count_rows` also the rows of each file, which reads the footers of Parquet files and
        all of JSON files. NotFoundError if the table is not in the stash.
        """
        root = self._root()
        stashed = self._find(root, table)
        files = tuple(
            StashedFile(
                file_uri(self._destination, path),
                size,
                _encode_split(path),
                count_rows_of(self._destination, path, stashed.format) if count_rows else None,
            )
            for path, size in self._pieces(root, stashed)
        )
        rows = stashed.rows
        if count_rows and rows is None:
            rows = sum(each.rows or 0 for each in files)
        uri = file_uri(self._destination, f"{root}/{stashed.directory}")
        return TableFiles(root, table, uri, stashed.format, stashed.version, rows, files)

    def splits(self, table: str) -> list[str]:
        """Returns the splits of a table, which together have each of its rows once.

        A split is opaque text, and is always read from the root it came from. A table without rows
        has none. NotFoundError if the table is not in the stash.
        """
        root = self._root()
        pieces = self._pieces(root, self._find(root, table))
        return [_encode_split(path) for path, _ in pieces]

    def split(self, table: str, split: str) -> StashRows:
        """Returns the rows of a split. InvalidRequestError if it is not one of the table."""
        root, path = self._locate(table, split)
        return StashRows(self._destination, self._find(root, table), [path])

    def open_split(
        self, table: str, split: str, offset: int = 0, length: int | None = None
    ) -> io.BufferedReader:
        """Opens the bytes of a split as they are stored: gzip, or Parquet.

        `offset` and `length` select a range of them. After a lost connection the read resumes where
        it was. Memory is bounded unless `read` is called without a size. To be closed.

        InvalidRequestError if it is not a split of the table, NotFoundError if its file is gone.
        """
        _, path = self._locate(table, split)
        return open_stored(self._destination.root, path, offset, length)

    def scan(self, table: str) -> StashRows:
        """Returns all rows of a table. NotFoundError if the table is not in the stash."""
        root = self._root()
        stashed = self._find(root, table)
        paths = [path for path, _ in self._pieces(root, stashed)]
        return StashRows(self._destination, stashed, paths)

    def _locate(self, table: str, split: str) -> tuple[str, str]:
        """Returns the root of a split, and the path of its file."""
        path = _decode_split(split)
        root, _, rest = path.partition("/")
        if rest.partition("/")[0] != table_directory(table):
            raise InvalidRequestError(f"split {split[:100]!r} is not one of table {table!r}")
        return root, path

    def _pieces(self, root: str, table: StashedTable | EmoTable) -> list[tuple[str, int]]:
        """Returns the table's files, and none that another program has put beside them."""
        if isinstance(table, StashedTable):
            begin = len(root) + 1
            stored = self._destination.files(root, table.directory)
            files = [each for each in stored if table_of_piece(each[0][begin:]) == table.id]
        else:
            files = self._destination.emo_files(root, table.directory)
        if len(files) != table.files:
            reason = f"table {table.table} has {len(files)} files of {table.files}"
            raise self._damaged(root, reason)
        return files

    def _find_tables(self, root: str) -> Sequence[StashedTable | EmoTable]:
        try:
            return self._destination.tables(root)
        except NotFoundError as error:
            tables = self._destination.emo_tables(root)
            if not tables:
                raise self._damaged(root, "it has no list of tables") from error
            return tables

    def _find(self, root: str, table: str) -> StashedTable | EmoTable:
        tables = self._find_tables(root)
        for each in tables:
            if each.table == table:
                return each
        near = did_you_mean(table, [each.table for each in tables])
        raise NotFoundError(
            f"stash {root} of {self._destination.name} has no table {table!r}{near}"
        )

    def _damaged(self, root: str, reason: str) -> DataError:
        stash = f"stash {root} of {self._destination.name}"
        return DataError(f"{stash} is damaged, or was deleted meanwhile: {reason}")


class Stash(StashView):
    """The stashes of a destination.

    Each call reads the root that was completed last, until `lock` chooses one for all later calls.
    `locked` returns an object that always reads one root.
    """

    def __init__(self, destination: StashDestination) -> None:
        super().__init__(destination)
        self._locked: str | None = None

    @classmethod
    def open(cls, destination: str) -> Stash:
        """Opens a folder, `s3://bucket/prefix`, or the URL of another file system.

        NotFoundError if a folder does not exist.
        """
        return cls(open_to_read(destination))

    def lock(self, time: datetime | str | None = None) -> str:
        """Makes all later calls read one root, by default the latest. Returns its name.

        `time` is a stash time or the name of a root; without a zone it is in UTC. NotFoundError if
        it is not the time of a complete stash.
        """
        self._locked = self._choose(time)
        return self._locked

    def unlock(self) -> None:
        """Makes later calls read the latest root again."""
        self._locked = None

    def locked(self, time: datetime | str | None = None) -> LockedStash:
        """Returns an object that reads one root, as `lock` chooses it, and changes to no other.

        By default it is the root that this object reads now. This object is not locked by it.
        """
        is_chosen = time is None and self._locked is not None
        return LockedStash(self._destination, self._root() if is_chosen else self._choose(time))

    def _choose(self, time: datetime | str | None) -> str:
        if time is None:
            name = self._destination.latest()
        elif isinstance(time, str):
            name = root_name(root_time_ms(time))
        else:
            time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
            name = root_name(int(time.timestamp()) * 1000)
        if self._destination.success(name) is None:
            raise NotFoundError(f"{self._destination.name} has no complete stash {name}")
        return name

    def _root(self) -> str:
        return self._locked or self._destination.latest()


class LockedStash(StashView):
    """One stash. It stays the same, however many newer ones are completed, until it is deleted.

    `Stash.locked` returns it. `name` is that of the root. The list of tables is read once.
    """

    def __init__(self, destination: StashDestination, name: str) -> None:
        super().__init__(destination)
        self.name = name
        self._listed: Sequence[StashedTable | EmoTable] | None = None

    def _root(self) -> str:
        return self.name

    def _find_tables(self, root: str) -> Sequence[StashedTable | EmoTable]:
        if self._listed is None:
            self._listed = super()._find_tables(root)
        return self._listed

    def _locate(self, table: str, split: str) -> tuple[str, str]:
        root, path = super()._locate(table, split)
        if root != self.name:
            raise InvalidRequestError(
                f"split {split[:100]!r} is one of stash {root} (expected one of {self.name})"
            )
        return root, path


class StashRows:
    """The rows of a split or a table: documents, or Arrow batches. It can be read once.

    It is a context manager, and must be closed after a partial iteration.
    """

    def __init__(
        self, destination: StashDestination, table: StashedTable | EmoTable, paths: list[str]
    ) -> None:
        self._destination = destination
        self._table = table
        self._paths = paths
        self._blocks: Iterator[Any] | None = None
        self._documents: Iterator[dict[str, Any]] | None = None
        self._is_closed = False

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of `batches`: the fields of documents, with the types of the table.

        InvalidRequestError if EmoDB made the stash, which has no types.
        """
        from sleeper.datafiles.arrow import arrow_schema

        return arrow_schema(self._document_fields())

    def _document_fields(self) -> Schema:
        from sleeper.stash.documents import document_fields

        if self._table.table_schema is None:
            raise InvalidRequestError(
                f"{self._where} was made by EmoDB, and has no schema (expected an iteration over "
                "its documents)"
            )
        return document_fields(self._table.table_schema)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._documents is None:
            self._documents = self._parse()
        return next(self._documents)

    def lines(self) -> Iterator[bytes]:
        """Yields the documents as lines of JSON with their ends, blocks of whole lines at once."""
        if self._table.format is StashFormat.PARQUET:
            from sleeper.stash.batches import read_lines

            fields = self._document_fields()
            return self._open(lambda path: read_lines(self._destination.root, path, fields))
        from sleeper.stash.gzip_lines import read_blocks

        return self._open(lambda path: read_blocks(self._destination.root, path))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows as Arrow batches of exactly `schema`."""
        from sleeper.stash.batches import parse_documents

        fields = self._document_fields()
        if self._table.format is StashFormat.PARQUET:
            from sleeper.stash.batches import read_batches

            return self._open(lambda path: read_batches(self._destination.root, path, fields))
        return (parse_documents(block, fields, self._where) for block in self.lines())

    def close(self) -> None:
        """Stops the reading. Idempotent."""
        self._is_closed = True
        blocks, self._blocks = self._blocks, None
        if blocks is not None:
            blocks.close()  # type: ignore[attr-defined]
        self._documents = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def _where(self) -> str:
        return f"table {self._table.table!r} of a stash of {self._destination.name}"

    def _open(self, read: Callable[[str], Iterator[B]]) -> Iterator[B]:
        """Returns what `read` yields for each file. Rows can be read once."""
        if self._is_closed or self._blocks is not None:
            raise InvalidRequestError(f"{self._where}: rows can be read once (scan again)")
        self._blocks = (each for path in self._paths for each in read(path))
        return self._blocks

    def _parse(self) -> Iterator[dict[str, Any]]:
        from sleeper.stash.document_values import document_decoder

        decode = document_decoder(self._table.table_schema)
        for block in self.lines():
            try:
                documents = decode(block)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{self._where} is damaged: {error}") from error
            yield from documents


def _encode_split(path: str) -> str:
    return base64.urlsafe_b64encode(path.encode()).decode().rstrip("=")


def _decode_split(split: str) -> str:
    try:
        path = base64.urlsafe_b64decode(split + "=" * (-len(split) % 4)).decode()
    except ValueError:
        path = ""
    parts = path.split("/")
    if len(parts) != 3 or ".." in parts or not is_readable_file(path):
        raise InvalidRequestError(f"{split[:100]!r} is not a split (expected one of `splits`)")
    root_time_ms(parts[0])
    return path
