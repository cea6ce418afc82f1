"""The table of all roles: what each may change, or read of users, and what it does with that.

`docs/security.md` shows it. A role that is not here, or may do more or less, fails a test.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from tests.infra.capabilities import CAPABILITIES
from tests.infra.roles import Role


@dataclass(frozen=True, slots=True)
class RoleDescription:
    """`may` are capabilities (`tests/infra/capabilities.py`), and `task` what needs them."""

    task: str
    may: Set[str] = frozenset()


# IAM cannot see what an update of a head does, so who appends to a log may also trim it.
_APPEND = {"append to logs", "trim logs", "advance cursors", "write bodies of entries"}
_RECORD = {"record jobs"}
_TASK = {"record jobs", "record tasks"}
_HOLD = {"write holds", "delete holds"}
_COMMIT_RUNS = {*_APPEND, "write data files", "write commits", "send commits"}
_READ = {"read rows", *_HOLD}
_STASH = {"write records of stashes", "write stashes"}
_PRUNE = {"delete records of stashes", "delete stashes"}
_PUBLISH = {"publish tables", "delete published metadata"}
_CREATE = {"add tables to the index", "create tables", "write properties of tables"}
_TABLES = {
    *_CREATE,
    "delete properties of tables",
    "remove deleted tables",
    "remove tables from the index",
}
_RESULTS = {"read results of queries", "receive results of queries"}
_IMPORT = {*_APPEND, *_TASK, "write data files"}
_SUBMIT = {*_RECORD, "write runs of bulk imports"}
_WATCH = {*_RECORD, "delete runs of bulk imports"}
_QUERY = {*_READ, "record queries", "write results of queries"}

_FAN_OUT = RoleDescription("sends a message for each table")
_START = RoleDescription("starts tasks of one kind in the instance's cluster, while messages wait")
_EXECUTION = RoleDescription("pulls the image of a task, and writes its log")
_SERVICE = RoleDescription("managed policies of AWS, for the service that runs the cluster")
_STOP = RoleDescription("ends machines before what they use is deleted")
_SUBMITTER = RoleDescription("submits bulk imports", _SUBMIT)
_WATCHER = RoleDescription("records how bulk imports ended", _WATCH)
_DRIVER = RoleDescription("imports files in bulk and commits them", _IMPORT)

ROLES: Mapping[str, RoleDescription] = {
    "Adapters/StartRole": RoleDescription(
        "sends due runs of adapters", {*_RECORD, "mark due adapters"}
    ),
    "Adapters/TaskRole": RoleDescription(
        "ingests what databases have", {*_COMMIT_RUNS, *_READ, *_TASK, "read secrets"}
    ),
    "Adapters/TaskStartRole": _START,
    "Adapters/TaskDefinitionExecutionRole": _EXECUTION,
    "Adjunct/Role": RoleDescription("fills adjunct stores from its inputs", _READ),
    "Adjunct/DefinitionExecutionRole": _EXECUTION,
    "Athena/MetadataRole": RoleDescription("plans queries of Athena", _READ),
    "Athena/RecordsRole": RoleDescription("reads rows for Athena", {*_READ, "write spilled rows"}),
    "BulkExport/TaskRole": RoleDescription(
        "exports tables to files", {*_READ, *_TASK, "write bulk exports"}
    ),
    "BulkExport/TaskStartRole": _START,
    "BulkExport/TaskDefinitionExecutionRole": _EXECUTION,
    "ClientRoles/Admin": RoleDescription(
        "`sleeper.admin.role.arn`: the command line on the whole instance",
        {
            *_COMMIT_RUNS,
            *_READ,
            *_TASK,
            *_STASH,
            *_PRUNE,
            *_PUBLISH,
            *_TABLES,
            *_RESULTS,
            "change adapters",
            "change export queues",
            "change properties of the instance",
            "delete dead letters",
            "delete rows by message",
            "mark due adapters",
            "pause schedules",
            "read secrets",
            "send ingest jobs",
            "send queries",
            "upload files",
            "write snapshots of states",
        },
    ),
    "ClientRoles/IngestByQueue": RoleDescription(
        "`sleeper.ingest.by.queue.role.arn`: sends ingest jobs",
        {"send ingest jobs", "upload files"},
    ),
    "ClientRoles/IngestDirect": RoleDescription(
        "`sleeper.ingest.direct.role.arn`: ingests and commits by itself",
        {*_COMMIT_RUNS, *_TASK, *_HOLD, "upload files"},
    ),
    "ClientRoles/Query": RoleDescription(
        "`sleeper.query.role.arn`: sends queries; reads results unless "
        "`sleeper.query.results.shared` is false",
        {*_RESULTS, "send queries"},
    ),
    "Committer/CommitRole": RoleDescription(
        "commits what tasks send", {*_APPEND, *_RECORD, "delete commits"}
    ),
    "Compaction/JobsHandlerRole": RoleDescription(
        "assigns files to compaction jobs, in the log", {*_APPEND, *_RECORD}
    ),
    "Compaction/JobsFanOutRole": _FAN_OUT,
    "Compaction/TaskRole": RoleDescription(
        "merges files and commits the outputs", {*_COMMIT_RUNS, *_TASK, "read rows"}
    ),
    "Compaction/TaskStartRole": _START,
    "Compaction/TaskDefinitionExecutionRole": _EXECUTION,
    "Deletion/DeleteRole": RoleDescription(
        "sends deletes to the committer", {*_RECORD, "send commits", "write commits"}
    ),
    "Eks/ClusterRole": _SERVICE,
    "Eks/NodeRole": _SERVICE,
    "Eks/MachineRole": RoleDescription("runs jobs in the namespace of bulk imports"),
    "Eks/SetupRole": RoleDescription("creates that namespace, as administrator of the cluster"),
    "Eks/PodRole": _DRIVER,
    "Eks/StartRole": _SUBMITTER,
    "Eks/WatchRole": _WATCHER,
    "Emr/ClustersNodeRole": _DRIVER,
    "Emr/ClustersServiceRole": _SERVICE,
    "Emr/StartRole": _SUBMITTER,
    "Eks/StopRole": _STOP,
    "Emr/StopRole": _STOP,
    "Emr/WatchRole": _WATCHER,
    "EmrServerless/Role": RoleDescription(
        "imports files in bulk; reads with Spark for adapters, and writes stashes with it",
        {*_IMPORT, *_STASH, "read rows", "read secrets", "stage rows of adapters"},
    ),
    "EmrServerless/StartRole": _SUBMITTER,
    "EmrServerless/StopRole": _STOP,
    "EmrServerless/WatchRole": _WATCHER,
    "ExportQueues/FollowRole": RoleDescription(
        "captures exports, and advances the cursors of queues",
        {*_READ, "advance cursors", "change export queues"},
    ),
    "ExportQueues/DrainRole": RoleDescription(
        "sends exports to receivers, which can be tables",
        {
            *_APPEND,
            *_READ,
            "change export queues",
            "read secrets",
            "write data files",
        },
    ),
    "GarbageCollection/FilesHandlerRole": RoleDescription(
        "deletes files that no version needs, and expired holds",
        {*_APPEND, "delete data files", "delete holds"},
    ),
    "GarbageCollection/FilesFanOutRole": _FAN_OUT,
    "GarbageCollection/OrphansHandlerRole": RoleDescription(
        "deletes what died runs left, and bars their commits",
        {
            *_APPEND,
            "delete bodies of entries",
            "delete commits",
            "delete data files",
            "delete snapshots of states",
        },
    ),
    "GarbageCollection/OrphansFanOutRole": _FAN_OUT,
    "GarbageCollection/SweepRole": RoleDescription(
        "deletes what deleted tables left, and the pins of deleted clones",
        {
            *_APPEND,
            "delete properties of tables",
            "delete published metadata",
            "remove deleted tables",
            "delete bodies of entries",
            "delete commits",
            "delete data files",
            "delete snapshots of states",
        },
    ),
    "HttpApi/AddTableRole": RoleDescription("creates tables over HTTP", {*_APPEND, *_CREATE}),
    "HttpApi/ServeRole": RoleDescription("queries and reports over HTTP", {*_READ, "send queries"}),
    "Iceberg/PublishRole": RoleDescription(
        "publishes tables for readers of Iceberg", {*_READ, *_PUBLISH}
    ),
    "Ingest/TaskRole": RoleDescription(
        "ingests files and commits them; reads tables that fill fields",
        {*_COMMIT_RUNS, *_READ, *_TASK},
    ),
    "Ingest/TaskStartRole": _START,
    "Ingest/TaskDefinitionExecutionRole": _EXECUTION,
    "IngestBatcher/ReceiveRole": RoleDescription(
        "records files to ingest together", {*_RECORD, "write files to ingest together"}
    ),
    "IngestBatcher/CreateBatchesRole": RoleDescription(
        "sends jobs of such files",
        {*_RECORD, "send ingest jobs", "write files to ingest together"},
    ),
    "Metrics/MetricsHandlerRole": RoleDescription("reports metrics of tables"),
    "Metrics/MetricsFanOutRole": _FAN_OUT,
    "Network/StopRole": _STOP,
    "PersistentEmr/PartsNodeRole": RoleDescription(
        "imports files in bulk and commits them, and takes the jobs itself",
        {*_IMPORT, "write runs of bulk imports"},
    ),
    "PersistentEmr/PartsServiceRole": _SERVICE,
    "Properties/WriteRole": RoleDescription(
        "writes the properties of a deployment, and protects tables from deletion",
        {"change properties of the instance", "protect tables"},
    ),
    "Properties/DefineRole": RoleDescription(
        "creates and changes the tables of a deployment", {*_APPEND, *_TABLES}
    ),
    "Query/PlanRole": RoleDescription(
        "plans queries by message, and removes results of an earlier query of the id",
        {*_QUERY, "delete results of queries"},
    ),
    "Query/RunRole": RoleDescription("runs parts of queries by message", _QUERY),
    "Splitting/FindHandlerRole": RoleDescription("finds leaves to split", _RECORD),
    "Splitting/FindFanOutRole": _FAN_OUT,
    "Splitting/SplitRole": RoleDescription(
        "splits leaves, in the log", {*_APPEND, *_RECORD, "read rows"}
    ),
    "Stash/AdvanceRole": RoleDescription(
        "starts, completes and prunes stashes", {*_STASH, *_PRUNE, *_HOLD}
    ),
    "Stash/TaskRole": RoleDescription(
        "writes the files of stashes", {*_STASH, *_TASK, "read rows"}
    ),
    "Stash/TaskStartRole": _START,
    "Stash/TaskDefinitionExecutionRole": _EXECUTION,
    "StateStore/SnapshotsHandlerRole": RoleDescription(
        "stores states and trims logs",
        {
            "delete bodies of entries",
            "delete snapshots of states",
            "trim logs",
            "write snapshots of states",
        },
    ),
    "StateStore/SnapshotsFanOutRole": _FAN_OUT,
    "Storage/EmptierRole": RoleDescription(
        "empties buckets of results, which are deleted with the stack",
        {"delete results of queries", "delete runs of bulk imports", "empty buckets"},
    ),
    "Watch/WatchRole": RoleDescription(
        "counts messages, switches the polls of their queues, and finds what fails or is overdue",
        {"switch polls"},
    ),
    "WebSocketQuery/HandleRole": RoleDescription(
        "takes queries over the WebSocket", {"send queries"}
    ),
}


HEADING = "## Roles on AWS"
_INTRODUCTION = """\
Each function and each kind of task has a role. The table shows what the policies of the role allow it to change, and to read of
users' rows, results and passwords. `tests/infra` makes it from the templates. No role can change another instance, policies,
code or user code, or delete buckets and DynamoDB tables. Tests of deployed instances record what roles do. A refused call
fails them, and so does a permission that served no call, except for those in
`tests/system/permissions_without_use.py`.

| function, task or role | what it does | what its role allows |
|---|---|---|"""  # noqa: E501 (a page)


def role_section(roles: Mapping[str, Role]) -> str:
    """Returns the section of `docs/security.md`: a row for each kind of role."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, role in sorted(roles.items()):
        may = {c for c, calls in CAPABILITIES.items() if any(map(role.may, calls))}
        shown = ["commit to logs"] if may >= _APPEND else []
        shown += sorted(may - _APPEND if shown else may)
        runs = sorted(f"`{user}`" for user in role.users) or [name.replace("/", " ")]
        row = (ROLES[name].task, ", ".join(shown) or "-")
        rows.setdefault(row, []).extend(runs)
    lines = [f"| {', '.join(runs)} | {task} | {may} |" for (task, may), runs in rows.items()]
    return "\n".join([f"{HEADING}\n", _INTRODUCTION, *lines, ""])
