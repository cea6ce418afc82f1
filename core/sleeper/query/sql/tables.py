"""Registers tables with a session under their names, each as of a transaction.

Files with the same regions share a scan. A table with an iterator, its own or its caller's, is
merged into a local file first, because the engine may scan a table several times and cannot wait
for rows from Python. So is a table of latest rows, which are known only in the merge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import DataFrame, SessionContext, udf
from datafusion.expr import Expr

from sleeper.datafiles.arrow import JSON_MARK, view_schema
from sleeper.datafiles.engine.errors import engine_errors
from sleeper.datafiles.engine.expression import column, regions_predicate
from sleeper.datafiles.engine.scan import add_barrier, scan_files
from sleeper.datafiles.key_files import KeyFileCache
from sleeper.datafiles.merge.deletes import open_deleted
from sleeper.datafiles.merge.frame import map_fields, mark_json, undeleted_predicate
from sleeper.datafiles.merge.processing import apply_steps
from sleeper.datafiles.merge.steps import ProcessingStep
from sleeper.errors import InvalidRequestError
from sleeper.processing.restriction import visible_schema
from sleeper.query.engine import QueryEngine, QueryTable
from sleeper.query.request import Query
from sleeper.query.result import TimeLimit
from sleeper.query.run import make_steps, plan_with_filters, read_rows, result_schema
from sleeper.query.sql.needs import TableNeeds
from sleeper.query.sql.plan import ScanGroup, TablePlan
from sleeper.schema.model import PrimitiveType, Schema
from sleeper.statestore.version import PointInTime, Version, parse_version, parse_version_text

_ALL = TableNeeds()


def register_table(
    session: SessionContext,
    table: QueryTable,
    plan: TablePlan,
    now_ms: int,
    key_files: KeyFileCache,
    needs: TableNeeds = _ALL,
) -> list[str]:
    """Registers the rows of the plan, after the table's filters and aggregations.

    Returns the files. The view has only the fields that the caller may see, and only rows that
    satisfy the condition of the needs. If the plan hides rows, the engine evaluates no other
    condition of the statement on them. It moves predicates on key fields below an aggregation, and
    no others.
    """
    visible = visible_schema(table.restriction, plan.schema)
    frames = [_group_frame(session, table, plan, group, key_files) for group in plan.groups]
    if frames:
        step = ProcessingStep(plan.processing, max(now_ms, plan.time_ms))
        rows = apply_steps(_union(frames), plan.schema, (step,))
        if visible != plan.schema:
            rows = rows.select(*(column(each.name) for each in visible.fields))
        if plan.hides_rows or not needs.prunes_exactly:
            rows = rows if needs.condition is None else rows.filter(needs.condition)
            rows = add_barrier(rows)
        session.register_view(quote_identifier(table.name), mark_json(rows, visible))
    else:
        session.register_record_batches(quote_identifier(table.name), [[_no_rows(visible)]])
    return [table.root.url_of(path) for path in plan.paths]


def quote_identifier(name: str) -> str:
    """Returns the name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _group_frame(
    session: SessionContext,
    table: QueryTable,
    plan: TablePlan,
    group: ScanGroup,
    key_files: KeyFileCache,
) -> DataFrame:
    files = [table.root.url_of(path) for path in group.paths]
    stored = plan.schema.at(group.schema_version)
    kinds = view_schema(stored)
    frame = map_fields(scan_files(session, files, kinds), stored, plan.schema)
    if group.deleted:
        deleted = [(each.region, each.keys) for each in group.deleted]
        rows = open_deleted(plan.schema, deleted, table.root, key_files, are_in_order=False)
        frame = frame.filter(undeleted_predicate(rows, kinds))
    if group.regions is None:
        return frame
    predicate = regions_predicate(plan.schema, group.regions)
    return frame if predicate is None else frame.filter(predicate)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    # A balanced tree, because a chain of hundreds would overflow the planner's stack.
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _union(frames[:half]).union(_union(frames[half:]))


def _no_rows(schema: Schema) -> pa.RecordBatch:
    kind = pa.schema(
        [
            kind.with_metadata(JSON_MARK) if each.type is PrimitiveType.JSON else kind
            for kind, each in zip(view_schema(schema), schema.fields, strict=True)
        ]
    )
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in kind], schema=kind)


