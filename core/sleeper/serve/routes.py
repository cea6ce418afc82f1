"""The endpoints of the HTTP API."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import ASGIApp

from sleeper.ingest.small_rows import ContentType
from sleeper.serve.contents import (
    FILE_PARAMETERS,
    FILES,
    FOLLOWERS,
    PARTITION_PARAMETERS,
    PARTITIONS,
    table_files,
    table_followers,
    table_partitions,
)
from sleeper.serve.deletes import DELETE, DELETED, delete_from_table
from sleeper.serve.endpoint import COUNT, Endpoint, Model, Parameter
from sleeper.serve.feed import FEED_PARAMETERS, table_changes
from sleeper.serve.health import HEALTH, report_health, report_live
from sleeper.serve.queries import QUERY_MESSAGE, QUERY_STATUS, SUBMITTED, query_status, submit
from sleeper.serve.row_writes import WRITTEN, write_rows
from sleeper.serve.rows import QUERY, STATEMENT, query_table, run_sql
from sleeper.serve.service import Service
from sleeper.serve.snapshot_versions import (
    EXPIRE,
    EXPIRED,
    VERSIONS,
    expire_snapshots,
    snapshot_versions,
)
from sleeper.serve.status import REPORT_PARAMETERS, REPORTS, report_status
from sleeper.serve.table_changes import (
    ADD_TABLE,
    ADDED_TABLE,
    CHANGED,
    CREATED,
    DELETED_TABLE,
    NEW_TABLE,
    TABLE_CHANGES,
    add_table,
    add_table_as_gchq,
    change_table_definition,
    remove_table,
)
from sleeper.serve.tables import HISTORY, TABLE, TABLES, describe_table, list_tables, table_history
from sleeper.serve.versions import (
    CLONE,
    CLONED,
    RESTORE,
    RESTORED,
    UNDO,
    UNDONE,
    clone,
    restore,
    undo,
)

_TABLE_NAME = Parameter("name", "The name of a table.", "path")


def _change(
    path: str,
    name: str,
    summary: str,
    handle: Callable[[Service, Request], Awaitable[ASGIApp]],
    body: Model,
    response: Model,
) -> Endpoint:
    """Returns the endpoint of a change of a table."""
    return Endpoint(
        "POST",
        f"/tables/{{name}}/{path}",
        name,
        summary,
        handle,
        response,
        errors=(400, 404, 409, 413, 415, 503),
        parameters=(_TABLE_NAME,),
        body=body,
    )


ENDPOINTS = (
    Endpoint(
        "GET",
        "/health",
        "health",
        "Returns whether the server can answer requests. Needs no token.",
        report_health,
        HEALTH,
        errors=(503,),
    ),
    Endpoint(
        "GET",
        "/health/live",
        "live",
        "Returns that the server runs. Needs no token.",
        report_live,
        HEALTH,
    ),
    Endpoint("GET", "/tables", "listTables", "Lists all tables.", list_tables, TABLES),
    Endpoint(
        "GET",
        "/tables/{name}",
        "describeTable",
        "Describes a table.",
        describe_table,
        TABLE,
        errors=(404,),
        parameters=(_TABLE_NAME,),
    ),
    Endpoint(
        "POST",
        "/tables",
        "createTable",
        "Creates a table. A read-only server answers 403.",
        add_table,
        CREATED,
        errors=(400, 409, 413, 415),
        body=NEW_TABLE,
        status=201,
    ),
    Endpoint(
        "POST",
        "/sleeper/tables",
        "addTable",
        "Creates a table by a request of gchq/sleeper's REST API, and answers as that does.",
        add_table_as_gchq,
        ADDED_TABLE,
        errors=(400, 409, 413, 415),
        body=ADD_TABLE,
        status=201,
    ),
    Endpoint(
        "PATCH",
        "/tables/{name}",
        "changeTable",
        "Sets properties of a table, or puts it online or offline. A read-only server answers 403.",
        change_table_definition,
        CHANGED,
        errors=(400, 404, 409, 413, 415),
        parameters=(_TABLE_NAME,),
        body=TABLE_CHANGES,
    ),
    Endpoint(
        "DELETE",
        "/tables/{name}",
        "deleteTable",
        "Deletes a table, which can be undeleted for a time. A read-only server answers 403.",
        remove_table,
        DELETED_TABLE,
        errors=(400, 404),
        parameters=(_TABLE_NAME,),
    ),
    Endpoint(
        "GET",
        "/tables/{name}/history",
        "tableHistory",
        "Returns what each transaction of a table did, newest first.",
        table_history,
        HISTORY,
        errors=(400, 404),
        parameters=(
            _TABLE_NAME,
            Parameter("limit", "The maximum number of transactions.", schema=COUNT),
        ),
    ),
    Endpoint(
        "GET",
        "/tables/{name}/partitions",
        "tablePartitions",
        "Returns the partition tree of a table with its sizes, level by level.",
        table_partitions,
        PARTITIONS,
        errors=(400, 404),
        parameters=(_TABLE_NAME, *PARTITION_PARAMETERS),
    ),
    Endpoint(
        "GET",
        "/tables/{name}/files",
        "tableFiles",
        "Returns the data files of a table, oldest first.",
        table_files,
        FILES,
        errors=(400, 404),
        parameters=(_TABLE_NAME, *FILE_PARAMETERS),
    ),
    Endpoint(
        "GET",
        "/tables/{name}/followers",
        "tableFollowers",
        "Returns the followers of a table's changes with their lag, and its holds.",
        table_followers,
        FOLLOWERS,
        errors=(400, 404),
        parameters=(_TABLE_NAME,),
    ),
    Endpoint(
        "GET",
        "/tables/{name}/snapshots",
        "snapshotVersions",
        "Returns the versions of a snapshot table that have not expired, newest first.",
        snapshot_versions,
        VERSIONS,
        errors=(400, 404),
        parameters=(_TABLE_NAME,),
    ),
    Endpoint(
        "GET",
        "/tables/{name}/changes",
        "tableChanges",
        "Returns what each transaction of a table changed, in order: rows and deleted regions.",
        table_changes,
        None,
        errors=(400, 404, 406, 409, 413, 503),
        parameters=(_TABLE_NAME, *FEED_PARAMETERS),
    ),
    Endpoint(
        "POST",
        "/tables/{name}/query",
        "queryTable",
        "Returns the rows of a table in any of the keys, ranges and regions, in key order; all "
        "rows if none is given.",
        query_table,
        None,
        errors=(400, 404, 406, 409, 413, 415, 503),
        parameters=(_TABLE_NAME,),
        body=QUERY,
    ),
    Endpoint(
        "POST",
        "/tables/{name}/rows",
        "addRows",
        "Adds the rows of the body to a table, acknowledged when they are durable. Rows of many "
        "requests are written and committed together. A read-only server answers 403.",
        write_rows,
        WRITTEN,
        errors=(400, 404, 408, 409, 413, 415, 503),
        parameters=(
            _TABLE_NAME,
            Parameter(
                "Idempotency-Key",
                "A repeated request with the key adds no row twice, for 30 days.",
                "header",
            ),
        ),
        row_types=tuple(each.value for each in ContentType),
    ),
    _change(
        "delete",
        "deleteFromTable",
        "Deletes the rows of a table in any of the keys, ranges and regions, in one transaction. "
        "A read-only server, such as the one on AWS, answers 403.",
        delete_from_table,
        DELETE,
        DELETED,
    ),
    _change(
        "restore",
        "restoreTable",
        "Makes the rows of a version those of the newest version, in one transaction. A read-only "
        "server answers 403.",
        restore,
        RESTORE,
        RESTORED,
    ),
    _change(
        "undo",
        "undoJob",
        "Takes back what an ingest or import added to a table, in one transaction. A read-only "
        "server answers 403.",
        undo,
        UNDO,
        UNDONE,
    ),
    _change(
        "clone",
        "cloneTable",
        "Creates a table on the files of a version of another, without copying data. A read-only "
        "server answers 403.",
        clone,
        CLONE,
        CLONED,
    ),
    _change(
        "snapshots/expire",
        "expireSnapshots",
        "Expires the versions of a snapshot table that its properties and holds do not keep. A "
        "read-only server answers 403.",
        expire_snapshots,
        EXPIRE,
        EXPIRED,
    ),
    Endpoint(
        "POST",
        "/sql",
        "runSql",
        "Returns the rows of one SELECT over all tables, each at its newest version.",
        run_sql,
        None,
        errors=(400, 406, 409, 413, 415, 503),
        body=STATEMENT,
    ),
    Endpoint(
        "GET",
        "/status",
        "report",
        "Reports the state of tables and of background work.",
        report_status,
        REPORTS,
        errors=(400,),
        parameters=REPORT_PARAMETERS,
    ),
    Endpoint(
        "POST",
        "/queries",
        "submitQuery",
        "Sends a query to the queue. Its message names the destination of the results.",
        submit,
        SUBMITTED,
        errors=(400, 404, 413, 415),
        body=QUERY_MESSAGE,
        status=202,
    ),
    Endpoint(
        "GET",
        "/queries/{id:path}",
        "queryStatus",
        "Returns the state of a query of the queue.",
        query_status,
        QUERY_STATUS,
        errors=(404,),
        parameters=(Parameter("id", "The id of a query.", "path"),),
    ),
)
