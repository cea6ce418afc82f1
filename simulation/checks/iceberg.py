"""Rules of published tables: what a reader of Iceberg finds is the version that the metadata names.

The reader is one of its own: it reads manifests, position deletes and data files by ids of fields.
"""

import io
from collections import Counter, defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from simulation.checks.look import Look
from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.values import batch_rows
from simulation.model.visible import Row
from sleeper.datafiles.arrow import arrow_schema
from sleeper.errors import DataError, NotFoundError
from sleeper.iceberg.location import Location
from sleeper.iceberg.locations import metadata_of, recorded_locations
from sleeper.iceberg.manifests import Content, Entry
from sleeper.iceberg.metadata import Metadata, current_number, number_of, table_id_of
from sleeper.iceberg.metadata_versions import url_of
from sleeper.instance import OpenTable
from sleeper.schema.model import Schema
from sleeper.storage.location import DataRoot

_PUBLISHED = "a published version has exactly its rows"
_FIELD_ID = b"PARQUET:field_id"


def check_published(look: Look) -> None:
    """Checks the newest published version of each table, and at the end all listed ones."""
    for ref in look.instance.tables.index.list():
        model = look.model(ref.id)
        if model is None:
            continue
        table = OpenTable(look.instance, ref)
        for url in recorded_locations(table):
            versions = metadata_of(table, url)
            _, metadata = versions.read()
            if metadata is not None and table_id_of(metadata) == ref.id:
                _check_location(look, table, model, Location(versions.root), metadata)


def _check_location(
    look: Look, table: OpenTable, model: TableModel, location: Location, metadata: Metadata
) -> None:
    newest = current_number(metadata)
    for snapshot in metadata["snapshots"]:
        number = number_of(snapshot)
        # Files that are collected leave the rows of a version, so a higher horizon is a new check.
        name = f"{number} {snapshot['manifest-list']} at {model.horizon}"
        is_chosen = number == newest or look.is_end
        if not is_chosen or name in look.checked or not model.is_readable(number):
            continue
        look.checked.add(name)
        expected = model.rows(number)
        try:
            actual = _read(table, location, snapshot["manifest-list"], model.schema(number))
        except (DataError, NotFoundError) as error:
            require(False, _PUBLISHED, str(error), table=model.id, version=number)
            raise
        require(
            actual == expected,
            _PUBLISHED,
            f"version {number}",
            table=model.id,
            location=location.url,
            missing=list((expected - actual).items())[:5],
            unexpected=list((actual - expected).items())[:5],
        )


def _read(table: OpenTable, location: Location, list_url: str, schema: Schema) -> Counter[Row]:
    """Returns the rows of a snapshot, as a reader of Iceberg finds them."""
    root, data = table.instance.storage.root, list[Entry]()
    hidden: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for manifest in location.read_list(list_url):
        for entry in location.read_manifest(manifest):
            if manifest.content is Content.DATA:
                data.append(entry)
            else:
                for url, position in _read_positions(location, entry):
                    hidden[url].append((entry.number, position))
    rows: Counter[Row] = Counter()
    for entry in data:
        # A delete file hides rows of data files that are not newer.
        positions = {at for number, at in hidden[entry.path] if number >= entry.number}
        rows.update(_read_file(root, entry, schema, positions))
    return rows


def _read_positions(location: Location, entry: Entry) -> Iterator[tuple[str, int]]:
    content = location.root.read(location.path_of(entry.path))
    table = pq.read_table(io.BytesIO(content))
    yield from zip(table["file_path"].to_pylist(), table["pos"].to_pylist(), strict=True)


def _read_file(
    root: DataRoot, entry: Entry, schema: Schema, hidden: set[int]
) -> list[tuple[object, ...]]:
    content = root.read(entry.path.removeprefix(f"{url_of(root, '')}/"))
    stored = pq.read_table(io.BytesIO(content))
    require(stored.num_rows == entry.rows, _PUBLISHED, f"{entry.path} counts {entry.rows} rows")
    by_id = {
        int(field.metadata[_FIELD_ID]): stored.column(at)
        for at, field in enumerate(stored.schema)
        if field.metadata and _FIELD_ID in field.metadata
    }
    columns = []
    for field, kind in zip(schema.fields, arrow_schema(schema).types, strict=True):
        column = by_id.get(field.id)
        columns.append(pa.nulls(stored.num_rows, kind) if column is None else column.cast(kind))
    shown = pa.table(columns, names=[field.name for field in schema.fields])
    return [row for at, row in enumerate(batch_rows(shown)) if at not in hidden]
