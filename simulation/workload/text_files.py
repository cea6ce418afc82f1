"""Files of rows as users have them: Parquet, CSV and JSON lines, and how each is read."""

import base64
import csv
import io
import json
from datetime import date, datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from simulation.model.values import Value
from sleeper.schema.model import MapType, PrimitiveType, Schema
from sleeper.storage.source_options import DEFAULT_OPTIONS, FileFormat, SourceOptions

_DELIMITERS = (",", ";", "\t")
_ROW_GROUPS = (1, 7, 1000)


class _Unquoted(float):
    """An empty cell without quotes, which is null: the writer does not quote numbers."""

    def __repr__(self) -> str:
        return ""


def random_options(random: Random) -> SourceOptions:
    """Returns how a job's files are read, mostly as Parquet by their names."""
    kind = random.choice((None, None, FileFormat.CSV, FileFormat.JSON))
    if kind is FileFormat.CSV:
        return SourceOptions(kind, random.choice(_DELIMITERS), header=True)
    return DEFAULT_OPTIONS if kind is None else SourceOptions(kind)


def write_file(rows: pa.Table, schema: Schema, options: SourceOptions, random: Random) -> bytes:
    """Returns rows as a file that the options describe. Its columns are in any order."""
    names = random.sample(rows.column_names, rows.num_columns)
    rows = rows.select(names)
    if options.format is FileFormat.CSV:
        return _write_csv(rows, schema, options.delimiter or ",")
    if options.format is FileFormat.JSON:
        return write_json_lines(rows, schema)
    content = io.BytesIO()
    pq.write_table(rows, content, row_group_size=random.choice(_ROW_GROUPS))
    return content.getvalue()


def file_suffix(options: SourceOptions) -> str:
    """Returns the end of a file's name."""
    return f".{(options.format or FileFormat.PARQUET).value}"


def _maps(schema: Schema) -> set[str]:
    return {each.name for each in schema.fields if isinstance(each.type, MapType)}


def _write_csv(rows: pa.Table, schema: Schema, delimiter: str) -> bytes:
    text, maps = io.StringIO(), _maps(schema)
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(rows.column_names)
    for row in rows.to_pylist():
        writer.writerow([_cell(value, name in maps) for name, value in row.items()])
    return text.getvalue().encode()


def _cell(value: Value, is_map: bool) -> str | _Unquoted:
    if value is None:
        return _Unquoted()
    plain = _plain(value, is_map)
    return plain if isinstance(plain, str) else json.dumps(plain)


def write_json_lines(rows: pa.Table, schema: Schema) -> bytes:
    """Returns rows as JSON lines."""
    lines = (_line(row, schema) for row in rows.to_pylist())
    return "".join(f"{line}\n" for line in lines).encode()


def _line(row: dict[str, Value], schema: Schema) -> str:
    maps = _maps(schema)
    documents = {each.name for each in schema.fields if each.type is PrimitiveType.JSON}
    members = []
    for name, value in row.items():
        # A row without a value of JSON lacks the member.
        if value is not None or name not in documents:
            text = value if name in documents else json.dumps(_plain(value, name in maps))
            members.append(f"{json.dumps(name)}: {text}")
    return f"{{{', '.join(members)}}}"


def _plain(value: Value, is_map: bool) -> Value:
    """Returns the value as JSON has it. A decimal is text, because digits may be many."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case _:
            return dict(value) if is_map and value is not None else value
