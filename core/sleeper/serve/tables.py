"""The endpoints that describe tables: fields, history, partitions, files, readers, versions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from sleeper.partitions.partition import PartitionId
from sleeper.processing.restriction import NO_RESTRICTION, visible_schema
from sleeper.properties.table import AGGREGATIONS, FILTERS, ITERATOR_CLASS_NAME, ITERATOR_CONFIG
from sleeper.query.service import restrict_caller
from sleeper.reports import history, snapshot_versions
from sleeper.reports.output import json_rows
from sleeper.reports.partition_sizes import list_partition_sizes
from sleeper.reports.service import report_table
from sleeper.reports.tables import FOLLOWER_COLUMNS, HOLD_COLUMNS, gather_state, list_files
from sleeper.schema.model import schema_to_json
from sleeper.serve.endpoint import Call, Parameter, answers, flag_parameter, number_parameter
from sleeper.serve.schema import (
    COUNT,
    FLAG,
    OBJECT,
    OPTIONAL,
    TEXT,
    Rows,
    Schema,
    list_schema,
    object_schema,
    rows_of,
)

_HISTORY_DEFAULT = 100
_PARTITIONS_DEFAULT = 500
_FILES_DEFAULT = 100
_READ_PROPERTIES = (FILTERS, AGGREGATIONS, ITERATOR_CLASS_NAME, ITERATOR_CONFIG)


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table: its name, its id, and whether it is compacted."""

    name: str
    id: str
    online: bool


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables."""

    tables: tuple[NamedTable, ...]


@answers("GET", "/tables", Tables)
def list_tables(call: Call) -> Tables:
    """Lists all tables."""
    refs = sorted(call.instance.tables.index.list(), key=lambda ref: ref.name)
    return Tables(tuple(NamedTable(ref.name, ref.id, ref.online) for ref in refs))


@dataclass(frozen=True, slots=True)
class Table(NamedTable):
    """A table with the fields that a caller may see."""

    version: int
    schema: Annotated[Mapping[str, Any], Schema("schema JSON")]
    rows: Annotated[int | None, OPTIONAL, Schema("in files, before aggregation")] = None
    files: Annotated[int | None, OPTIONAL] = None
    bytes: Annotated[int | None, OPTIONAL] = None
    leaves: Annotated[int | None, OPTIONAL] = None
    properties: Annotated[Mapping[str, str] | None, OPTIONAL] = None


@answers(
    "GET",
    "/tables/{name}",
    Annotated[
        Table, Schema("Members that are not required are for callers who may see all of the table.")
    ],
    errors=(404,),
)
def describe_table(call: Call) -> Table:
    """Describes a table."""
    table = call.instance.table(call.name)
    restriction = restrict_caller(table, call.caller)
    report = report_table(call.instance, call.name)
    schema = json.loads(schema_to_json(visible_schema(restriction, report.schema)))
    ref = report.table
    seen = (ref.name, ref.id, ref.online, report.version, schema)
    if restriction != NO_RESTRICTION:
        return Table(*seen)
    values, totals = call.instance.table(call.name).properties().values, report.totals
    properties = {p.name: values[p.name] for p in _READ_PROPERTIES if values.get(p.name)}
    return Table(*seen, totals.rows, totals.files, totals.bytes, totals.leaves, properties)


@dataclass(frozen=True, slots=True)
class History:
    """Transactions, newest first."""

    recorded: Annotated[int, Schema("transactions like these that the state keeps")]
    hidden: Annotated[int, Schema("transactions of upkeep that are left out")]
    transactions: Annotated[
        Rows,
        rows_of(
            history.COLUMNS,
            optional=("files", "rows", "bytes", "job"),
            description="Files, rows and bytes are those that the transaction wrote, assigned or "
            "removed.",
        ),
    ]


@answers(
    "GET",
    "/tables/{name}/history",
    History,
    errors=(400, 404),
    parameters=(
        Parameter("limit", "The maximum number of transactions.", schema=COUNT),
        Parameter(
            "all", "Whether compactions, splits, collections and followers are shown.", schema=FLAG
        ),
    ),
)
def table_history(call: Call) -> History:
    """Returns what each transaction of a table did, newest first."""
    limit = number_parameter(call.request, "limit", _HISTORY_DEFAULT)
    shows_all = flag_parameter(call.request, "all")
    with call.read_table().state.reading() as state:
        newest = state.history.newest(limit, shows_all)
    rows = json_rows(history.describe_history(call.name, newest))
    return History(newest.recorded, newest.hidden, [*rows])


_PARTITION = object_schema(
    {
        "partition": TEXT,
        "keys": {**TEXT, "description": "bounds that its parent does not have"},
        "parent": {"type": ["string", "null"]},
        "leaf": FLAG,
        **dict.fromkeys(("depth", "children", "leaves", "rows", "bytes", "references"), COUNT),
        **dict.fromkeys(("ownRows", "ownReferences"), COUNT),
        "region": OBJECT,
    },
    {},
)


@dataclass(frozen=True, slots=True)
class Partitions:
    """A partition tree, the upper levels of a large tree only."""

    partitions: Annotated[int, Schema("partitions at or below the root")]
    leaves: int
    tree: Annotated[
        Rows,
        Schema(
            "Level by level. Sizes include the partitions below, unless they are `own`.",
            items=_PARTITION,
        ),
    ]


@answers(
    "GET",
    "/tables/{name}/partitions",
    Partitions,
    errors=(400, 404),
    parameters=(
        Parameter("root", "The partition to begin with, instead of the root of the table."),
        Parameter("limit", "The maximum number of partitions.", schema=COUNT),
    ),
)
def table_partitions(call: Call) -> Partitions:
    """Returns the partition tree of a table with its sizes, level by level."""
    limit = number_parameter(call.request, "limit", _PARTITIONS_DEFAULT)
    root, table = call.request.query_params.get("root"), call.read_table()
    root_id = None if root is None else PartitionId(root)
    listing, totals = list_partition_sizes(table.state, table.ref.name, limit, root_id)
    return Partitions(**totals, tree=[*json_rows(listing)])


_FILE = object_schema(
    {
        "file": TEXT,
        "partitions": list_schema(TEXT),
        "rows": COUNT,
        "bytes": COUNT,
        "smallest_key": {"type": "array"},
        "largest_key": {"type": "array"},
    },
    {},
)


@dataclass(frozen=True, slots=True)
class Files:
    """A page of files."""

    total: int
    files: Annotated[Rows, Schema("oldest first", items=_FILE)]


@answers(
    "GET",
    "/tables/{name}/files",
    Files,
    errors=(400, 404),
    parameters=(
        Parameter("offset", "The number of files to skip.", schema=COUNT),
        Parameter("limit", "The maximum number of files.", schema=COUNT),
    ),
)
def table_files(call: Call) -> Files:
    """Returns the data files of a table, oldest first."""
    limit = number_parameter(call.request, "limit", _FILES_DEFAULT)
    offset, table = number_parameter(call.request, "offset", 0), call.read_table()
    listing = list_files(table.state, table.ref.name, limit, offset)
    with table.state.reading() as state:
        return Files(state.files.totals().files, [*json_rows(listing)])


@dataclass(frozen=True, slots=True)
class Followers:
    """The followers and holds of a table at a version."""

    version: int
    followers: Annotated[Rows, rows_of(FOLLOWER_COLUMNS)]
    holds: Annotated[Rows, rows_of(HOLD_COLUMNS)]


@answers("GET", "/tables/{name}/followers", Followers, errors=(400, 404))
def table_followers(call: Call) -> Followers:
    """Returns the followers of a table's changes with their lag, and its holds."""
    table = call.read_table()
    report = gather_state(table.state, table.ref.name)
    listings = report.followers_listing(), report.holds_listing()
    return Followers(report.number, *([*json_rows(each)] for each in listings))


VERSION_ROWS = rows_of(
    snapshot_versions.COLUMNS,
    optional=("load", "expiresAt", "heldBy"),
    version=Schema("the transaction that published it, for `asOf`"),
    expiresAt=Schema("null if the version stays until a load replaces it"),
)


@dataclass(frozen=True, slots=True)
class SnapshotVersions:
    """Versions of a snapshot table."""

    versions: Annotated[Rows, VERSION_ROWS]


@answers(
    "GET", "/tables/{name}/snapshots", SnapshotVersions, name="snapshotVersions", errors=(400, 404)
)
def list_snapshot_versions(call: Call) -> SnapshotVersions:
    """Returns the versions of a snapshot table that have not expired, newest first."""
    report = snapshot_versions.gather_snapshot_versions(call.read_table())
    return SnapshotVersions([*json_rows(report.listing())])
