"""`sleeper table create`, which can find the schema in files."""

import io
import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sleeper.cli.arguments import complete_table_property, parse_settings, use_instance
from sleeper.cli.file_options import (
    ColumnsOption,
    DelimiterOption,
    EncodingOption,
    FormatOption,
    HeaderOption,
    NestedOption,
    format_options,
    make_options,
    split_names,
)
from sleeper.cli.output import note, warn
from sleeper.reports.output import pluralize
from sleeper.schema.model import FieldType, Schema, schema_to_json
from sleeper.schema.type_text import parse_type
from sleeper.storage.source_options import DEFAULT_OPTIONS, SourceOptions

if TYPE_CHECKING:
    from sleeper.datafiles.sources.samples import FileSample
    from sleeper.datafiles.sources.table_inference import InferredTable
    from sleeper.instance import Instance

_FILES_SHOWN_MAX = 10
_ROWS_SHOWN = 5


def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the table.")],
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="Schema of the table, as JSON.")
    ] = None,
    like: Annotated[
        list[str] | None,
        typer.Option(
            "--like",
            metavar="FILE",
            help="Find the schema in Parquet, CSV or JSON lines files: a path, a quoted pattern, a "
            "directory, or s3://bucket/key. It has the columns of all files; those that are "
            "not keys are nullable. Repeatable. Requires --key.",
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="A,B", help="Columns of --like that are row keys."),
    ] = None,
    sort_keys: Annotated[
        list[str] | None,
        typer.Option("--sort", metavar="A,B", help="Columns of --like that are sort keys."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="COLUMN=TYPE", help="Type of a column of --like. Repeatable."
        ),
    ] = None,
    file_format: FormatOption = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    header: HeaderOption = None,
    columns: ColumnsOption = None,
    nested: NestedOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the schema that --like finds, and create nothing."),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PROPERTY=VALUE",
            help="Set a property. Repeatable.",
            autocompletion=complete_table_property,
        ),
    ] = None,
    split_points: Annotated[
        Path | None,
        typer.Option(
            "--split-points",
            metavar="FILE",
            help="Initial split points: one value of the first row key field per line, "
            "ascending. Byte arrays are base64, and so are strings if "
            "sleeper.table.splits.base64.encoded=true.",
        ),
    ] = None,
) -> None:
    """Create a table from a schema, or with the columns of files.

    With --like, the schema is printed to standard output.
    sleeper.table.type=snapshot makes a snapshot table, whose rows each ingest replaces.
    sleeper.table.rows=latest makes a table that shows only the newest row of each key.

    \b
    Examples:
      sleeper table create flights --schema flights.schema.json
      sleeper table create taxi --like 'data/*.parquet' --key cab_id --sort pickup_at
      sleeper table create rides --like rides.csv --key city,day --type day=IntType --dry-run
      sleeper table create flights --schema flights.schema.json --split-points splits.txt \\
          --set sleeper.table.partition.splitting.threshold=50000
      sleeper table create customers --schema customers.schema.json \\
          --set sleeper.table.type=snapshot --set sleeper.table.snapshot.ttl=7d \\
          --set sleeper.table.snapshot.min.versions=1
    """
    values = parse_settings(settings or [])
    options = make_options(file_format, delimiter, encoding, header, columns, nested)
    is_of_files = keys or sort_keys or types or dry_run or options != DEFAULT_OPTIONS
    if (schema is None) == (not like) or (is_of_files and not like):
        raise typer.BadParameter("expected --schema, or --like with the options of files")
    with use_instance(context) as instance:
        from sleeper.admin.tables import create_table_from_files

        result: Path | Schema | None = schema
        if like:
            result = _infer_schema(
                instance, like, keys or (), sort_keys or (), types or (), options
            )
        if dry_run or result is None:
            return
        properties = create_table_from_files(instance, name, result, values, split_points)
        note(f"created table {name}")
        if like:
            _suggest_ingest(name, like, options)
        warn(properties.warnings())


def _infer_schema(
    instance: "Instance",
    like: Sequence[str],
    keys: Sequence[str],
    sort_keys: Sequence[str],
    types: Sequence[str],
    options: SourceOptions,
) -> Schema:
    """Returns the schema of a table like the files; prints it and a line per file."""
    from sleeper.datafiles.sources.table_inference import TableRequest
    from sleeper.ingest.inference import infer_from_paths

    names = tuple(split_names(keys)), tuple(split_names(sort_keys))
    request = TableRequest(*names, dict(map(_parse_type_option, types)), options)
    inferred = infer_from_paths(instance, like, request)
    for line in _describe_findings(inferred):
        note(line)
    typer.echo(format_schema(inferred.schema))
    return inferred.schema


def format_schema(schema: Schema) -> str:
    """Returns schema JSON with a field per line, without empty lists."""
    lines = []
    for member, content in json.loads(schema_to_json(schema)).items():
        text = json.dumps(content, ensure_ascii=False)
        if content and isinstance(content, list):
            fields = ",\n".join(f"  {json.dumps(each, ensure_ascii=False)}" for each in content)
            text = f"[\n{fields}]"
        if content:
            lines.append(f'"{member}": {text}')
    return "{" + ",\n ".join(lines) + "}"


def _suggest_ingest(name: str, like: Sequence[str], options: SourceOptions) -> None:
    """Prints the command that ingests the files."""
    note(f"next: sleeper {shlex.join(['ingest', name, *like, *format_options(options)])}")


def _parse_type_option(text: str) -> tuple[str, FieldType]:
    name, equals, kind = text.rpartition("=")
    if not equals:
        raise typer.BadParameter(f"invalid type: {text!r} (expected COLUMN=TYPE)")
    return name, parse_type(kind)


def _describe_findings(inferred: "InferredTable") -> Iterable[str]:
    from sleeper.datafiles.sources.inference import describe_foreign_values

    for sample in inferred.samples[:_FILES_SHOWN_MAX]:
        yield f"{sample.path}: {', '.join(_describe_sample(sample))}"
        for old, new in () if sample.dialect is None else sample.dialect.renamed:
            yield f"{sample.path}: column {old!r} is renamed to {new!r}"
        if sample.rows is not None:
            for sentence in describe_foreign_values(sample.rows):
                yield f"{sample.path}: {sentence}"
    more = len(inferred.samples) - _FILES_SHOWN_MAX
    if more > 0:
        yield f"(and {pluralize(more, 'more file')})"
    if len(inferred.samples) < inferred.files:
        yield f"(sampled {len(inferred.samples):,} of {inferred.files:,} files)"
    rows = inferred.first_rows(_ROWS_SHOWN)
    if rows is not None:
        from sleeper.query.rows.output import write_table

        sink = io.BytesIO()
        write_table(rows.schema, rows.to_batches(), sink)
        yield from sink.getvalue().decode().splitlines()


def _describe_sample(sample: "FileSample") -> Iterable[str]:
    yield sample.format.name.replace("_", " ").lower()
    if not sample.columns.names:
        yield "empty"
        return
    if sample.dialect is not None:
        yield f"delimiter {sample.dialect.delimiter!r}"
    if sample.encoding is not None:
        yield f"encoding {sample.encoding}"
    if sample.dialect is not None:
        yield "header" if sample.dialect.has_header else "no header"
    yield pluralize(sample.row_count, "row") + ("" if sample.is_whole else " sampled")
    if sample.irregular_rows:  # an ingest refuses them
        yield f"{pluralize(sample.irregular_rows, 'row')} with another number of values"
