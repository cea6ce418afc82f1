# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of table properties, and of the instance properties they default to."""

from enum import Enum
from typing import TypeVar

from sleeper.properties.declaration import (
    TABLE_PROPERTIES,
    Group,
    Property,
    Scope,
    SetBy,
)
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import (
    AGGREGATIONS_TEXT,
    CALLERS_JSON,
    ENRICHMENT_JSON,
    FILTERS_TEXT,
    FLAG,
    LONG_MAX,
    SCHEMA_JSON,
    ValueKind,
    byte_count,
    choice,
    class_name,
    duration,
    optional,
    pattern,
    text,
    whole_number,
)
from sleeper.schema.latest_rows import LATEST

T = TypeVar("T")


class TableType(Enum):
    """The kind of a table."""

    TABLE = "table"
    SNAPSHOT = "snapshot"


class RowChoice(Enum):
    """The rows with equal keys that a table shows: all of them, or the newest."""

    APPEND = "append"
    LATEST = LATEST


class FileWritingStrategy(Enum):
    """The layout of ingested rows: one file per leaf, or one file with a reference per leaf."""

    ONE_FILE_PER_LEAF = "one_file_per_leaf"
    ONE_REFERENCE_PER_LEAF = "one_reference_per_leaf"


class CompressionCodec(Enum):
    """The compression of Parquet pages."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    BROTLI = "brotli"
    UNCOMPRESSED = "uncompressed"


OTHER_CODEC_NAMES = {"lz4_raw": CompressionCodec.LZ4}
"""Parquet's name of LZ4 without frames, as which `lz4` is written."""


class ParquetLayout(Enum):
    """The size of pages in data files: small ones for lookups, large ones for scans."""

    LOOKUP = "lookup"
    SCAN = "scan"


class IngestQueue(Enum):
    """The queue for the jobs of the ingest batcher."""

    STANDARD_INGEST = "standard_ingest"
    BULK_IMPORT_EMR = "bulk_import_emr"
    BULK_IMPORT_PERSISTENT_EMR = "bulk_import_persistent_emr"
    BULK_IMPORT_EKS = "bulk_import_eks"
    BULK_IMPORT_EMR_SERVERLESS = "bulk_import_emr_serverless"


def _declare(
    name: str,
    kind: ValueKind[T],
    default: T | None,
    group: str,
    description: str,
    *,
    set_by: SetBy = SetBy.USER,
    required: bool = False,
    default_from: Property[T] | None = None,
) -> Property[T]:
    """Declares a table property."""
    return TABLE_PROPERTIES.add(
        Property(
            name=f"sleeper.table.{name}",
            kind=kind,
            default=default,
            group=group,
            description=description,
            scope=Scope.TABLE,
            set_by=set_by,
            required=required,
            default_from=default_from,
        )
    )


def inherit(
    name: str, kind: ValueKind[T], default: T | None, group: str, description: str
) -> Property[T]:
    """Declares a table property and the instance property with its default."""
    inherited = declare(f"default.table.{name}", kind, default, group, description)
    return _declare(name, kind, default, group, description, default_from=inherited)


def _copy(
    name: str, kind: ValueKind[T], default: T | None, group: str, description: str
) -> tuple[Property[T], Property[T]]:
    """Declares a table property and the instance property that new tables copy.

    Later changes of the instance property do not affect existing tables.
    """
    copied = declare(f"default.table.{name}", kind, default, group, "Defaults of tables.")
    return _declare(name, kind, default, group, description), copied


