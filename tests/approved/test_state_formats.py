"""Bytes of the transaction log and of commit messages, as earlier versions wrote them."""

from dataclasses import replace

from sleeper.export_queue.transactions import (
    ChangeExportQueue,
    CreateExportQueue,
    DeleteExportQueue,
    ExportRows,
    QueueExports,
)
from sleeper.files import DataFile, KeyFile
from sleeper.jobs.event import JobKind
from sleeper.partitions.partition import ROOT_PARTITION_ID, Partition, PartitionId
from sleeper.partitions.region import Range, Region
from sleeper.processing.field_changes import (
    AddField,
    ConvertField,
    DropField,
    OrderFields,
    RenameField,
    WidenField,
)
from sleeper.processing.model import AggregationOp
from sleeper.schema.model import (
    DecimalType,
    Field,
    ListType,
    PrimitiveType,
    Schema,
    schema_to_json,
)
from sleeper.statestore.commit_message import CommitEvent, CommitMessage, commit_message_from_json
from sleeper.statestore.log import LogEntry
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.check_unchanged import CheckUnchanged
from sleeper.statestore.transactions.codec import KINDS, decode_entry, encode
from sleeper.statestore.transactions.collection import (
    BarRuns,
    CollectFiles,
    FilesCollected,
    RaiseHorizon,
)
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    CommitCompaction,
    JobAssignment,
    ReleaseJobs,
    RenewLeases,
    ShortenLeases,
)
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.holds import (
    CreateFollower,
    CreateHold,
    DeleteFollower,
    ReleaseHold,
    RenewHold,
)
from sleeper.statestore.transactions.partition_split import (
    MarkUnsplittable,
    PushDownReferences,
    ReferenceMove,
    SplitPartition,
)
from sleeper.statestore.transactions.pins import PinFiles, UnpinFiles
from sleeper.statestore.transactions.record_requests import RecordRequests, WriteRequest
from sleeper.statestore.transactions.restore import ReinitialiseTable, RestoreVersion, UndoJob
from sleeper.statestore.transactions.snapshot_loads import (
    BeginLoad,
    ExpireSnapshots,
    PublishSnapshot,
)
from sleeper.statestore.transactions.table_definition import (
    AcceptTime,
    ChangeProcessing,
    InitialiseTable,
)
from sleeper.tables import TableId
from tests.approved.approval import check_approved

