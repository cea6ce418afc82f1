# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of table properties, and of the instance properties they default to."""

from enum import Enum
from typing import TypeVar

from sleeper.properties.declaration import (
    INSTANCE_PROPERTIES,
    TABLE_PROPERTIES,
    Group,
    Property,
    Scope,
    SetBy,
)
from sleeper.properties.value_kind import (
    AGGREGATIONS_TEXT,
    CALLERS_JSON,
    FILTERS_TEXT,
    FLAG,
    LONG_MAX,
    SCHEMA_JSON,
    ValueKind,
    byte_count,
    choice,
    class_name,
    optional,
    pattern,
    text,
    whole_number,
)

T = TypeVar("T")


class TableType(Enum):
    """The kind of a table."""

    TABLE = "table"


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
    group: Group,
    description: str,
    *,
    set_by: SetBy = SetBy.USER,
    required: bool = False,
) -> Property[T]:
    """Declares a table property without a default in the instance."""
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
        )
    )


def _with_default(
    name: str, kind: ValueKind[T], default: T | None, group: Group, description: str
) -> Property[T]:
    """Declares a table property and the instance property with its default."""
    of_instance = INSTANCE_PROPERTIES.add(
        Property(
            name=f"sleeper.default.table.{name}",
            kind=kind,
            default=default,
            group=group,
            description=description,
        )
    )
    return TABLE_PROPERTIES.add(
        Property(
            name=f"sleeper.table.{name}",
            kind=kind,
            default=default,
            group=group,
            description=description,
            scope=Scope.TABLE,
            default_from=of_instance,
        )
    )


def _of_new_tables(
    name: str, kind: ValueKind[T], default: T | None, group: Group, description: str
) -> tuple[Property[T], Property[T]]:
    """Declares a table property and the instance property that new tables copy.

    Later changes of the instance property do not affect existing tables.
    """
    of_instance = INSTANCE_PROPERTIES.add(
        Property(
            name=f"sleeper.default.table.{name}",
            kind=kind,
            default=default,
            group=group,
            description="What new tables have, unless they say otherwise.",
        )
    )
    return _declare(name, kind, default, group, description), of_instance


# fmt: off
NAME = _declare("name", text(200), None, Group.DEFINITION, "The table's name.", required=True)
TABLE_ID = _declare("id", pattern("[0-9a-f]{8}", "8 lower-case hexadecimal digits"), None, Group.DEFINITION, "The table's id.", set_by=SetBy.SYSTEM, required=True)
SCHEMA = _declare("schema", SCHEMA_JSON, None, Group.DEFINITION, "The table's fields, as schema JSON. A published copy: the table's log decides.", required=True)
TYPE = _declare("type", choice(TableType), TableType.TABLE, Group.DEFINITION, "What kind of table it is. It cannot change.")
ONLINE = _with_default("online", FLAG, True, Group.DEFINITION, "Whether the table is split and compacted. `sleeper table online` and `offline` change it.")
FILTERS, DEFAULT_FILTERS = _of_new_tables("filters", FILTERS_TEXT, (), Group.DEFINITION, "Which rows are left out. A published copy: the table's log decides.")
AGGREGATIONS, DEFAULT_AGGREGATIONS = _of_new_tables("aggregations", AGGREGATIONS_TEXT, (), Group.DEFINITION, "How rows of equal keys become one. A published copy: the table's log decides.")
ITERATOR_CLASS_NAME, DEFAULT_ITERATOR_CLASS_NAME = _of_new_tables("iterator.class.name", optional(class_name("a registered iterator")), None, Group.DEFINITION, "The iterator that rows pass through after filters and aggregations. A published copy: the table's log decides.")
ITERATOR_CONFIG, DEFAULT_ITERATOR_CONFIG = _of_new_tables("iterator.config", text(), "", Group.DEFINITION, "What the iterator is told. A published copy: the table's log decides.")
ITERATOR_GROUP_ROWS_MAX = _with_default("iterator.group.rows.max", whole_number(1), 1_000_000, Group.DEFINITION, "How many rows of equal row and sort keys an iterator is given at most. More fail the query or compaction.")
QUERY_CALLERS = _with_default("query.callers", optional(CALLERS_JSON), None, Group.QUERY, "Who may query the table by message, HTTP, WebSocket or Athena, and what they see of it, as JSON: an object by caller (`*`: everybody else; `athena`: whoever asks through Athena) with `valueFields`, `iterator` and `config`, each optional. Unset: everybody, everything.")
SPLITS_FILE = _declare("splits.file", optional(text(4096)), None, Group.DEFINITION, "A file of split points that the table begins with, one a line.")
SPLITS_BASE64 = _declare("splits.base64.encoded", FLAG, False, Group.DEFINITION, "Whether split points of strings are given as base64.")

