"""Sources of datasets for the contract of `DatasetInput`: what publishes them, and the input."""

import gzip
import io
import json
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

import sleeper
from sleeper.adjunct.contents.writers import KeyedRows
from sleeper.adjunct.inputs.dataset import DatasetInput
from sleeper.adjunct.inputs.files import FileInput
from sleeper.adjunct.inputs.stash import StashInput
from sleeper.adjunct.inputs.table import TableInput
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.stash.destination import open_to_read
from sleeper.stash.layout import SUCCESS, StashFormat
from sleeper.stash.run import run_stash
from sleeper.storage.location import DataRoot

Rows = list[dict[str, Any]]

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "name", "type": "StringType", "nullable": True},
        {"name": "n", "type": "LongType", "nullable": True},
    ],
}
MAKE_WRITER = partial(KeyedRows, "accounts")


class DatasetSource(ABC):
    """Publishes datasets of `id`, `name` and `n`, which `input` reads."""

    @abstractmethod
    def make_input(self) -> DatasetInput:
        """Returns an input that opens the source anew."""

    @abstractmethod
    def publish(self, rows: Rows) -> None:
        """Publishes a dataset, which replaces the one before."""

    @abstractmethod
    def begin(self, rows: Rows) -> None:
        """Writes data without the marker that ends the dataset."""

    @abstractmethod
    def add_field(self) -> None:
        """Adds the field `city` to the following datasets."""

    @abstractmethod
    def remove(self) -> None:
        """Makes the newest dataset unreadable, as a program that replaces it does."""


class SnapshotSource(DatasetSource):
    """A snapshot table, whose publication of a version is the marker."""

    def __init__(self, instance: sleeper.Instance) -> None:
        self._instance = instance
        self._table = instance.create_table("accounts", SCHEMA, {"sleeper.table.type": "snapshot"})

    def make_input(self) -> DatasetInput:
        return TableInput(self._instance._ports, "accounts", MAKE_WRITER, "test")

    def publish(self, rows: Rows) -> None:
        self._table.ingest(to_table(rows))

    def begin(self, rows: Rows) -> None:
        raise NotImplementedError

    def add_field(self) -> None:
        self._table.add_field("city", "StringType")

    def remove(self) -> None:
        raise NotImplementedError

    def expire_all_but(self, rows: Rows) -> None:
        """Publishes a dataset, and expires those before."""
        self.publish(rows)
        self._table.expire_snapshots()


class StashSource(DatasetSource):
    """The stashes of a table, in a folder or bucket."""

    def __init__(
        self, instance: sleeper.Instance, destination: str, format: StashFormat, folder: Path
    ) -> None:
        self._instance = instance
        self._destination = destination
        self._format = format
        self._folder = folder
        self._table = instance.create_table("accounts", SCHEMA, {"sleeper.table.rows": "latest"})
        if "://" not in destination:
            Path(destination).mkdir()

    def make_input(self) -> DatasetInput:
        settings = EngineSettings(self._folder / "spill")
        return StashInput(self._destination, "accounts", MAKE_WRITER, settings)

    def publish(self, rows: Rows) -> None:
        self._table.delete(ranges=[(None, None)])
        if rows:
            self._table.ingest(to_table(rows))
        run_stash(self._instance._ports, self._destination, format=self._format)

    def begin(self, rows: Rows) -> None:
        root = open_to_read(self._destination).root
        assert isinstance(root, DataRoot)
        root.put("2199-01-01-00-00-00/accounts/accounts-00-00000000-0.json.gz", b"half")

    def add_field(self) -> None:
        self._table.add_field("city", "StringType")

    def remove(self) -> None:
        place = open_to_read(self._destination)
        root = place.latest()
        # The order in which a stash is deleted.
        paths = [path for path, _ in place.files(root)]
        place.root.delete([f"{root}/{SUCCESS}", *paths])


class FileSource(DatasetSource):
    """A folder or prefix of files in one format."""

    def __init__(self, root: DataRoot, url: str, ending: str, folder: Path) -> None:
        self._root = root
        self._url = url
        self._ending = ending
        self._folder = folder
        self._names = ["id", "name", "n"]

    def make_input(self) -> DatasetInput:
        return FileInput(self._url, ["id"], MAKE_WRITER, EngineSettings(self._folder / "spill"))

    def publish(self, rows: Rows) -> None:
        self._clear()
        self._write("part-{}", rows)
        self._root.put("_SUCCESS", b"")

    def begin(self, rows: Rows) -> None:
        self._clear()
        self._write("part-{}", rows)

    def add_field(self) -> None:
        self._names = [*self._names, "city"]

    def remove(self) -> None:
        self._clear()

    def _clear(self) -> None:
        found = sorted(each.path for each in self._root.list_objects(""))
        self._root.delete(found)

    def _write(self, name: str, rows: Rows) -> None:
        half = len(rows) // 2
        for number, part in enumerate((rows[:half], rows[half:])):
            content = encode_rows(part, self._ending, self._names)
            self._root.put(name.format(number) + self._ending, content)


def to_table(rows: Rows, names: list[str] | None = None) -> pa.Table:
    """Returns the rows as a table of all fields that one of them has."""
    names = names or list(dict.fromkeys(["id", "name", "n", *(n for row in rows for n in row)]))
    kinds = {"id": pa.int64(), "n": pa.int64()}
    columns = {
        name: pa.array([row.get(name) for row in rows], kinds.get(name, pa.string()))
        for name in names
    }
    return pa.table(columns)


def encode_rows(rows: Rows, ending: str, names: list[str]) -> bytes:
    """Returns the content of a file of that name's ending."""
    table = to_table(rows, names)
    sink = io.BytesIO()
    if ending == ".parquet":
        pq.write_table(table, sink)
        return sink.getvalue()
    if ending.startswith(".csv"):
        csv.write_csv(table, sink)
        content = sink.getvalue()
    else:
        content = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist()).encode()
    return gzip.compress(content) if ending.endswith(".gz") else content
