"""Rules of stashes: a complete one has exactly the rows of its tables at its versions.

Its files are read by the product's reader, and by others: `gzip` and `json`, or `pyarrow`.
"""

import gzip
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch

import pyarrow.parquet as pq

from simulation.checks.look import Look
from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.values import batch_rows
from simulation.model.visible import Row
from sleeper.errors import NotFoundError
from sleeper.instance import Instance
from sleeper.schema.model import PrimitiveType
from sleeper.stash.destination import StashDestination, open_to_read
from sleeper.stash.document_values import DOCUMENT_FIELDS, document_columns
from sleeper.stash.layout import StashedTable, StashFormat
from sleeper.stash.reader import Stash
from sleeper.stash.record_index import StashRecords
from sleeper.tables import TableId

_ROWS = "a stash has the rows of its versions"
_EXCLUDED = "a stash has no table that its request excludes"
_ATOMIC = "an atomic stash has tables of one moment"
_LATEST = "the latest stash is complete"
_PLAIN = {PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.STRING, PrimitiveType.BOOLEAN}


def check_stashes(look: Look) -> None:
    """Checks the latest stash of each destination, and at the end all complete ones."""
    for name in look.observer.journal.destinations:
        try:
            destination = open_to_read(name)
        except NotFoundError:
            continue  # no stash has begun
        complete = {each.name for each in destination.roots() if each.success is not None}
        damaged = [each.damage for each in destination.roots() if each.damage]
        require(not damaged, _LATEST, "a stash is damaged", destination=name, damage=damaged)
        try:
            latest = destination.latest()
        except NotFoundError:
            continue
        require(latest in complete, _LATEST, f"{latest} of {sorted(complete)}", destination=name)
        for root in sorted(complete) if look.is_end else [latest]:
            _check_stash(look, destination, root)


def describe_work(instance: Instance) -> Iterator[str]:
    """Yields the stashes that workers make. Others wait for somebody who continues them."""
    for record in StashRecords(instance.storage.root).running():
        if record.is_submitted():
            yield f"stash {record.name} of {record.request.destination}"


def _check_stash(look: Look, destination: StashDestination, root: str) -> None:
    name = f"{destination.name}/{root}"
    if name in look.checked and not look.is_end:
        return
    look.checked.add(name)
    tables = destination.tables(root)
    _check_excluded(look, destination, root, tables)
    for table in tables:
        model = look.observer.models.get(TableId(table.id))
        if model is not None and table.version <= model.number:
            _check_table(destination, root, table, model)
    if look.has_right_clocks:
        _check_moment(look, destination, root, tables)


def _check_excluded(
    look: Look, destination: StashDestination, root: str, tables: Sequence[StashedTable]
) -> None:
    record = StashRecords(look.instance.storage.root).locate(destination.name, root)
    if not record.is_claimed():
        return  # It was pruned, or another instance made the stash.
    patterns = record.request.exclude
    copied = [each.table for each in tables if any(fnmatch(each.table, p) for p in patterns)]
    details = {"stash": f"{destination.name}/{root}", "patterns": patterns}
    require(not copied, _EXCLUDED, "it has excluded tables", **details, tables=copied)


def _check_table(
    destination: StashDestination, root: str, table: StashedTable, model: TableModel
) -> None:
    expected = model.rows(table.version)
    details = {"stash": f"{destination.name}/{root}", "table": table.id, "version": table.version}
    actual = _read_by_product(destination.name, root, table)
    require(
        actual == expected,
        _ROWS,
        "by the product's reader",
        **details,
        missing=list((expected - actual).items())[:5],
        unexpected=list((actual - expected).items())[:5],
    )
    require(table.rows == expected.total(), _ROWS, f"it counts {table.rows} rows", **details)
    files = _read_files(destination, root, table)
    plain = _project(expected, table)
    others = (
        _read_json(files, table)
        if table.format is StashFormat.JSON
        else _read_parquet(files, table)
    )
    require(
        plain == others,
        _ROWS,
        "by another reader",
        **details,
        missing=list((plain - others).items())[:5],
        unexpected=list((others - plain).items())[:5],
    )


def _read_by_product(destination: str, root: str, table: StashedTable) -> Counter[Row]:
    stash = Stash.open(destination)
    stash.lock(root)
    names = document_columns(table.table_schema)
    with stash.scan(table.table) as rows:
        return Counter(row for batch in rows.batches() for row in batch_rows(batch.select(names)))


def _plain_positions(table: StashedTable) -> list[int]:
    """Returns the fields whose values JSON has as they are."""
    return [i for i, each in enumerate(table.table_schema.fields) if each.type in _PLAIN]


def _project(rows: Counter[Row], table: StashedTable) -> Counter[Row]:
    positions = _plain_positions(table)
    result: Counter[Row] = Counter()
    for row, count in rows.items():
        result[tuple(row[at] for at in positions)] += count
    return result


def _plain_names(table: StashedTable) -> list[str]:
    names = document_columns(table.table_schema)
    return [names[at] for at in _plain_positions(table)]


def _read_files(destination: StashDestination, root: str, table: StashedTable) -> dict[str, bytes]:
    """Returns the contents of a table's files by their names, in order."""
    pattern = f"*-{table.id}-*{table.format.suffix}"
    paths = [path for path, _ in destination.files(root, table.directory)]
    named = {path.rpartition("/")[2]: path for path in paths}
    return {
        name: destination.root.read(path) for name, path in named.items() if fnmatch(name, pattern)
    }


def _read_json(files: Mapping[str, bytes], table: StashedTable) -> Counter[Row]:
    names, rows = _plain_names(table), Counter[Row]()
    for file, content in files.items():
        for line in gzip.decompress(content).decode().splitlines():
            document = json.loads(line)
            missing = {each.name for each in DOCUMENT_FIELDS} - document.keys()
            require(not missing, _ROWS, f"{file} has a document without {missing}")
            rows[tuple(document.get(name) for name in names)] += 1
    return rows


def _read_parquet(files: Mapping[str, bytes], table: StashedTable) -> Counter[Row]:
    names, rows = _plain_names(table), Counter[Row]()
    for content in files.values():
        file = pq.ParquetFile(io.BytesIO(content))
        rows.update(batch_rows(file.read(names)) if names else ())
        if not names:
            rows[()] += file.metadata.num_rows
    return rows


def _check_moment(
    look: Look, destination: StashDestination, root: str, tables: tuple[StashedTable, ...]
) -> None:
    """Checks that some moment lies between each version and the next one of its table."""
    record = StashRecords(look.instance.storage.root).locate(destination.name, root)
    if not record.is_claimed() or not record.request.atomic:
        return
    begin, end = 0, None
    for table in tables:
        model = look.observer.models.get(TableId(table.id))
        if model is None:
            continue
        begin = max(begin, table.time_ms)
        later = [each.time_ms for each in model.log if each.number > table.version]
        if later:
            end = later[0] if end is None else min(end, later[0])
    require(
        end is None or begin <= end,
        _ATOMIC,
        f"versions begin at {begin}, and one ends at {end}",
        stash=f"{destination.name}/{root}",
    )