COMPRESSION_CODEC = _with_default("parquet.compression.codec", choice(CompressionCodec), CompressionCodec.ZSTD, Group.STORAGE, "How data files are compressed.")
ROW_GROUP_ROWS_MAX = _with_default("parquet.rowgroup.rows.max", whole_number(1000), 100_000, Group.STORAGE, "How many rows are in a row group at most.")
ROW_GROUP_BYTES = _with_default("parquet.rowgroup.bytes", byte_count(65_536), 1024**2, Group.STORAGE, "A row group ends sooner if it takes about so much memory, though not before 10,000 rows. Smaller ones bound the memory of merges; larger ones mean fewer requests.")
PAGE_SIZE_BYTES = _with_default("parquet.page.size", byte_count(1024), 131_072, Group.STORAGE, "How large a data page gets, in bytes.")
KEY_FILTER_BITS_PER_ROW = _with_default("key.filter.bits.per.row", whole_number(0, 64), 14, Group.STORAGE, "How many bits of a data file's key filter each of its different row keys takes. More bits spare lookups more files: 10 bits let 1.3 % of the files that do not hold a key be opened, 14 bits 0.3 %. 0: no filters.")
KEY_FILTER_BYTES_MAX = _with_default("key.filter.bytes.max", byte_count(1024), 33_554_432, Group.STORAGE, "How large the key filter of one data file gets at most, in bytes. A file of so many keys that it would get less than 3 bits for each has none.")

COLLECTION_DELAY_MINUTES = _with_default("gc.delay.minutes", whole_number(0), 10, Group.COLLECTION, "How long a file without references is kept before it is collected, so that running queries can finish.")

SPLIT_THRESHOLD_ROWS = _with_default("partition.splitting.threshold", whole_number(1, LONG_MAX), 1_000_000_000, Group.SPLITTING, "A leaf partition with more rows than this is split.")

COMPACTION_STRATEGY = _with_default("compaction.strategy.class", class_name("a registered compaction strategy"), "SizeRatioCompactionStrategy", Group.COMPACTION, "Which files a compaction job takes. With the product come SizeRatioCompactionStrategy and BasicCompactionStrategy.")
COMPACTION_FILES_BATCH_SIZE = _with_default("compaction.files.batch.size", whole_number(2, 10_000), 12, Group.COMPACTION, "How many files a compaction job takes at most.")
SIZE_RATIO = _with_default("compaction.strategy.sizeratio.ratio", whole_number(1), 3, Group.COMPACTION, "A file is compacted with smaller ones if these have at least this many times its rows together.")
SIZE_RATIO_JOBS_MAX = _with_default("compaction.strategy.sizeratio.max.concurrent.jobs.per.partition", whole_number(1), 2**31 - 1, Group.COMPACTION, "How many compaction jobs a partition has at once.")
COMPACTION_JOBS_MAX = _with_default("compaction.job.creation.limit", whole_number(1), 100_000, Group.COMPACTION, "How many compaction jobs a table has at once.")
COMPACTION_COMMIT_ASYNC = _with_default("compaction.job.commit.async", FLAG, True, Group.COMPACTION, "On AWS: whether compaction tasks hand their commits to the committer, which commits those of several jobs together, rather than commit themselves.")

FILE_WRITING_STRATEGY = _with_default("ingest.file.writing.strategy", choice(FileWritingStrategy), FileWritingStrategy.ONE_REFERENCE_PER_LEAF, Group.INGEST, "Whether ingest writes a file for each leaf, or one file that all leaves refer to.")
EXTRA_COLUMNS_REFUSED = _with_default("ingest.parquet.extra.columns.refused", FLAG, False, Group.INGEST, "Whether ingest and bulk import refuse Parquet files with columns that the schema does not have. Otherwise these columns are left out, with a warning.")
INGEST_COMMIT_ASYNC = _with_default("ingest.files.commit.async", FLAG, False, Group.INGEST, "On AWS: whether ingest tasks hand their commits to the committer rather than commit themselves.")

BATCHER_JOB_SIZE_MIN = _with_default("ingest.batcher.job.min.size", byte_count(0), 1024**3, Group.INGEST_BATCHER, "How much must wait before a job is made.")
BATCHER_JOB_SIZE_MAX = _with_default("ingest.batcher.job.max.size", byte_count(), 5 * 1024**3, Group.INGEST_BATCHER, "How much a job takes at most.")
BATCHER_JOB_FILES_MIN = _with_default("ingest.batcher.job.min.files", whole_number(0), 1, Group.INGEST_BATCHER, "How many files must wait before a job is made.")
BATCHER_JOB_FILES_MAX = _with_default("ingest.batcher.job.max.files", whole_number(1), 100, Group.INGEST_BATCHER, "How many files a job takes at most.")
BATCHER_FILE_AGE_SECONDS = _with_default("ingest.batcher.file.max.age.seconds", whole_number(1), 300, Group.INGEST_BATCHER, "After how long a waiting file is sent however few wait with it.")
BATCHER_QUEUE = _with_default("ingest.batcher.ingest.queue", choice(IngestQueue), IngestQueue.BULK_IMPORT_EMR_SERVERLESS, Group.INGEST_BATCHER, "Which queue the jobs are sent to.")

BULK_IMPORT_LEAVES_MIN = _with_default("bulk.import.min.leaf.partitions", whole_number(1), 256, Group.BULK_IMPORT, "How many leaves a table needs before a bulk import runs; fewer are split first.")
# fmt: on