SCHEMA = Schema(
    (Field("key", PrimitiveType.STRING), Field("hash", PrimitiveType.BYTE_ARRAY)),
    (Field("n", PrimitiveType.LONG),),
    (Field("text", PrimitiveType.STRING, True),),
)
ROOT = ROOT_PARTITION_ID
LEFT, RIGHT = PartitionId("left"), PartitionId("right")
ALL_HASHES = Range(b"", None)
TREE = (
    Partition(ROOT, Region((Range("", None), ALL_HASHES)), None, False),
    Partition(LEFT, Region((Range("", "m"), ALL_HASHES)), ROOT),
    Partition(RIGHT, Region((Range("m", None), ALL_HASHES)), ROOT),
)
FILE = DataFile("t/data/a.parquet", 10, 1_234, ("ä", b"\0\xff"), ('z"', b""), 1)
SIDECARS = replace(FILE, path="t/data/b.parquet", sidecars=(".sketches", ".filter"))
TRANSACTIONS = [
    InitialiseTable(schema_to_json(SCHEMA), TREE, '{"filters":"ageOff(n,1)"}', 3, id="i"),
    InitialiseTable(schema_to_json(SCHEMA), TREE[:1], id="i"),
    InitialiseTable(schema_to_json(SCHEMA), TREE[:1], id="i", rows="latest", latest_by="text"),
    AddFiles("job", 1, (NewFile(FILE, ((LEFT, 3), (RIGHT, 7))), NewFile(SIDECARS, ((ROOT, 10),)))),
    AddFiles("job", 1, (), "request"),
    PushDownReferences((ReferenceMove("a", ROOT, ((LEFT, 3), (RIGHT, 0))),), id="i"),
    AssignFiles((JobAssignment("j", ROOT, ("a", "b"), 7), JobAssignment("k", LEFT, (), 8)), id="i"),
    RenewLeases(("j", "k"), 3, id="i"),
    ShortenLeases(("j",), 3, id="i"),
    ReleaseJobs(("j",), True, id="i"),
    ReleaseJobs((), id="i"),
    CommitCompaction("j", ROOT, ("a", "b"), SIDECARS, 5),
    CommitCompaction("j", ROOT, ("a",), None, 5),
    SplitPartition(ROOT, TREE[1:], id="i"),
    MarkUnsplittable(ROOT, 3, id="i"),
    RaiseHorizon(3, (("f@2", 4),), ("g@3",), id="i"),
    CollectFiles(("a", "b"), 3, (("f@2", 4), ("g@3", 5)), id="i"),
    CollectFiles(("a",), 3, id="i"),
    FilesCollected(("a",), id="i"),
    CreateHold("h", "owner", 3, 4),
    RenewHold("h", 3, id="i"),
    ReleaseHold("h", id="i"),
    CreateFollower("f", 3, id="i"),
    DeleteFollower("f", id="i"),
    ChangeProcessing("", "sum(n)", "Mine", "config", id="i"),
    ChangeProcessing(id="i"),
    BarRuns(3, id="i"),
    DeleteRows((TREE[1].region, Region((Range("a", "a\0"), ALL_HASHES))), id="i"),
    DeleteRows(
        (),
        KeyFile("t/data/deletes/k.parquet", 3, 9, TREE[1].region, (".checksum",)),
        7,
        "r",
        id="i",
    ),
    RestoreVersion(3, id="i"),
    UndoJob("job", id="i"),
    ReinitialiseTable(id="i"),
    ChangeSchema(
        (
            AddField(Field("a", PrimitiveType.INT, default=3), "b", AggregationOp.SUM),
            AddField(Field("c", ListType(PrimitiveType.STRING))),
            DropField("a"),
            RenameField("b", "d"),
            WidenField("d", DecimalType(9, 2)),
            ConvertField("e", PrimitiveType.JSON, 4),
            OrderFields(("d", "c")),
        ),
        id="i",
    ),
    PinFiles("clone", ("a", "b"), id="i"),
    UnpinFiles("clone", ("a",), id="i"),
    UnpinFiles("clone", id="i"),
    AcceptTime(3, id="i"),
    InitialiseTable(schema_to_json(SCHEMA), TREE[:1], table_type="snapshot", id="i"),
    BeginLoad("j", id="i"),
    PublishSnapshot("j", 1, (NewFile(FILE, ((LEFT, 10),)),), "request", begun=3),
    ExpireSnapshots((3, 5), id="i"),
    CreateExportQueue("q", "ingest", '{"name":"q"}', id="i"),
    ChangeExportQueue("q", 3, '{"name":"q"}', id="i"),
    DeleteExportQueue("q", id="i"),
    ExportRows((QueueExports("q", 3, 2, b"\0\xff"),), id="i"),
    CheckUnchanged(3, (TREE[1].region,), id="i"),
    RecordRequests((WriteRequest("order-7", b"\0\xff"),), id="i"),
]


def test_transactions_keep_their_bytes():
    lines = [encode(t).line for t in TRANSACTIONS]
    assert {t.kind for t in TRANSACTIONS} == KINDS.keys()
    check_approved("transactions.jsonl", "".join(f"{line}\n" for line in lines))
    entry = LogEntry(1, len(lines), 0, "w", "\n".join(lines))
    assert [content.transaction for content in decode_entry(entry)] == TRANSACTIONS


def test_commit_messages_keep_their_bytes():
    run = CommitEvent(JobKind.COMPACTION, "j", "r", "task")
    line = encode(AcceptTime(3, id="i")).line
    messages = [
        CommitMessage(TableId("t"), run, (line, line)),
        CommitMessage(TableId("t"), CommitEvent(JobKind.INGEST, "j", "r", None), (line,)),
        CommitMessage(TableId("t"), object_path=f"t/commits/{'0' * 32}.json"),
    ]
    check_approved("commit-messages.jsonl", "".join(f"{m.to_json()}\n" for m in messages))
    assert [commit_message_from_json(m.to_json()) for m in messages] == messages
