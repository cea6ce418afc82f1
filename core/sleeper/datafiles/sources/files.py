"""Users' files: search, formats, and the check of their rows.

A *source* yields Arrow batches of exactly the table's schema (columns in file order, values
cast). A row that does not fit refuses its whole job, with file, field and row, unless the caller
passes `Rejects` to set such rows aside.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from sleeper.datafiles.arrow import arrow_schema, default_column, python_value
from sleeper.datafiles.casts import (
    cast_column,
    cast_key_column,
    is_castable,
    is_key_castable,
)
from sleeper.datafiles.engine.settings import LINE_BYTES_MAX
from sleeper.datafiles.json_limits import NO_LIMITS, JsonLimits
from sleeper.datafiles.sources.budget import RowBudget, slice_batch
from sleeper.datafiles.sources.enrichment import RowEnrichment, make_source_schema
from sleeper.datafiles.sources.nested import OPTION_HINT, find_text_fields, nested_text
from sleeper.datafiles.sources.operations import Operations
from sleeper.datafiles.sources.rejects import Rejects
from sleeper.datafiles.text_values import parse_column
from sleeper.datafiles.validity import DamagedArrayError, check_array
from sleeper.errors import (
    InvalidRequestError,
    classify_error,
    describe_error,
    did_you_mean,
)
from sleeper.schema.history import describe_changes
from sleeper.schema.model import Field, PrimitiveType, Schema, type_name
from sleeper.storage.bucket_folder import S3File, SourceFile
from sleeper.storage.patterns import find_matches, find_matching_objects, is_pattern
from sleeper.storage.source_options import DEFAULT_OPTIONS, FileFormat, SourceOptions

Columns = dict[str, pa.Array]
ParseColumn = Callable[[pa.Array, Field], tuple[pa.Array, dict[int, str]]]
"""Returns a column as the field's type, and the reasons of rows that do not fit."""


GZIP_SUFFIX, ZSTD_SUFFIX = ".gz", ".zst"
_COMPRESSIONS = ("", GZIP_SUFFIX, ZSTD_SUFFIX)


class SourceFormat(Enum):
    """Formats that can be ingested; the value lists the file name endings."""

    PARQUET = (".parquet",)
    CSV = tuple(f".{name}{each}" for each in _COMPRESSIONS for name in ("csv", "tsv"))
    JSON_LINES = tuple(
        f".{name}{each}" for each in _COMPRESSIONS for name in ("json", "jsonl", "ndjson")
    )


_FORMATS = {
    FileFormat.PARQUET: SourceFormat.PARQUET,
    FileFormat.CSV: SourceFormat.CSV,
    FileFormat.JSON: SourceFormat.JSON_LINES,
}


def source_format(path: SourceFile, options: SourceOptions = DEFAULT_OPTIONS) -> SourceFormat:
    """Returns the format that the options or the file's name say.

    InvalidRequestError lists the known names.
    """
    if options.format is not None:
        return _FORMATS[options.format]
    name = path.name.lower()
    for each in SourceFormat:
        if name.endswith(each.value):
            return each
    endings = ", ".join(e for f in SourceFormat for e in f.value)
    raise InvalidRequestError(
        f"file {path}: unknown format (expected a name that ends with {endings}, or --format)"
    )


def find_source_files(
    paths: Iterable[SourceFile], options: SourceOptions = DEFAULT_OPTIONS
) -> list[SourceFile]:
    """Returns the named files, those that match patterns, and those below folders, in order.

    A directory contributes every file of a known format, and so does a prefix in S3 on a local
    instance; on AWS it contributes every `.parquet` (docs/formats.md, "Ingest messages").
    InvalidRequestError if a file is missing, UnavailableError if the disk fails.
    """
    try:
        return _find_files(paths, options)
    except OSError as error:
        text = f"file {error.filename} cannot be read: {describe_error(error)}"
        raise classify_error(error, text, InvalidRequestError) from error


def _find_files(paths: Iterable[SourceFile], options: SourceOptions) -> list[SourceFile]:
    files: list[SourceFile] = []
    for path in paths:
        if isinstance(path, S3File):
            files.extend(_find_objects(path, options))
        elif is_pattern(path):
            matches = find_matches(path)
            if not matches:
                raise InvalidRequestError(f"no file matches {path}")
            files.extend(_find_files(matches, options))
        elif path.is_dir():
            named = (p for p in path.rglob("*") if p.name.lower().endswith(_endings()))
            # Engines that write in parts name directories like files.
            below = sorted(p for p in named if not p.is_dir())
            if not below:
                raise InvalidRequestError(f"directory {path} holds no file of a known format")
            files.extend(below)
        elif path.is_file():
            source_format(path, options)
            files.append(path)
        else:
            near = did_you_mean(path.name, _names_beside(path))
            raise InvalidRequestError(f"file {path} does not exist{near}")
    return files


def _names_beside(path: Path) -> list[str]:
    try:
        return os.listdir(path.parent)
    except OSError:
        return []