# fmt: off
NAME = _declare("name", text(200), None, Group.DEFINITION, "The table's name.", required=True)
TABLE_ID = _declare("id", pattern("[0-9a-f]{8}", "8 lower-case hexadecimal digits"), None, Group.DEFINITION, "The table's id.", set_by=SetBy.SYSTEM, required=True)
SCHEMA = _declare("schema", SCHEMA_JSON, None, Group.DEFINITION, "The table's fields, as schema JSON. A published copy: the table's log is authoritative.", required=True)
TYPE = _declare("type", choice(TableType), TableType.TABLE, Group.DEFINITION, "The kind of the table: ingests add rows (table), or each replaces all rows with a new version (snapshot). It cannot change.")
ROWS = _declare("rows", choice(RowChoice), RowChoice.APPEND, Group.DEFINITION, "The rows with equal row and sort keys that the table shows: all of them (append), or the newest (latest). It cannot change.")
LATEST_BY = _declare("latest.by", optional(text(1000)), None, Group.DEFINITION, "The value field whose largest value makes a row the newest of a table with rows=latest; of equal values the later commit. Unset: the later commit. It cannot change.")
DOCUMENT = _declare("document", optional(text(1000)), None, Group.DEFINITION, "The value field of `JSONType` that is the document: its members stand beside those of the other fields in ingested lines of JSON, and with the `~` members in copies as documents. `sleeper table rename-field` changes it. It cannot change otherwise.")
ONLINE = inherit("online", FLAG, True, Group.DEFINITION, "Whether the table is split and compacted. `sleeper table online` and `offline` change it.")
FILTERS, DEFAULT_FILTERS = _copy("filters", FILTERS_TEXT, (), Group.DEFINITION, "The filters of rows. A published copy: the table's log is authoritative.")
AGGREGATIONS, DEFAULT_AGGREGATIONS = _copy("aggregations", AGGREGATIONS_TEXT, (), Group.DEFINITION, "The aggregations of rows with equal keys. A published copy: the table's log is authoritative.")
ITERATOR_CLASS_NAME, DEFAULT_ITERATOR_CLASS_NAME = _copy("iterator.class.name", optional(class_name("a registered iterator")), None, Group.DEFINITION, "The iterator that rows pass through after filters and aggregations. A published copy: the table's log is authoritative.")
ITERATOR_CONFIG, DEFAULT_ITERATOR_CONFIG = _copy("iterator.config", text(), "", Group.DEFINITION, "The configuration text of the iterator. A published copy: the table's log is authoritative.")
ITERATOR_GROUP_ROWS_MAX = inherit("iterator.group.rows.max", whole_number(1), 1_000_000, Group.DEFINITION, "The maximum number of rows with equal row and sort keys in an iterator's batch. More fail the query or compaction.")
QUERY_CALLERS = inherit("query.callers", optional(CALLERS_JSON), None, Group.QUERY, "The callers that may query the table by message, HTTP, WebSocket or Athena, and their restrictions, as JSON: an object by caller (`*`: all other callers; `athena`: queries through Athena) with `valueFields`, `iterator` and `config`, each optional. Unset: unrestricted.")
SPLITS_FILE = _declare("splits.file", optional(text(4096)), None, Group.DEFINITION, "A file with the initial split points of the table, one per line.")
SPLITS_BASE64 = _declare("splits.base64.encoded", FLAG, False, Group.DEFINITION, "Whether split points of strings are base64.")

COMPRESSION_CODEC = inherit("parquet.compression.codec", choice(CompressionCodec, OTHER_CODEC_NAMES), CompressionCodec.ZSTD, Group.STORAGE, "The compression of data files. Columns that it makes less than a tenth smaller are not compressed.")
ROW_GROUP_ROWS_MAX = inherit("parquet.rowgroup.rows.max", whole_number(1000), 100_000, Group.STORAGE, "The maximum number of rows in a row group.")
ROW_GROUP_BYTES = inherit("parquet.rowgroup.bytes", byte_count(65_536), 1024**2, Group.STORAGE, "The approximate maximum memory of a row group, which has about 10,000 rows at least. Smaller row groups reduce the memory of merges; larger ones reduce the number of requests.")
PAGE_SIZE_BYTES = inherit("parquet.page.size", byte_count(1024), 131_072, Group.STORAGE, "The maximum size of a data page, in bytes.")
LAYOUT = inherit("parquet.layout", choice(ParquetLayout), ParquetLayout.LOOKUP, Group.STORAGE, "The size of the pages of data files. lookup: at most 512 rows, so that a lookup reads few rows. scan: about sleeper.table.parquet.page.size, which programs with an Arrow reader read up to twice as fast.")
KEY_FILTER_BITS_PER_ROW = inherit("key.filter.bits.per.row", whole_number(0, 64), 14, Group.STORAGE, "The bits per distinct row key in the key filter of a data file. More bits avoid more file reads in lookups: with 10 bits a lookup opens 1.3 % of the files without the key, with 14 bits 0.3 %. 0: no filters.")
KEY_FILTER_BYTES_MAX = inherit("key.filter.bytes.max", byte_count(1024), 67_108_864, Group.STORAGE, "The maximum size of the key filter of a data file, in bytes. With 14 bits per key this suffices for 38 million keys; a file of more has fewer bits per key, and no filter if less than 3 are left.")

