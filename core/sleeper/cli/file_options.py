"""Options of commands that read users' files: how the files are read."""

import csv
from collections.abc import Sequence
from typing import Annotated

import typer

from sleeper.storage.source_options import (
    FileFormat,
    NestedColumns,
    SourceOptions,
)

FormatOption = Annotated[
    FileFormat | None,
    typer.Option("--format", help="Format of the files. Default: from each file name."),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="CHARACTER",
        help="Delimiter of CSV, or `tab`. Detected by default: comma, semicolon, tab or |.",
    ),
]
EncodingOption = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="Encoding of CSV and JSON lines, such as utf-16 or latin-1. Detected by default: "
        "UTF-8, UTF-16 with a byte order mark, or for CSV Windows-1252.",
    ),
]
HeaderOption = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of CSV has the column names. Without names, columns are "
        "column0, column1 and so on. Detected by default.",
        show_default=False,
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="Names of the columns of CSV without a header, or in place of those of --header.",
    ),
]
NestedOption = Annotated[
    NestedColumns | None,
    typer.Option(
        "--nested", help="Keep nested columns, such as structs, as JSON text in StringType fields."
    ),
]


def make_options(
    format: FileFormat | None,
    delimiter: str | None,
    encoding: str | None,
    header: bool | None,
    columns: str | None,
    nested: NestedColumns | None,
) -> SourceOptions:
    """Returns the options. InvalidRequestError for an invalid value."""
    names = () if columns is None else tuple(split_names([columns]))
    return SourceOptions(format, delimiter, encoding, header, names, nested)


def split_names(texts: Sequence[str]) -> list[str]:
    """Returns the names in texts such as `A,B`, with the quoting of CSV."""
    return [name for row in csv.reader(texts) for name in row]


def format_options(options: SourceOptions) -> list[str]:
    """Returns the options as arguments of a command."""
    arguments: list[str] = []
    if options.format is not None:
        arguments += ["--format", options.format.value]
    if options.delimiter is not None:
        arguments += ["--delimiter", "tab" if options.delimiter == "\t" else options.delimiter]
    if options.encoding is not None:
        arguments += ["--encoding", options.encoding]
    if options.header is not None:
        arguments += ["--header" if options.header else "--no-header"]
    if options.columns:
        arguments += ["--columns", ",".join(map(_quote_name, options.columns))]
    if options.nested is not None:
        arguments += ["--nested", options.nested.value]
    return arguments


def _quote_name(name: str) -> str:
    return f'"{name}"' if "," in name else name
