"""The message of a compaction job (docs/formats.md, "Compaction messages")."""

import json
import secrets
from dataclasses import dataclass

from sleeper.errors import InvalidRequestError
from sleeper.partitions.partition import PartitionId
from sleeper.tables.table_ref import TableId

_INPUTS_SENT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """A merge of files of a partition into one.

    Workers merge the files that the job holds in the state. `inputs` informs readers of the
    queue, and is empty in messages of more than 1,000 files.
    """

    id: str
    table_id: TableId
    partition_id: PartitionId
    inputs: tuple[str, ...]
    created_ms: int

    def to_json(self) -> str:
        """Returns the message's body."""
        raw = {
            "jobId": self.id,
            "tableId": self.table_id,
            "partitionId": self.partition_id,
            "inputFiles": list(self.inputs) if len(self.inputs) <= _INPUTS_SENT_MAX else [],
            "createdMs": self.created_ms,
        }
        return json.dumps(raw, separators=(",", ":"))


def new_compaction_job_id() -> str:
    """Returns a random id. Ids of released jobs are never reused."""
    return secrets.token_hex(12)


def compaction_job_from_json(body: str) -> CompactionJob:
    """Parses a message. InvalidRequestError if it is not a compaction job."""
    try:
        raw = json.loads(body)
        inputs = tuple(str(path) for path in raw.get("inputFiles", ()))
        texts = [raw[name] for name in ("jobId", "tableId", "partitionId")]
        if not all(isinstance(text, str) and text for text in texts):
            raise TypeError("ids must be text")
        job_id, table_id, partition_id = texts
        return CompactionJob(
            job_id, TableId(table_id), PartitionId(partition_id), inputs, int(raw["createdMs"])
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidRequestError(
            f"not a compaction job: {body[:200]!r}: expected jobId, tableId, partitionId, "
            f"inputFiles and createdMs ({error!r})"
        ) from error
