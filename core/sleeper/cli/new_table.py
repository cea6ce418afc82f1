"""The part of `sleeper table create` that finds the schema in files."""

import io
import json
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from sleeper.cli.file_options import format_options, split_names
from sleeper.cli.output import note
from sleeper.reports.output import pluralize
from sleeper.schema.model import FieldType, Schema, schema_to_json
from sleeper.schema.type_text import parse_type
from sleeper.storage.source_options import SourceOptions

if TYPE_CHECKING:
    from sleeper.datafiles.sources.samples import FileSample
    from sleeper.datafiles.sources.table_inference import InferredTable
    from sleeper.instance import Instance

_FILES_SHOWN_MAX = 10
_ROWS_SHOWN = 5


def infer_schema(
    instance: "Instance",
    like: Sequence[str],
    keys: Sequence[str],
    sort_keys: Sequence[str],
    types: Sequence[str],
    options: SourceOptions,
) -> Schema:
    """Returns the schema of a table like the files; prints it and what was found in them."""
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


def suggest_ingest(name: str, like: Sequence[str], options: SourceOptions) -> None:
    """Prints the command that ingests the files."""
    note(f"next: sleeper {shlex.join(['ingest', name, *like, *format_options(options)])}")


def _parse_type_option(text: str) -> tuple[str, FieldType]:
    name, equals, kind = text.rpartition("=")
    if not equals:
        raise typer.BadParameter(f"invalid type: {text!r} (expected COLUMN=TYPE)")
    return name, parse_type(kind)


def _describe_findings(inferred: "InferredTable") -> Iterable[str]:
    for sample in inferred.samples[:_FILES_SHOWN_MAX]:
        yield f"{sample.path}: {', '.join(_describe_sample(sample))}"
        for old, new in () if sample.dialect is None else sample.dialect.renamed:
            yield f"{sample.path}: column {old!r} is renamed to {new!r}"
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