def _find_objects(file: S3File, options: SourceOptions) -> list[S3File]:
    """Returns the object itself, those that match, or the Parquet files below it."""
    if not file.key.endswith("/") and file.size() is not None:
        source_format(file, options)
        return [file]
    matches = find_matching_objects(file)
    for each in matches:
        source_format(each, options)
    if matches:
        return matches
    endings = _endings() if file.has_every_format else SourceFormat.PARQUET.value
    below = sorted(
        (f for f in file.below() if f.name.lower().endswith(endings)), key=lambda f: f.key
    )
    if not below:
        kind = "file of a known format" if file.has_every_format else ".parquet file"
        raise InvalidRequestError(f"file {file} does not exist, nor any {kind} below it")
    return below


def _endings() -> tuple[str, ...]:
    return tuple(ending for each in SourceFormat for ending in each.value)


@dataclass(slots=True)
class RowChecker:
    """Converts columns to batches of the table's schema and reports faulty rows by number.

    `row` is the number of the file's next row, from 1. `where` adds a place to messages, such as
    the row group. Unknown columns of a Parquet file are ignored unless `refuses_extra_columns`
    is true. `ignores_extra_columns` ignores those of text files, too. A file of columns must have
    those that are `required`, also if their fields are nullable. Lines of text longer than
    `line_bytes_max` are refused. With `operations`, the schema becomes that of the source, and
    batches have a column of tombstones. With an `enrichment`, the source may lack its fields.
    `threads` parse a text file. `options` say how the file is read. `budget` limits the memory of
    rows from outside, `json_limits` the values of `JSONType`.
    """

    schema: Schema
    file: str
    rejects: Rejects | None
    row: int = 1
    where: str = ""
    refuses_extra_columns: bool = False
    line_bytes_max: int = LINE_BYTES_MAX
    ignores_extra_columns: bool = False
    required: frozenset[str] = frozenset()
    operations: Operations | None = None
    enrichment: RowEnrichment | None = None
    threads: int = 1
    options: SourceOptions = DEFAULT_OPTIONS
    budget: RowBudget | None = None
    json_limits: JsonLimits = NO_LIMITS
    _checked: Schema = field(init=False)
    _target: pa.Schema = field(init=False)
    _nullable: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._nullable = _nullable_names(self.schema)
        if self.operations is not None:
            self.schema = self.operations.source_schema
        self._checked = self.schema
        self._target = arrow_schema(self.schema)
        if self.enrichment is not None:
            self.schema = make_source_schema(self.schema, self.enrichment.names)

    def check_columns(self, columns: Iterable[str], *, ignores_extra: bool = False) -> None:
        """Raises InvalidRequestError if a column is missing, extra or doubled.

        A nullable field, or one that was added to the table, may be missing: the rows have its
        default, or null.
        """
        names = list(columns)
        expected = [f.name for f in self.schema.fields]
        optional = (self.schema.added_names | self._nullable) - self.required
        doubled = {n for n in names if names.count(n) > 1}
        faults = [
            ("missing", [n for n in expected if n not in names and n not in optional]),
            ("not in the schema", [n for n in names if n not in expected and not ignores_extra]),
            ("doubled", sorted(doubled)),
        ]
        text = "; ".join(
            f"{fault}: {', '.join(map(repr, columns))}" for fault, columns in faults if columns
        )
        if text:
            changes = describe_changes(self.schema, (n for _, each in faults for n in each))
            raise InvalidRequestError(
                f"file {self.file}: columns do not fit the table: {text}; "
                f"expected {', '.join(expected)}" + (changes and f"; {changes}")
            )

    def check_types(self, schema: pa.Schema) -> None:
        """Raises InvalidRequestError if a column's Arrow type can never fit its field."""
        for each in self.schema.fields:
            if each.name not in schema.names:
                continue
            kind = schema.field(each.name).type
            fits = is_key_castable if each in self.schema.keys else is_castable
            if fits(kind, each.type):
                continue
            hint = ""
            if pa.types.is_nested(kind) and each.name in find_text_fields(self.schema):
                if self.options.nested is not None:
                    continue
                hint = f" ({OPTION_HINT})"
            raise InvalidRequestError(
                f"file {self.file}: field {each.name!r} is {kind}, "
                f"expected {type_name(each.type)}{hint}"
            )

    def cast(self, columns: Columns) -> pa.RecordBatch:
        """Casts typed columns. Rows that do not fit are rejected, or refuse the job.

        Damaged columns refuse the job, also those that are not in the schema.
        """
        self._check_undamaged(columns)
        return self._cast(columns)

    def cast_in_slices(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Casts a batch as `cast`, and yields its rows in slices that take few megabytes."""
        self._check_undamaged(batch_columns(batch))
        for part in slice_batch(batch, self.schema, self.budget):
            yield self._cast(batch_columns(part))

    def _cast(self, columns: Columns) -> pa.RecordBatch:
        how = self._casts()
        for name in find_text_fields(self.schema) & columns.keys():
            if pa.types.is_nested(columns[name].type):  # as `check_types` allowed
                how[name] = nested_text
        return self._batch(columns, how)

    def _check_undamaged(self, columns: Columns) -> None:
        for name, column in columns.items():
            try:
                check_array(column)
            except DamagedArrayError as error:
                end = self.row + len(column) - 1
                raise InvalidRequestError(
                    f"file {self.file}{self.where}, rows {self.row} to {end}: field {name!r}: "
                    f"{error}"
                ) from error

    def parse(
        self,
        columns: Columns,
        text_fields: frozenset[str],
        parsers: Mapping[str, ParseColumn] | None = None,
        places: Sequence[int] | None = None,
    ) -> pa.RecordBatch:
        """Parses text fields, applies `parsers` to their fields, and casts the others.

        `places` has the number of each row after the next row, if some rows are left out.
        """
        how = self._casts() | dict.fromkeys(text_fields, parse_column)
        for each in self.schema.values:
            if each.type is PrimitiveType.JSON:
                how[each.name] = partial(parse_column, limits=self.json_limits)
        return self._batch(columns, how | dict(parsers or {}), places)

    def _casts(self) -> dict[str, ParseColumn]:
        cast = partial(cast_column, limits=self.json_limits)
        casts: dict[str, ParseColumn] = {f.name: cast for f in self.schema.values}
        return casts | {f.name: cast_key_column for f in self.schema.keys}

    def reject_row(self, row: int, reason: str, content: Any) -> None:
        """Sets a row aside, or refuses the job if there are no rejects."""
        where = f"file {self.file}{self.where}, row {row}"
        if self.rejects is None:
            raise InvalidRequestError(f"{where}: {reason}")
        self.rejects.add(self.file, row, reason, content)

    def _batch(
        self,
        columns: Columns,
        how: Mapping[str, ParseColumn],
        positions: Sequence[int] | None = None,
    ) -> pa.RecordBatch:
        count = len(next(iter(columns.values())))
        arrays: list[pa.Array] = []
        bad: dict[int, str] = {}
        for each in self.schema.fields:
            if each.name not in columns:
                arrays.append(default_column(each, count))
                continue
            array, faults = how[each.name](columns[each.name], each)
            arrays.append(array)
            for row, reason in faults.items():
                bad.setdefault(row, f"field {each.name!r} ({type_name(each.type)}): {reason}")
        checked = dict(zip(self._target.names, arrays, strict=True))
        if self.enrichment is not None:
            self._enrich(self.enrichment, checked, bad)
            arrays = list(checked.values())
        if self.operations is not None:
            for row, (name, reason) in self.operations.find_faults(checked).items():
                bad.setdefault(row, f"field {name!r}: {reason}")
        if bad:
            self._set_aside(columns, bad, positions)
            keep = pa.array([i for i in range(count) if i not in bad], pa.int64())
            arrays = [a.take(keep) for a in arrays]
        self.row += count
        arrays = [_without_null_flags(a, f.type) for a, f in zip(arrays, self._target, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._target)
        if self.budget is not None:
            self.budget.spend(batch.nbytes)
        return batch if self.operations is None else self.operations.apply(batch)

    def _enrich(self, enrichment: RowEnrichment, columns: Columns, bad: dict[int, str]) -> None:
        """Fills the columns. A row that does not fit then is added to the bad ones."""
        is_exempt = None if self.operations is None else self.operations.find_deletes(columns)
        for row, (name, reason) in enrichment.fill(columns, is_exempt).items():
            bad.setdefault(row, f"field {name!r}: {reason}")
        for each in self._checked.values:
            if each.name in enrichment.names:
                columns[each.name], faults = cast_column(columns[each.name], each)
                for row, reason in faults.items():
                    bad.setdefault(row, f"field {each.name!r} ({type_name(each.type)}): {reason}")

    def _set_aside(
        self, columns: Columns, bad: dict[int, str], positions: Sequence[int] | None
    ) -> None:
        for row in sorted(bad):
            content = {name: python_value(column[row]) for name, column in columns.items()}
            position = row if positions is None else positions[row]
            self.reject_row(self.row + position, bad[row], content)


def _nullable_names(schema: Schema) -> set[str]:
    """Returns the names of the nullable fields, without the one that orders the rows of a key."""
    by = None if schema.latest is None else schema.latest.by
    return {field.name for field in schema.values if field.nullable and field.name != by}


def _without_null_flags(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type.equals(kind) else array.cast(kind)


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Returns a chunked column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def batch_columns(batch: pa.RecordBatch) -> Columns:
    """Returns the batch's columns by name."""
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def read_batches(
    batches: Iterator[pa.RecordBatch], checker: RowChecker
) -> Iterator[pa.RecordBatch]:
    """Checks and casts batches of a program, which may have different schemas."""
    checked: pa.Schema | None = None
    for batch in batches:
        if checked is None or not batch.schema.equals(checked):
            checker.check_columns(batch.schema.names)
            checker.check_types(batch.schema)
            checked = batch.schema
        if batch.num_rows:
            yield from checker.cast_in_slices(batch)
