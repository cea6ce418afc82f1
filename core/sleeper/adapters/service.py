"""Creates adapters, after the checks that can be made before their first run."""

from collections.abc import Callable
from dataclasses import replace

from sleeper.adapters.definition import (
    Adapter,
    DatabaseSource,
    Engine,
    FilesSource,
    TableSink,
    TableSource,
    check_adapter_name,
)
from sleeper.adapters.mapped_rows import make_checker, parse_constants
from sleeper.adapters.message import check_workers
from sleeper.adapters.passwords import read_password
from sleeper.adapters.postgresql import check_database
from sleeper.adapters.run import OpenSpark, find_files
from sleeper.adapters.source_text import NewAdapter, parse_source
from sleeper.adapters.store import AdapterStore
from sleeper.adapters.table_rows import check_table
from sleeper.databases.tls import check_tls
from sleeper.databases.url import parse_database_url
from sleeper.datafiles.sources.any_format import read_file
from sleeper.datafiles.sources.files import RowChecker, SourceFormat, source_format
from sleeper.datafiles.sources.parquet import open_parquet
from sleeper.errors import ConflictError, NotFoundError
from sleeper.ingest.service import find_source_schema
from sleeper.instance import Instance
from sleeper.properties.table import EXTRA_COLUMNS_REFUSED
from sleeper.runs.enrichment import refuse_enrichment
from sleeper.schema.model import Schema
from sleeper.storage.bucket_folder import SourceFile

_OPENED_FILES_MAX = 20


def create_adapter(instance: Instance, new: NewAdapter, spark: OpenSpark | None = None) -> Adapter:
    """Checks and stores an adapter. See `parse_source` and `check_adapter` for its source.

    ConflictError if the name is taken. With `replace` an existing adapter gets another source and
    sink, and keeps its schedule.
    """
    store = AdapterStore(instance.storage.root)
    earlier = _find(store, new.name)
    if earlier is not None and not new.replace:
        raise ConflictError(
            f"adapter {new.name!r} already exists (replace it, or choose another name)"
        )
    adapter = Adapter(
        new.name,
        parse_source(instance, new),
        TableSink(new.sink),
        columns=new.columns or None,
        constants=new.constants or None,
    )
    if earlier is not None and earlier.schedule is not None:
        check_workers(instance, adapter)
    check_adapter(instance, adapter, new.check, spark)
    if earlier is None:
        store.create(adapter)
    else:
        store.replace(replace(adapter, schedule=earlier.schedule))
    return adapter


def _find(store: AdapterStore, name: str) -> Adapter | None:
    check_adapter_name(name)
    try:
        return store.get(name)
    except NotFoundError:
        return None


def check_adapter(
    instance: Instance, adapter: Adapter, reads_source: bool, spark: OpenSpark | None
) -> None:
    """Raises an error if the sink does not exist, or the source is missing or does not fit it.

    Without `reads_source` the source is not opened, but a missing password is an error. A database
    that needs Spark is opened only with `spark`.
    """
    table = instance.table(adapter.sink.table)
    sink, source = find_source_schema(table), adapter.source
    schema = adapter.mapping.source_schema(sink)
    parse_constants(adapter.mapping, sink)
    if isinstance(source, DatabaseSource):
        if adapter.needs_spark:
            refuse_enrichment(table, "a load by Spark")
        check_tls(parse_database_url(source.url), source.describe())
        password = read_password(instance, source)
        if reads_source:
            _check_database(source, password, schema, spark)
    elif reads_source and isinstance(source, TableSource):
        check_table(instance, source, schema)
    elif reads_source and isinstance(source, FilesSource):
        refuses_extra = table.properties().get(EXTRA_COLUMNS_REFUSED)

        def make(path: SourceFile) -> RowChecker:
            if not adapter.mapping.is_empty:
                return make_checker(path, adapter.mapping, sink)
            return RowChecker(schema, str(path), None, refuses_extra_columns=refuses_extra)

        _check_files(instance, source, make)


def _check_database(
    source: DatabaseSource, password: str | None, schema: Schema, spark: OpenSpark | None
) -> None:
    if source.chosen_engine is Engine.ADBC:
        check_database(source, password, schema)
    elif spark is not None:
        spark().check(source, password, schema)


def _check_files(
    instance: Instance, source: FilesSource, make: Callable[[SourceFile], RowChecker]
) -> None:
    """Opens the first files, and reads the first rows of text."""
    for path in find_files(instance, source)[:_OPENED_FILES_MAX]:
        if source_format(path) is SourceFormat.PARQUET:
            open_parquet(path, make(path))
        else:
            next(read_file(path, make(path)), None)