HISTORY_RETENTION = inherit("history.retention", optional(duration()), None, Group.COLLECTION, "How long the versions of the table stay readable, such as 12h or 7d: garbage collection keeps their files and the log its transactions. Unset: until garbage collection deletes files that they need.")
FOLLOWER_RETENTION = inherit("follower.retention", optional(duration()), None, Group.COLLECTION, "How long the table keeps changes for a follower that does not read them, such as 7d. A follower that needs older ones is refused. Unset: without limit.")
SNAPSHOT_TTL = inherit("snapshot.ttl", optional(duration()), None, Group.COLLECTION, "How long after its publication a version of a snapshot table expires, such as 12h or 7d. The newest expires too, if the loads stop and sleeper.table.snapshot.min.versions is not set. Unset: versions do not expire by age.")
SNAPSHOT_VERSIONS_MIN = inherit("snapshot.min.versions", optional(whole_number(0, 1_000_000)), None, Group.COLLECTION, "The number of newest versions of a snapshot table that do not expire, whatever their age. Without a time to live, older ones expire. Unset: 1, or 0 with a time to live.")
COLLECTION_DELAY_MINUTES = inherit("gc.delay.minutes", whole_number(0), 10, Group.COLLECTION, "The delay before a file without references is collected, so that running queries can finish.")

SPLIT_THRESHOLD_ROWS = inherit("partition.splitting.threshold", whole_number(1, LONG_MAX), 1_000_000_000, Group.SPLITTING, "A leaf partition with more rows than this is split.")

COMPACTION_STRATEGY = inherit("compaction.strategy.class", class_name("a registered compaction strategy"), "SizeRatioCompactionStrategy", Group.COMPACTION, "The strategy that selects the files of compaction jobs. SizeRatioCompactionStrategy, CostCompactionStrategy and BasicCompactionStrategy are built in.")
COMPACTION_FILES_BATCH_SIZE = inherit("compaction.files.batch.size", whole_number(2, 10_000), 12, Group.COMPACTION, "The maximum number of files in a compaction job of SizeRatioCompactionStrategy and BasicCompactionStrategy.")
COMPACTION_STRATEGY_TIMEOUT_SECONDS = inherit("compaction.strategy.timeout.seconds", whole_number(1), 60, Group.COMPACTION, "The maximum time in which a strategy of a wheel selects the files of a partition. The strategy runs in a process of its own, which is killed after that time.")
SIZE_RATIO = inherit("compaction.strategy.sizeratio.ratio", whole_number(1), 3, Group.COMPACTION, "A file is compacted with smaller files if these together have at least this multiple of its rows.")
SIZE_RATIO_JOBS_MAX = inherit("compaction.strategy.sizeratio.max.concurrent.jobs.per.partition", whole_number(1), 2**31 - 1, Group.COMPACTION, "The maximum number of concurrent compaction jobs of a partition.")
COST_FILES_MAX = inherit("compaction.strategy.cost.files.max", whole_number(2, 1_000), 12, Group.COMPACTION, "The number of files of a partition that CostCompactionStrategy keeps at most, beside those that wait for their job. More files cost reads more, and rewrite rows less often.")
COMPACTION_LEAF_ROWS_MIN = inherit("compaction.leaf.rows.min", whole_number(0), 0, Group.COMPACTION, "The rows of a file per leaf that are enough for references in leaves. A file of fewer rows has one reference, in the lowest partition that contains its keys, and is compacted there. 0: files always have references in leaves.")
COMPACTION_LEAF_BYTES_MIN = inherit("compaction.leaf.bytes.min", byte_count(), 16 * 1024**2, Group.COMPACTION, "The bytes of a file per leaf that are enough for references in leaves, if its rows are not.")
COMPACTION_JOBS_MAX = inherit("compaction.job.creation.limit", whole_number(1), 100_000, Group.COMPACTION, "The maximum number of concurrent compaction jobs of a table.")
COMPACTION_COMMIT_ASYNC = inherit("compaction.job.commit.async", FLAG, True, Group.COMPACTION, "On AWS: whether compaction tasks send their commits to the committer, which batches the commits of several jobs.")