@dataclass(frozen=True, slots=True)
class MergedRows:
    """The needed rows and columns of a table, after its merge and iterators.

    The rows have no column that is hidden from the table's caller.
    """

    table: QueryTable
    plan: TablePlan
    needs: TableNeeds
    now_ms: int

    def with_all_columns(self) -> "MergedRows":
        """Returns the same rows with every visible column."""
        return replace(self, needs=replace(self.needs, columns=None))

    def write(self, engine: QueryEngine, limit: TimeLimit) -> Path:
        """Writes the rows to a new file in the spill folder, leaf after leaf."""
        plan, table = self.plan, self.table
        regions = None if self.needs.regions is None else tuple(self.needs.regions)
        written = self._written()
        # A read of all columns verifies the files.
        columns = written if len(written) < len(plan.schema.fields) else None
        query = Query(regions, columns, version=plan.version)
        by_leaf = plan_with_filters(query, table, engine)
        now_ms = max(self.now_ms, plan.time_ms)
        steps = make_steps(by_leaf, query, table.iterators, now_ms, table.restriction)
        kind = result_schema(plan.schema, columns)
        # Most keys are different, so that a dictionary of them costs time only.
        keys = {each.name for each in plan.schema.keys}
        dictionaries = [name for name in written if name not in keys]
        file = engine.settings.engine.new_spill_path(f"sql-{uuid4().hex}.parquet")
        try:
            with (
                engine_errors(),
                pq.ParquetWriter(
                    file,
                    kind,
                    compression="lz4",
                    use_dictionary=dictionaries,
                    write_statistics=False,
                ) as writer,
            ):
                for batch in read_rows(by_leaf, query, table.root, engine, kind, steps, limit):
                    writer.write_batch(batch)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return file

    def register(self, session: SessionContext, file: Path) -> None:
        """Registers the rows of the file as the table, in place of an earlier file.

        The table has all of its columns. Those that the file lacks fail when they are read, which
        `reads_missing_column` finds before.
        """
        schema = visible_schema(self.table.restriction, self.plan.schema)
        visible = view_schema(schema)
        written = pa.schema([visible.field(name) for name in self._written()])
        frame = scan_files(session, [str(file)], written)
        if len(written) < len(visible):
            columns = (
                column(each.name) if each in written else _missing_column(each) for each in visible
            )
            frame = frame.select(*columns)
        name = quote_identifier(self.table.name)
        session.deregister_table(name)
        session.register_view(name, mark_json(frame, schema))

    def _written(self) -> tuple[str, ...]:
        """Returns the columns of the file: at least one, by which rows are counted."""
        visible = visible_schema(self.table.restriction, self.plan.schema)
        names = [field.name for field in visible.fields]
        if self.needs.columns is not None:
            names = [name for name in names if name in self.needs.columns]
        # The merge reads the keys anyway. Numbers are the smallest.
        smallest = min(visible.keys, key=lambda each: each.type in _LARGE_KEY_TYPES)
        return tuple(names or [smallest.name])


_LARGE_KEY_TYPES = {PrimitiveType.STRING, PrimitiveType.BYTE_ARRAY}
_MISSING = "sleeper_missing_column"


def reads_missing_column(frame: DataFrame) -> bool:
    """Returns whether the plan reads a column that the files of `MergedRows` lack."""
    try:
        return _MISSING in frame.optimized_logical_plan().display_indent()
    except Exception:
        # Running the statement reports its errors.
        return False


def _missing_column(field: pa.Field) -> Expr:
    def fail() -> pa.Array:
        raise RuntimeError(f"column {field.name!r} is not in the local file")

    # Volatile, so that the planner does not evaluate it.
    return udf(fail, [], field.type, "volatile", _MISSING)().alias(field.name)


@dataclass(frozen=True, slots=True)
class AsOf:
    """Versions by table; `single` is that of a statement's only table.

    Each table has its own numbers. Tables without a version are read at their newest.
    """

    single: Version | None = None
    by_table: Mapping[str, Version] = field(default_factory=dict)

    def find(self, table: str) -> Version | None:
        """Returns the version for the table, if the statement names it; None is the newest."""
        return self.by_table.get(table, self.single)

    def versions(self, named: Sequence[str]) -> dict[str, Version]:
        """Returns the version of each table, for a statement that names these tables.

        A time applies to every table. Raises `InvalidRequestError` for a table that the statement
        does not name, and for a single number if it does not name exactly one table.
        """
        content = f"it names {', '.join(sorted(named))}" if named else "it names no table"
        for name in self.by_table:
            if name not in named:
                raise InvalidRequestError(
                    f"as of a transaction of {name!r}: not a table of the statement; {content}"
                )
        if self.single is None:
            return dict(self.by_table)
        if isinstance(self.single, PointInTime):
            if not named:
                raise InvalidRequestError(f"as of {self.single.text}: {content}")
            return dict.fromkeys(named, self.single)
        if len(named) != 1:
            raise InvalidRequestError(
                f"as of transaction {self.single}: a statement of several tables requires "
                f"TABLE=N for each; {content}"
            )
        return {named[0]: self.single}


NEWEST = AsOf()


def parse_as_of(value: object) -> AsOf:
    """Parses a version, a mapping from tables to versions, or `None` for the newest versions.

    A version is a number, a time or an age (`sleeper.statestore.version`). Raises
    `InvalidRequestError` for another value.
    """
    if value is None:
        return NEWEST
    if isinstance(value, Mapping):
        return AsOf(by_table={str(name): parse_version(each) for name, each in value.items()})
    return AsOf(parse_version(value))


def parse_as_of_options(texts: Sequence[str]) -> AsOf:
    """Parses options of the command line: a version, or `TABLE=VERSION` for each table."""
    single: Version | None = None
    by_table: dict[str, Version] = {}
    for text in texts:
        name, equals, version_text = text.rpartition("=")
        version = parse_version_text(version_text)
        if not equals and len(texts) > 1:
            raise InvalidRequestError(f"as of {text}: missing table (expected TABLE={text})")
        if name in by_table:
            raise InvalidRequestError(f"as of {text}: duplicate table {name!r}")
        if equals:
            by_table[name] = version
        else:
            single = version
    return AsOf(single, by_table)