FILE_WRITING_STRATEGY = inherit("ingest.file.writing.strategy", choice(FileWritingStrategy), FileWritingStrategy.ONE_REFERENCE_PER_LEAF, Group.INGEST, "The layout of ingested rows: one file per leaf, or one file with a reference per leaf.")
EXTRA_COLUMNS_REFUSED = inherit("ingest.parquet.extra.columns.refused", FLAG, False, Group.INGEST, "Whether ingest and bulk import reject Parquet files with columns that are not in the schema. Otherwise they ignore these columns, with a warning.")
INGEST_ENRICHMENT = _declare("ingest.enrichment", optional(ENRICHMENT_JSON), None, Group.INGEST, "The fields that ingests fill from other data, as JSON: a list of lookups, each with `store`, `input`, `on`, `fields` and optionally `missing` (docs/adjunct-ingest.md). Unset: none.")
INGEST_COMMIT_ASYNC = inherit("ingest.files.commit.async", FLAG, False, Group.INGEST, "On AWS: whether ingest tasks send their commits to the committer.")

BATCHER_JOB_SIZE_MIN = inherit("ingest.batcher.job.min.size", byte_count(0), 1024**3, Group.INGEST_BATCHER, "The minimum total size of the waiting files for a job.")
BATCHER_JOB_SIZE_MAX = inherit("ingest.batcher.job.max.size", byte_count(), 5 * 1024**3, Group.INGEST_BATCHER, "The maximum total size of a job's files.")
BATCHER_JOB_FILES_MIN = inherit("ingest.batcher.job.min.files", whole_number(0), 1, Group.INGEST_BATCHER, "The minimum number of waiting files for a job.")
BATCHER_JOB_FILES_MAX = inherit("ingest.batcher.job.max.files", whole_number(1), 100, Group.INGEST_BATCHER, "The maximum number of files in a job.")
BATCHER_FILE_AGE_SECONDS = inherit("ingest.batcher.file.max.age.seconds", whole_number(1), 300, Group.INGEST_BATCHER, "The maximum time that a file waits for a job.")
BATCHER_QUEUE = inherit("ingest.batcher.ingest.queue", choice(IngestQueue), IngestQueue.BULK_IMPORT_EMR_SERVERLESS, Group.INGEST_BATCHER, "The queue for the jobs.")

BULK_IMPORT_LEAVES_MIN = inherit("bulk.import.min.leaf.partitions", whole_number(1), 256, Group.BULK_IMPORT, "The minimum number of leaf partitions for a bulk import, which splits the table first if it has fewer. Small loads make fewer: see sleeper.table.bulk.import.leaf.bytes.min.")
BULK_IMPORT_LEAF_BYTES_MIN = inherit("bulk.import.leaf.bytes.min", byte_count(0), 32 * 1024**2, Group.BULK_IMPORT, "The bytes of rows, uncompressed, that a bulk import must have for each leaf partition that it makes. 0 makes as many leaves as sleeper.table.bulk.import.min.leaf.partitions for every load.")

# fmt: on
